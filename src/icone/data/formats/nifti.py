"""NIfTI volumes, plain or in gzip, through nibabel."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.base import Format, Header, Sample
from icone.errors import InputError

DEFLATE_RATIO = 1032
"""No gzip stream grows by more than this when it is decompressed."""


def read_nifti(path: Path) -> Sample:
    """A NIfTI volume as (C, X, Y, Z), turned to right, anterior, superior; a fourth axis is channels.

    The file is read, not mapped: if it is cut meanwhile, a mapped file would end the process.
    """
    import nibabel

    turn: Callable[[Any], Any] = nibabel.as_closest_canonical
    image: Any = nibabel.load(path, mmap=False)
    if _is_compressed(path):
        with gzip.open(path) as stream:
            image = turn(image.from_file_map(image.make_file_map({"image": stream})))
            array = np.asanyarray(image.dataobj)
            while stream.read(2**20):  # gzip checks length and checksum when it comes to the end
                pass
    else:
        image = turn(image)
        array = np.asanyarray(image.dataobj)
    while array.ndim > 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (3, 4):
        raise InputError(f"it has shape {array.shape}, but a volume has three axes, or four with channels")
    spacing = tuple(float(step) for step in image.header.get_zooms()[:3])
    array = array[None] if array.ndim == 3 else np.moveaxis(array, -1, 0)
    return Sample(array, spacing if min(spacing) > 0 else None)


def nifti_header(path: Path) -> Header:
    """What a NIfTI declares; the type is float64 where stored values are scaled."""
    import nibabel

    image: Any = nibabel.load(path, mmap=False)
    header = Header(tuple(image.shape), image.get_data_dtype())
    header.check_size(path.stat().st_size * (DEFLATE_RATIO if _is_compressed(path) else 1))
    is_scaled = (image.dataobj.slope, image.dataobj.inter) != (1, 0)
    return header._replace(dtype=np.dtype(np.float64)) if is_scaled else header


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


NIFTI = Format(
    name="NIfTI",
    suffixes=(".nii", ".nii.gz"),
    read=read_nifti,
    header=nifti_header,
    spatial_dims=3,
    packages=("nibabel",),
    extra="nifti",
    loggers=("nibabel.global",),
)
