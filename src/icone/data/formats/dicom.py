"""Folders of DICOM slices and multi-frame files as volumes, single DICOM files as images, through pydicom."""

from __future__ import annotations

from collections.abc import Callable
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
    first = _read(files[0], stop_before_pixels=True)
    count = _frames(first) if len(files) == 1 else len(files)
    plane = (int(first.Rows), int(first.Columns))
    if count == 1:
        return Header((int(first.get("SamplesPerPixel", 1)), *plane), np.dtype(np.float32))
    return Header((1, count, *plane), np.dtype(np.float32))


def series_samples(files: list[Path]) -> list[list[Path]] | str:
    """The files of every sample in a folder: one series or several, or as many volumes as there are multi-frame files.

    The first and the last file tell which: to read the header of every slice of a large set takes long, and slices of
    another series between the two are found when the volume is read. A folder with nothing but localizers (scouts) has
    no sample.
    """
    try:
        first, last = _kind(files[0]), _kind(files[-1])
        if _is_localizer(first) and all(_is_localizer(_kind(file)) for file in files[1:]):
            return "holds localizers (scouts) only"
        if _frames(first) > 1:
            return [[file] for file in files]
        return [files] if _series(first) == _series(last) else _by_series(files)
    except InputError:
        raise
    except Exception:  # pydicom raises anything; reading the series says what is wrong
        return [files]


def _by_series(files: list[Path]) -> list[list[Path]]:
    """The files of every series. Localizers go with the first of them, whose reader leaves them out and says so."""
    found: dict[str, list[Path]] = {}
    localizers = []
    for file in files:
        kind = _kind(file)
        if _is_localizer(kind):
            localizers.append(file)
        else:
            found.setdefault(_series(kind), []).append(file)
    first, *others = found.values()
    return [sorted([*first, *localizers]), *others]


def read_series(files: list[Path]) -> Sample:
    """The slices of one series as (1, D, H, W), ordered along the slice normal, in the rescaled units.

    A single slice is an image, (C, H, W), as an X-ray is.

    The spacing is the slices' median distance, then the distance of rows and of columns. The slices must lie in
    parallel planes at equal steps. The steps need not be along the normal: where the gantry was tilted, they are not.
    The frames of one multi-frame file are such slices. Localizers among other slices are left out.

    Headers are read first and pixels then, slice by slice, so that little more than the volume is in memory.
    """
    everything = [(file, _read(file, stop_before_pixels=True)) for file in files]
    chosen = [(file, one) for file, one in everything if not _is_localizer(one)] or everything
    files, slices = [file for file, _ in chosen], [one for _, one in chosen]
    left_out = len(everything) - len(chosen)
    notes = (f"localizers (scouts) among its {len(everything)} files are left out: {left_out}",) if left_out else ()
    _check_one_series(slices)
    if len(slices) == 1:
        only = _read(files[0])
        found = _read_frames(only) if _frames(only) > 1 else _read_image(only)
        return found._replace(notes=(*found.notes, *notes))
    found = _volume(slices, files, lambda number: _pixels(_read(files[number])))
    return found._replace(notes=(*found.notes, *notes))


def _read_image(file: Any) -> Sample:
    """One file with one frame: colours as they are, gray in the rescaled units, bright where it is shown bright."""
    pixels = _decoded(file)
    rows = file.get("PixelSpacing") or file.get("ImagerPixelSpacing")
    spacing = tuple(map(float, rows)) if rows else None
    if pixels.ndim == 3:
        return Sample(np.moveaxis(pixels, -1, 0), spacing, is_colour=pixels.shape[-1] == 3)
    return _turned(Sample(_rescaled(file, pixels)[None], spacing), file)


def _turned(sample: Sample, file: Any) -> Sample:
    """Gray values that are bright where they are shown bright."""
    if file.get("PhotometricInterpretation") != "MONOCHROME1":
        return sample
    array = sample.array
    return sample._replace(array=array.max() + array.min() - array, notes=(*sample.notes, TURNED))


TURNED = "its low values are the bright ones (MONOCHROME1): they are turned around"


def _decoded(file: Any) -> Array:
    """The pixels of a file; where they are numbers of a palette, its colours, or one gray where all of them are."""
    pixels: Array = file.pixel_array
    if file.get("PhotometricInterpretation") != PALETTE:
        return pixels
    from pydicom.pixels.processing import apply_color_lut

    colours: Array = apply_color_lut(pixels, file)
    return colours[..., 0] if (colours == colours[..., :1]).all() else colours


PALETTE = "PALETTE COLOR"


def _volume(slices: list[Any], files: list[Path], pixels: Callable[[int], Array]) -> Sample:
    """Slices, each with its own description, as one volume; `pixels` gives those of a slice by its number."""
    _check_planes(slices, files)
    positions, heights = _positions(slices)
    order = np.argsort(heights, kind="stable")
    _check_steps(positions[order], heights[order], [files[i].name for i in order])
    first = _rescaled(slices[order[0]], pixels(order[0]))
    volume: Array = np.empty((len(order), *first.shape), first.dtype)
    volume[0] = first
    for place, number in enumerate(order[1:], start=1):
        volume[place] = _rescaled(slices[number], pixels(number))
    return _turned(Sample(volume[None], _spacing(slices[0], heights[order])), slices[0])


def _read_frames(file: Any) -> Sample:
    """The frames of one file: by their positions where it says them, else in their order."""
    pixels = _decoded(file)
    if pixels.ndim == 4:
        notes = (UNPLACED.format(len(pixels)),)
        return Sample(np.moveaxis(pixels, -1, 0), is_colour=pixels.shape[-1] == 3, notes=notes)
    frames = [_frame(file, number) for number in range(len(pixels))]
    if any("ImagePositionPatient" in frame for frame in frames):
        names = [Path(f"frame {number}") for number in range(1, len(frames) + 1)]
        return _volume(frames, names, pixels.__getitem__)
    volume = np.stack([_rescaled(frame, one) for frame, one in zip(frames, pixels, strict=True)])
    spacing = _spacing(frames[0], np.zeros(1))
    return _turned(Sample(volume[None], spacing, notes=(UNPLACED.format(len(pixels)),)), file)


OF_ALL_FRAMES = (
    "RescaleSlope", "RescaleIntercept", "PixelSpacing", "SliceThickness", "ImageOrientationPatient",
    "PhotometricInterpretation",
)  # fmt: skip


def _frame(file: Any, number: int) -> Any:
    """What a multi-frame file says about one frame: of itself, of all frames, of this one."""
    from pydicom import Dataset

    frame = Dataset()
    for tag in OF_ALL_FRAMES:
        if tag in file:
            setattr(frame, tag, file[tag].value)
    shared, each = (file.get(f"{kind}FunctionalGroupsSequence") for kind in ("Shared", "PerFrame"))
    for group in (shared[0] if shared else (), each[number] if each else ()):
        for element in group:
            if element.VR == "SQ" and element.value:
                frame.update(element.value[0])
    return frame


UNPLACED = "{} frames of a file do not say where they lie: they are the slices of a volume, in their order"


def _read(path: Path, **settings: Any) -> Any:
    with optional("dicom", "reading DICOM"):
        import pydicom

    return pydicom.dcmread(path, **settings)


def _kind(path: Path) -> Any:
    return _read(path, stop_before_pixels=True, specific_tags=["ImageType", "NumberOfFrames", "SeriesInstanceUID"])


def _series(file: Any) -> str:
    return str(file.get("SeriesInstanceUID", ""))


def _frames(file: Any) -> int:
    return int(file.get("NumberOfFrames") or 1)


def _is_localizer(file: Any) -> bool:
    return "LOCALIZER" in (file.get("ImageType") or ())


def _check_one_series(slices: list[Any]) -> None:
    series = {_series(piece) for piece in slices}
    if len(series) > 1:
        raise InputError(f"it mixes {len(series)} DICOM series; put each series into a folder of its own")
    if len(slices) > 1 and any(_frames(s) > 1 for s in slices):
        raise InputError("it mixes single slices with multi-frame DICOM files; put each kind into a folder of its own")
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


def _pixels(piece: Any) -> Array:
    pixels = _decoded(piece)
    if pixels.ndim != 2 and _frames(piece) == 1:
        raise InputError(f"its DICOM slices have shape {pixels.shape}, but only gray slices make a volume")
    return pixels


def _rescaled(piece: Any, pixels: Array) -> Array:
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
    is_series=True,
    samples=series_samples,
    has_mark=is_dicom,
    packages=("pydicom",),
    extra="dicom",
    loggers=("pydicom",),
)
