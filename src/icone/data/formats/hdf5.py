"""HDF5 files: one sample each, or an array of many samples, `file.h5:/path`, through h5py."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.base import Array, Format, Header, Sample
from icone.data.formats.lazy import LazyImage
from icone.data.formats.npy import axis_letters, bare_notes, bare_sample, pick_key
from icone.errors import InputError, optional


class Hdf5File:
    """The arrays of an HDF5 file by their path without the first slash; rows are read piece by piece."""

    def __init__(self, path: Path) -> None:
        with optional("hdf5", "reading HDF5"):
            import h5py

        self._path = path
        self.headers: dict[str, Header] = {}

        def note(name: str, found: Any) -> None:
            if isinstance(found, h5py.Dataset) and found.shape:
                self.headers[name] = Header(found.shape, np.dtype("O") if found.dtype.hasobject else found.dtype)

        with h5py.File(path, "r") as file:
            file.visititems(note)
        if not self.headers:
            raise InputError("it holds no arrays")

    def load(self, key: str) -> Any:
        return Hdf5Rows(self._path, key)


class Hdf5Rows:
    """The rows of an array in an HDF5 file, which is opened at the first of them and closed with this object."""

    def __init__(self, path: Path, key: str) -> None:
        import h5py

        self._array: Any = h5py.File(path, "r")[key]
        self.shape, self.dtype, self.chunks = self._array.shape, self._array.dtype, self._array.chunks
        self._lock = threading.Lock()

    def __getitem__(self, at: int | slice | tuple[slice, ...]) -> Array:
        with self._lock:
            rows: Array = np.asarray(self._array[at])
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        whole = self._array.asstr() if self._array.dtype.hasobject else self._array
        return np.asarray(whole[()], dtype=dtype)


def read_hdf5(path: Path, axes: str | None = None) -> Sample:
    """One image or volume from an HDF5 file with one array, or with one that has a usual name."""
    file = Hdf5File(path)
    return bare_sample(file.load(pick_key(sorted(file.headers)))[:], axes)


def open_hdf5(path: Path, axes: str | None = None, key: str = "") -> LazyImage:
    """An array of an HDF5 file as one image or volume, of which regions are read."""
    file = Hdf5File(path)
    if key and key not in file.headers:
        raise InputError(f"it holds no array {key}; it holds {', '.join(sorted(file.headers))}")
    rows = file.load(key or pick_key(sorted(file.headers)))
    image = LazyImage(rows, axis_letters(rows.shape, axes))
    image.guesses = bare_notes(rows.shape, axes)
    return image


def hdf5_header(path: Path) -> Header:
    """What the array with the data declares."""
    headers = Hdf5File(path).headers
    return headers[pick_key(sorted(headers))]


HDF5 = Format(
    name="HDF5",
    suffixes=(".h5", ".hdf5"),
    read=read_hdf5,
    header=hdf5_header,
    open_arrays=Hdf5File,
    open_lazy=open_hdf5,
    takes_axes=True,
    packages=("h5py",),
    extra="hdf5",
)
