"""The shape that a file declares, read and checked against the file before anything is decoded."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.lib.format as npy
from PIL import Image

from icone.data.formats.readers import (
    READERS,
    Reader,
    pick_key,
    read_image,
    read_nifti,
    read_npy,
    read_npz,
    read_tiff,
    suffix_of,
)
from icone.errors import InputError

DEFLATE_RATIO = 1032
"""No gzip stream grows by more than this when it is decompressed."""


PREPARING = 16
"""Bytes for every value of a sample while it is prepared: as float32, scaled, and sorted for its percentiles."""


class Header(NamedTuple):
    """Shape and type of a stored array, known without reading it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array; exact, however large a shape the file declares."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def working_bytes(self) -> int:
        """Memory that one sample takes at most while it is decoded and prepared."""
        return self.nbytes + PREPARING * math.prod(self.shape)


class NpyHeader(NamedTuple):
    """The header of an .npy, and where its values begin."""

    header: Header
    is_fortran_order: bool
    offset: int


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of an .npy from the beginning of a file."""
    is_first_version = npy.read_magic(file) == (1, 0)
    read = npy.read_array_header_1_0 if is_first_version else npy.read_array_header_2_0
    shape, is_fortran_order, dtype = read(file)
    return NpyHeader(Header(shape, dtype), is_fortran_order, file.tell())


def npy_file_header(path: Path) -> NpyHeader:
    """The header of an .npy, whose file is long enough for what it declares."""
    with path.open("rb") as file:
        found = read_npy_header(file)
    _check_size(found.header, path.stat().st_size - found.offset)
    return found


def npz_headers(path: Path) -> dict[str, Header]:
    """The headers of all arrays in an .npz by name; each member is long enough for what it declares."""
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    found = read_npy_header(file)
                _check_size(found.header, member.file_size - found.offset)
                headers[member.filename.removesuffix(".npy")] = found.header
    return headers


def file_header(path: Path) -> Header:
    """What one file declares to hold once it is decoded; an `InputError` where it cannot hold that much."""
    return _HEADERS[READERS[suffix_of(path.name)]](path)


def _check_size(header: Header, most: int) -> None:
    if header.nbytes > most:
        shape = "×".join(map(str, header.shape))
        raise InputError(
            f"its header declares {shape} values of type {header.dtype}, which are more than the file can hold: "
            "it is truncated or damaged"
        )


def _image(path: Path) -> Header:
    with Image.open(path) as image:
        return Header((len(image.getbands()), image.height, image.width), np.dtype(np.uint16))


def _nifti(path: Path) -> Header:
    import nibabel

    image: Any = nibabel.load(path, mmap=False)
    header = Header(tuple(image.shape), image.get_data_dtype())
    _check_size(header, path.stat().st_size * (DEFLATE_RATIO if suffix_of(path.name) == ".nii.gz" else 1))
    is_scaled = (image.dataobj.slope, image.dataobj.inter) != (1, 0)
    return header._replace(dtype=np.dtype(np.float64)) if is_scaled else header


def _tiff(path: Path) -> Header:
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        return Header(tuple(series.shape), np.dtype(series.dtype))


def _npy(path: Path) -> Header:
    return npy_file_header(path).header


def _npz(path: Path) -> Header:
    headers = npz_headers(path)
    return headers[pick_key(list(headers))]


_HEADERS: dict[Reader, Callable[[Path], Header]] = {
    read_image: _image,
    read_nifti: _nifti,
    read_tiff: _tiff,
    read_npy: _npy,
    read_npz: _npz,
}
