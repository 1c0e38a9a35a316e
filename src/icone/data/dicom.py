"""Reading a folder of DICOM slices as one volume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from icone.data.source import Array, Sample
from icone.errors import InputError

SUFFIXES = (".dcm", ".dicom")


def is_dicom(path: Path) -> bool:
    """Whether a file without a suffix carries DICOM's mark, `DICM` after 128 bytes."""
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def read_series(files: list[Path]) -> Sample:
    """The slices of one series as (1, D, H, W), ordered along the slice normal, in the rescaled units.

    The spacing is the slices' median distance, then the distance of rows and of columns.
    """
    import pydicom

    slices = [pydicom.dcmread(file) for file in files]
    _check_one_series(slices)
    heights = _heights(slices)
    order = np.argsort(heights, kind="stable")
    volume = np.stack([_rescaled(slices[i]) for i in order])
    return Sample(volume[None], _spacing(slices[0], heights[order]))


def _check_one_series(slices: list[Any]) -> None:
    series = {str(s.get("SeriesInstanceUID", "")) for s in slices}
    if len(series) > 1:
        raise InputError(f"it mixes {len(series)} DICOM series; put each series into a folder of its own")
    if any(int(s.get("NumberOfFrames", 1)) > 1 for s in slices):
        raise InputError("it is a multi-frame DICOM file; convert it to NIfTI first, as dcm2niix does")
    if len({(s.get("Rows"), s.get("Columns")) for s in slices}) > 1:
        raise InputError("its DICOM slices differ in size, so they are not one volume")


def _heights(slices: list[Any]) -> Array:
    """Position of every slice along the normal of the slice plane, in millimetres."""
    if len(slices) == 1:
        return np.zeros(1)
    if any("ImagePositionPatient" not in s or "ImageOrientationPatient" not in s for s in slices):
        raise InputError("its DICOM slices do not say where they lie (ImagePositionPatient is missing)")
    row, column = np.array(slices[0].ImageOrientationPatient, dtype=float).reshape(2, 3)
    positions = np.array([s.ImagePositionPatient for s in slices], dtype=float)
    heights: Array = positions @ np.cross(row, column)
    if len(np.unique(heights.round(3))) < len(heights):
        raise InputError("two of its DICOM slices lie at the same position; it may mix several acquisitions")
    return heights


def _rescaled(piece: Any) -> Array:
    pixels: Array = piece.pixel_array
    if pixels.ndim != 2:
        raise InputError(f"its DICOM slices have shape {pixels.shape}, but only gray slices make a volume")
    slope, intercept = float(piece.get("RescaleSlope", 1)), float(piece.get("RescaleIntercept", 0))
    return pixels.astype(np.float32) * np.float32(slope) + np.float32(intercept)


def _spacing(first: Any, heights: Array) -> tuple[float, ...] | None:
    between = float(np.median(np.diff(heights))) if len(heights) > 1 else first.get("SliceThickness")
    if "PixelSpacing" not in first or not between:
        return None
    return (float(between), *(float(step) for step in first.PixelSpacing))
