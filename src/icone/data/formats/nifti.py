"""NIfTI volumes, plain or in gzip, through nibabel."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.axes import FOURTH_AXIS, by_axes, spacing_along, spatial_axes
from icone.data.formats.base import Format, Header, Sample
from icone.errors import InputError

DEFLATE_RATIO = 1032
"""No gzip stream grows by more than this when it is decompressed."""

MILLIMETRES = {"meter": 1e3, "micron": 1e-3}
"""Units of length that a header may name besides millimetres; where it names none, they are millimetres."""


def read_nifti(path: Path, axes: str | None = None) -> Sample:
    """A NIfTI volume as (C, X, Y, Z), turned to right, anterior, superior; a fourth axis is channels.

    `axes` says otherwise: XYZT takes the mean over time, XYC is an image with channels.

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
    if axes is None and array.ndim not in (3, 4):
        way_out = "; if it is an image, give --axes=XY" if array.ndim == 2 else ""
        raise InputError(f"it has shape {array.shape}, but a volume has three axes, or four with channels{way_out}")
    named = axes or "XYZC"[: array.ndim]
    unit = MILLIMETRES.get(image.header.get_xyzt_units()[0], 1.0)
    steps = {axis: float(step) * unit for axis, step in zip(named, image.header.get_zooms(), strict=False)}
    notes = (FOURTH_AXIS.format(array.shape[-1]),) if axes is None and array.ndim == 4 else ()
    sample = by_axes(array, named, order="XYZ")
    return Sample(sample, spacing_along(steps, spatial_axes(named, "XYZ")), notes=notes)


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
    takes_axes=True,
    packages=("nibabel",),
    extra="nifti",
    loggers=("nibabel.global",),
)
