"""Zarr stores as arrays of many samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icone.data.formats.base import Format, Header


class ZarrFile:
    """A Zarr array, or a group of them; rows are read piece by piece."""

    def __init__(self, path: Path) -> None:
        import zarr

        opened: Any = zarr.open(str(path), mode="r")
        self._arrays = {"array": opened} if isinstance(opened, zarr.Array) else dict(opened.arrays())
        self.headers = {name: Header(array.shape, array.dtype) for name, array in self._arrays.items()}

    def load(self, key: str) -> Any:
        return self._arrays[key]


ZARR = Format(name="Zarr", suffixes=(".zarr",), open_arrays=ZarrFile, packages=("zarr",), extra="zarr")
