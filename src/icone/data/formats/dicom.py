"""Folders of DICOM slices as volumes, through pydicom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.base import Array, Format, Header, Sample
from icone.errors import InputError, optional

STEP_TOLERANCE = 0.4
"""How far one slice may lie from its place, as a share of the distance between slices.

Positions that are rounded to 0.1 mm move a distance of 0.3 mm by a third; a missing slice doubles it.
"""
PLANE_TOLERANCE = 0.01
"""How far direction cosines may differ between slices, and pixel spacings as a share of themselves."""


def is_dicom(path: Path) -> bool:
    """Whether a file without a suffix carries DICOM's mark, `DICM` after 128 bytes; a DICOMDIR is a list of files."""
    if path.name == "DICOMDIR":
        return False
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def series_header(files: list[Path]) -> Header:
    """What a series holds once it is decoded, by its first slice."""
    with optional("dicom", "reading DICOM"):
        import pydicom

    first = pydicom.dcmread(files[0], stop_before_pixels=True)
    return Header((1, len(files), int(first.Rows), int(first.Columns)), np.dtype(np.float32))


def read_series(files: list[Path]) -> Sample:
    """The slices of one series as (1, D, H, W), ordered along the slice normal, in the rescaled units.

    The spacing is the slices' median distance, then the distance of rows and of columns. The slices must lie in
    parallel planes at equal steps. The steps need not be along the normal: where the gantry was tilted, they are not.
    """
    with optional("dicom", "reading DICOM"):
        import pydicom

    slices = [pydicom.dcmread(file) for file in files]
    _check_one_series(slices)
    _check_planes(slices, files)
    positions, heights = _positions(slices)
    order = np.argsort(heights, kind="stable")
    _check_steps(positions[order], heights[order], [files[i].name for i in order])
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


def _check_planes(slices: list[Any], files: list[Path]) -> None:
    """Refuse slices of different directions or pixel sizes, and name one that differs from the rest."""
    for tag, what in (("ImageOrientationPatient", "orientation"), ("PixelSpacing", "pixel spacing")):
        said = [piece.get(tag) for piece in slices]
        if all(value is None for value in said):
            continue
        if None in said:
            raise InputError(f"its slice {files[said.index(None)].name} does not say its {what}, but others do")
        values = np.array(said, dtype=float)
        usual = np.median(values, axis=0)
        scale = 1.0 if tag == "ImageOrientationPatient" else usual
        off = ~(np.abs(values - usual) <= PLANE_TOLERANCE * scale)  # so written, it refuses NaN too
        if off.any():
            odd = int(off.any(axis=1).argmax())
            raise InputError(
                f"its slice {files[odd].name} has the {what} {_listed(values[odd])} where the others have "
                f"{_listed(usual)}, so they are not one volume; take it out of the folder"
            )


def _check_steps(positions: Array, heights: Array, names: list[str]) -> None:
    """Refuse slices, given in order, whose steps from one to the next are not all alike."""
    if len(names) == 1:
        return
    lost = ~np.isfinite(positions).all(axis=1)
    if lost.any():
        raise InputError(f"its slice {names[int(lost.argmax())]} has a position that is no number; take it out")
    same = np.flatnonzero(np.diff(heights) < 1e-3)
    if same.size:
        pair = f"{names[same[0]]} and {names[same[0] + 1]}"
        raise InputError(f"its slices {pair} lie at the same position; it may mix several acquisitions")
    steps = np.diff(positions, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    usual = steps[np.argsort(lengths)[(len(steps) - 1) // 2]]  # of two steps the smaller one: a gap is the larger
    off = np.linalg.norm(steps - usual, axis=1)
    widest = int(off.argmax())
    if off[widest] > STEP_TOLERANCE * np.linalg.norm(usual):
        raise InputError(
            f"its slices {names[widest]} and {names[widest + 1]} lie {lengths[widest]:.6g} mm apart, the "
            f"others {np.linalg.norm(usual):.6g} mm: slices are missing, or one does not belong there; "
            "complete the series or take that slice out"
        )


def _listed(values: Array) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _positions(slices: list[Any]) -> tuple[Array, Array]:
    """Position of every slice, (N, 3), and its part along the normal of the slice plane, (N,), in millimetres."""
    if len(slices) == 1:
        return np.zeros((1, 3)), np.zeros(1)
    if any("ImagePositionPatient" not in s or "ImageOrientationPatient" not in s for s in slices):
        raise InputError("its DICOM slices do not say where they lie (ImagePositionPatient is missing)")
    row, column = np.array(slices[0].ImageOrientationPatient, dtype=float).reshape(2, 3)
    positions = np.array([s.ImagePositionPatient for s in slices], dtype=float)
    return positions, positions @ np.cross(row, column)


def _rescaled(piece: Any) -> Array:
    pixels: Array = piece.pixel_array
    if pixels.ndim != 2:
        raise InputError(f"its DICOM slices have shape {pixels.shape}, but only gray slices make a volume")
    slope, intercept = float(piece.get("RescaleSlope", 1)), float(piece.get("RescaleIntercept", 0))
    return pixels.astype(np.float32) * np.float32(slope) + np.float32(intercept)


def _spacing(first: Any, heights: Array) -> tuple[float, ...] | None:
    between = float(np.median(np.diff(heights))) if len(heights) > 1 else first.get("SliceThickness")
    if first.get("PixelSpacing") is None or not between:
        return None
    spacing = (float(between), *(float(step) for step in first.PixelSpacing))
    return spacing if min(spacing) > 0 else None


DICOM = Format(
    name="DICOM",
    suffixes=(".dcm", ".dicom"),
    read=read_series,
    header=series_header,
    spatial_dims=3,
    is_series=True,
    has_mark=is_dicom,
    packages=("pydicom",),
    extra="dicom",
    loggers=("pydicom",),
)
