"""TIFF images and stacks, with the spacing that OME-TIFF and ImageJ write, through tifffile."""

from __future__ import annotations

import contextlib
import math
import weakref
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from icone.data.formats.axes import ORIENTATION, by_axes, slices_note, spacing_along, spatial_axes, upright
from icone.data.formats.base import Array, Format, Header, Sample, colour_by_names
from icone.data.formats.lazy import LazyImage, RawArray
from icone.data.formats.npy import axis_letters
from icone.data.formats.pillow import drop_alpha
from icone.errors import InputError, optional, printable


def read_tiff(path: Path, axes: str | None = None) -> Sample:
    """A TIFF as (C, H, W), or as (C, D, H, W) where it has several pages; with its spacing, if it says so.

    `axes` names the axes of the stored array, those of length 1 aside; else the file says what they are, or several
    pages are taken for slices. A sample that the file declares as opacity is applied to 8-bit colour or gray and
    dropped. All other samples are channels: writers declare the fourth of four as opacity without being asked, and with
    16 bits it is a measurement. Pages are turned as their orientation says, unless `axes` gives their rows and columns
    other names.
    """
    import tifffile

    with tifffile.TiffFile(path) as file:
        _check_complete(file)
        series, first, count = file.series[0], file.pages.first, len(file.series)
        has_opacity = not axes and _has_opacity(file)
        array, stored = _without_ones(np.asarray(series.asarray()), str(series.axes))
        photometric = int(first.photometric)
        steps, names, orientation = _steps(file), _channel_names(file), _orientation(file)
    spatial = spatial_axes(axes) if axes else _spatial_of(stored)
    sample = by_axes(array, axes) if axes else _arrange(array, stored, spatial)
    if has_opacity:
        sample = drop_alpha(sample)
    if not axes or [axes.find(name) for name in "YX"] == [stored.find(name) for name in "YX"]:
        sample = upright(sample, orientation)
        if orientation >= TURNED:
            steps = {{"Y": "X", "X": "Y"}.get(name, name): step for name, step in steps.items()}
    names = names if len(names) == len(sample) else ()
    return Sample(
        sample,
        spacing_along(steps, spatial),
        is_colour=_is_colour(len(sample), _colours(stored, photometric), photometric, names, axes),
        names=names,
        notes=_notes(spatial, sample.shape, count, photometric, axes),
    )


def _colours(stored: str, photometric: int) -> int | None:
    """How many samples of a pixel are its colour, where the file says so."""
    return COLOURS.get(photometric) if "S" in stored and "C" not in stored else None


def _has_opacity(file: Any) -> bool:
    """Whether the last sample of the pixels is an opacity of 8 bits, which is to be applied."""
    series, first = file.series[0], file.pages.first
    stored, extra = str(series.axes), [int(kind) for kind in first.extrasamples]
    samples = math.prod(n for name, n in zip(stored, series.shape, strict=True) if name in "SC")
    is_declared = extra in ([1], [2]) and samples - 1 == _colours(stored, int(first.photometric))
    return is_declared and np.dtype(series.dtype) == np.uint8


def _notes(spatial: str, shape: tuple[int, ...], count: int, photometric: int, axes: str | None) -> tuple[str, ...]:
    """What was guessed or left out of a file that holds `count` images; `shape` is (C, *spatial)."""
    notes = [] if axes else _guesses(spatial, shape)
    if count > 1:
        notes.append(f"the first image of a file is read, of the {count} that it holds")
    if photometric == WHITE_IS_ZERO and not axes:
        notes.append("0 is white here (photometric interpretation WhiteIsZero): the values are taken as they are")
    return tuple(notes)


def _is_colour(
    channels: int, colours: int | None, photometric: int, names: tuple[str, ...], axes: str | None
) -> bool | None:
    """`Sample.is_colour`: by the photometric interpretation (RGB, or gray of which there are three), then by names."""
    if channels == 3 == colours and not axes:
        return True
    return False if channels == 3 and COLOURS.get(photometric) == 1 else colour_by_names(names)


def _guesses(spatial: str, shape: tuple[int, ...]) -> list[str]:
    """What the depth was taken for where the file does not call it Z; `shape` is (C, *spatial)."""
    if len(spatial) == 2 or spatial[0] == "Z":
        return []
    if spatial[0] == "T":
        return [f"{shape[1]} points in time take the place of the depth; if they are channels, give --axes=CYX"]
    return list(slices_note(shape[1:])) if shape[0] == 1 else []


COLOURS = {0: 1, 1: 1, 2: 3, 6: 3}
"""Channels of a TIFF by its photometric interpretation: gray, gray, RGB, YCbCr."""
TURNED = 5
"""From this orientation on rows and columns change places."""
WHITE_IS_ZERO = 0
"""The photometric interpretation in which low values are bright."""
MILLIMETRES = {
    "m": 1e3, "cm": 10.0, "mm": 1.0, "um": 1e-3, "micron": 1e-3, "nm": 1e-6, "pm": 1e-9, "å": 1e-7, "in": 25.4,
    "inch": 25.4,
}  # fmt: skip
"""Units of length in TIFF metadata, in lower case."""


def _steps(file: Any) -> dict[str, float]:
    """Millimetres per voxel along those of Z, Y and X for which OME or ImageJ metadata gives a step with a unit."""
    found = {}
    try:
        steps = _ome_steps(file.ome_metadata) if file.is_ome else _imagej_steps(file) if file.is_imagej else {}
    except (KeyError, TypeError, ValueError, ZeroDivisionError, ElementTree.ParseError):  # it does not say
        return {}
    for axis, (step, unit) in steps.items():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            found[axis] = float(step) * millimetres(str(unit))
    return found


def _orientation(file: Any) -> int:
    """How the first page is to be turned; 1 where it says nothing."""
    tag = file.pages.first.tags.get(ORIENTATION)
    return tag.value if tag is not None and isinstance(tag.value, int) else 1


def _channel_names(file: Any) -> tuple[str, ...]:
    """The names of the channels in OME metadata, where all of them have one."""
    try:
        pixels = ElementTree.fromstring(file.ome_metadata).find(".//{*}Pixels") if file.is_ome else None
    except ElementTree.ParseError:
        return ()
    names = [] if pixels is None else [channel.get("Name") or "" for channel in pixels.findall("{*}Channel")]
    return tuple(map(printable, names)) if all(names) else ()


def millimetres(unit: str) -> float:
    """The length of a unit; both signs for micro are in use, and ImageJ writes one as an escape."""
    plain = unit.strip().lower().replace("\\u00b5", "u").replace("\u00b5", "u").replace("\u03bc", "u")
    return MILLIMETRES[plain.removesuffix("s")]


def _ome_steps(xml: str) -> dict[str, tuple[Any, Any]]:
    """Step and unit along each axis, from the first image's PhysicalSizeX, Y and Z; their unit is µm by default."""
    pixels = ElementTree.fromstring(xml).find(".//{*}Pixels")
    found = {} if pixels is None else pixels.attrib
    sizes = {axis: f"PhysicalSize{axis}" for axis in "ZYX"}
    return {axis: (found[key], found.get(f"{key}Unit", "um")) for axis, key in sizes.items() if key in found}


def _imagej_steps(file: Any) -> dict[str, tuple[Any, Any]]:
    """Step and unit along each axis, from ImageJ's `spacing` and the TIFF's pixels per unit."""
    about, tags = file.imagej_metadata, file.pages.first.tags
    steps = {"Z": (about["spacing"], about["unit"])} if "spacing" in about else {}
    for axis, tag in (("Y", "YResolution"), ("X", "XResolution")):
        pixels, per = tags[tag].value
        steps[axis] = (per / pixels, about["unit"])
    return steps


def _check_complete(file: Any) -> None:
    """tifffile reads the pages that a cut file still has; the link to a next page betrays a missing one."""
    file.filehandle.seek(file.pages.next_page_offset)
    if any(file.filehandle.read(file.tiff.offsetsize)):
        raise InputError("it is truncated: it announces more pages than it holds")


def _without_ones(array: Array, axes: str) -> tuple[Array, str]:
    """An array without those axes of length 1 that are neither pixels nor channels, and the names of the others."""
    dropped = tuple(i for i, name in enumerate(axes) if name not in "YXSC" and array.shape[i] == 1)
    return array.squeeze(dropped), "".join(name for i, name in enumerate(axes) if i not in dropped)


def _spatial_of(axes: str) -> str:
    """Depth, if there is one, Y and X: S and C are channels, any other axis is the depth."""
    depth = [name for name in axes if name not in "YXSC"]
    if len(depth) > 1:
        way_out = f"; --axes={axes} takes the mean over time" if {"T", "Z"} == set(depth) and "S" not in axes else ""
        raise InputError(f"it has the axes {axes}, but only one besides Y, X and channels can be the depth{way_out}")
    return "".join([*depth, "Y", "X"])


def _arrange(array: Array, axes: str, spatial: str) -> Array:
    """Bring TIFF axes to (C, [D,] H, W)."""
    channels = [i for i, name in enumerate(axes) if name in "SC"]
    array = array.transpose(*channels, *(axes.index(name) for name in spatial))
    return array.reshape(-1, *array.shape[len(channels) :])


def open_tiff(path: Path, axes: str | None = None, key: str = "") -> LazyImage:
    """A TIFF with its lower resolutions, of which regions are read; what is compressed or tiled needs zarr."""
    import tifffile

    file = tifffile.TiffFile(path)
    try:
        image = _lazy_image(file, path, axes)
    except BaseException:
        file.close()
        raise
    weakref.finalize(image, file.close)
    return image


def _lazy_image(file: Any, path: Path, axes: str | None) -> LazyImage:
    _check_complete(file)
    series, first = file.series[0], file.pages.first
    stored, shape = str(series.axes), tuple(series.shape)
    letters = axis_letters(shape, axes) if axes else stored
    photometric, steps = int(first.photometric), _steps(file)
    image = LazyImage(
        _regions(file, path, 0),
        letters,
        steps={name: 1000 * step for name, step in steps.items()},
        unit="micrometer" if steps else None,
        names=_channel_names(file),
    )
    image.is_colour = _is_colour(image.channels, _colours(stored, photometric), photometric, image.names, axes)
    image.guesses = _notes(image.spatial, image.shape, len(file.series), photometric, axes)
    if (orientation := _orientation(file)) != 1:
        image.notes += (
            f"tiles and their maps lie as the TIFF stores them: its orientation tag ({orientation}) is not applied",
        )
    if not axes and _has_opacity(file):
        image.notes += (
            f"the opacity of the TIFF is channel {image.channels} of its tiles, and is not applied to the others",
        )
    image.coarser = tuple(
        LazyImage(_regions(file, path, number), letters, spatial=image.spatial)
        for number, level in enumerate(series.levels)
        if number > 0 and len(level.shape) == len(shape)
    )
    return image


def _regions(file: Any, path: Path, level: int) -> Any:
    """The array of a resolution of the first series: as it lies in the file, or decoded piece by piece."""
    series = file.series[0].levels[level]
    if series.dataoffset is not None:
        dtype = np.dtype(file.byteorder + series.dtype.char)
        return RawArray(path, int(series.dataoffset), tuple(series.shape), dtype)
    with optional("zarr", "reading regions of a TIFF that is compressed or tiled"):
        import zarr
    return zarr.open(file.series[0].aszarr(level=level), mode="r")


def tiff_header(path: Path) -> Header:
    """What the first series of a TIFF declares."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        return Header(tuple(series.shape), np.dtype(series.dtype))


TIFF = Format(
    name="TIFF",
    suffixes=(".tif", ".tiff"),
    read=read_tiff,
    header=tiff_header,
    open_lazy=open_tiff,
    takes_axes=True,
    packages=("tifffile",),
    extra="tiff",
    loggers=("tifffile",),
)
