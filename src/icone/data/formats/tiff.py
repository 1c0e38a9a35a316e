"""TIFF images and stacks, with the spacing that OME-TIFF and ImageJ write, through tifffile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from icone.data.formats.base import Array, Format, Header, Sample
from icone.data.formats.pillow import drop_alpha
from icone.errors import InputError


def read_tiff(path: Path) -> Sample:
    """A TIFF as (C, H, W), or as (C, D, H, W) where it has several pages; then with its spacing, if it says so.

    A sample that the file declares as opacity is applied to 8-bit colour or gray and dropped. All other samples are
    channels: writers declare the fourth of four as opacity without being asked, and with 16 bits it is a measurement.
    """
    import tifffile

    with tifffile.TiffFile(path) as file:
        _check_complete(file)
        series, first = file.series[0], file.pages.first
        array, axes = np.asarray(series.asarray()), str(series.axes)
        photometric, extra = int(first.photometric), [int(kind) for kind in first.extrasamples]
        spacing = _tiff_spacing(file)
    sample = _arrange(array, axes)
    colours = {0: 1, 1: 1, 2: 3, 6: 3}.get(photometric) if "S" in axes and "C" not in axes else None  # gray, RGB, YCbCr
    if array.dtype == np.uint8 and extra in ([1], [2]) and len(sample) - 1 == colours:
        sample = drop_alpha(sample)
    has_depth = "Z" in axes and array.shape[axes.index("Z")] > 1
    return Sample(sample, spacing if has_depth else None, is_colour=len(sample) == 3 == colours)


MILLIMETRES = {
    "m": 1e3, "cm": 10.0, "mm": 1.0, "um": 1e-3, "micron": 1e-3, "nm": 1e-6, "pm": 1e-9, "å": 1e-7, "in": 25.4,
    "inch": 25.4,
}  # fmt: skip
"""Units of length in TIFF metadata, in lower case."""


def _tiff_spacing(file: Any) -> tuple[float, ...] | None:
    """Millimetres per voxel along (Z, Y, X) of an OME-TIFF or an ImageJ TIFF that gives all three with units."""
    try:
        steps = _ome_steps(file.ome_metadata) if file.is_ome else _imagej_steps(file) if file.is_imagej else {}
        spacing = tuple(float(steps[axis][0]) * _millimetres(str(steps[axis][1])) for axis in "ZYX")
    except (KeyError, TypeError, ValueError, ZeroDivisionError, ElementTree.ParseError):  # it does not say
        return None
    return spacing if all(0 < step < math.inf for step in spacing) else None


def _millimetres(unit: str) -> float:
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
    steps = {"Z": (about["spacing"], about["unit"])}
    for axis, tag in (("Y", "YResolution"), ("X", "XResolution")):
        pixels, per = tags[tag].value
        steps[axis] = (per / pixels, about["unit"])
    return steps


def _check_complete(file: Any) -> None:
    """tifffile reads the pages that a cut file still has; the link to a next page betrays a missing one."""
    file.filehandle.seek(file.pages.next_page_offset)
    if any(file.filehandle.read(file.tiff.offsetsize)):
        raise InputError("it is truncated: it announces more pages than it holds")


def _arrange(array: Array, axes: str) -> Array:
    """Bring TIFF axes to (C, [D,] H, W): S and C are channels, any other long axis is depth."""
    dropped = tuple(i for i, name in enumerate(axes) if name not in "YXSC" and array.shape[i] == 1)
    array, axes = array.squeeze(dropped), "".join(a for i, a in enumerate(axes) if i not in dropped)
    depth = [i for i, name in enumerate(axes) if name not in "YXSC"]
    if len(depth) > 1:
        raise InputError(f"it has the axes {axes}, but only one besides Y, X and channels can be the depth")
    channels = [i for i, name in enumerate(axes) if name in "SC"]
    array = array.transpose(*channels, *depth, axes.index("Y"), axes.index("X"))
    return array.reshape(-1, *array.shape[len(channels) :])


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
    packages=("tifffile",),
    extra="tiff",
    loggers=("tifffile",),
)
