"""What the axes of one sample mean: as the user names them (`--axes`), as its file does, or by a guess with a note."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from icone.data.formats.base import Array
from icone.errors import InputError

FEW_SLICES = 48
"""A first or last axis shorter than this may as well be the channels of an image, as in multiplexed microscopy."""
FOURTH_AXIS = (
    "the {} volumes along the fourth axis are taken for channels; if they are points in time, "
    "--axes=XYZT takes their mean"
)
"""The note about a volume of four axes in the medical formats."""


def by_axes(array: Array, axes: str, order: str = "ZYX") -> Array:
    """One sample whose axes are named, as (C, *spatial), the spatial axes in the given order.

    C are channels. T, time, is the depth where there is no Z; where there is one, the mean over time is taken.

    >>> by_axes(np.zeros((32, 40, 5)), "YXC").shape, by_axes(np.zeros((9, 32, 40)), "TYX").shape
    ((5, 32, 40), (1, 9, 32, 40))
    >>> by_axes(np.zeros((8, 9, 10, 20)), "XYZT", order="XYZ").shape
    (1, 8, 9, 10)
    """
    spatial = spatial_axes(axes, order)
    if len(axes) != array.ndim:
        raise InputError(f"--axes={axes} names {len(axes)} axes, but one sample has the shape {array.shape}")
    if "T" in axes and "T" not in spatial:
        array = array.mean(axis=axes.index("T"), dtype=np.float32)
        axes = axes.replace("T", "")
    array = array.transpose([axes.index(name) for name in ("C" if "C" in axes else "") + spatial])
    return array if "C" in axes else array[None]


def spatial_axes(axes: str, order: str = "ZYX") -> str:
    """Those of the named axes that remain beside the channels, in the given order.

    >>> spatial_axes("CYX"), spatial_axes("TCYX"), spatial_axes("XYZT", "XYZ")
    ('YX', 'TYX', 'XYZ')
    """
    if len(set(axes)) < len(axes) or not {"Y", "X"} <= set(axes) <= set("CTZYX"):
        raise InputError(
            f"--axes={axes}: name every axis of one sample once, of C (channels), T (time), Z, Y and X; "
            "for example CYX or ZYX"
        )
    depth = "Z" if "Z" in axes else "T"
    return "".join(name for name in order.replace("Z", depth) if name in axes)


ORIENTATION = 274
"""The tag that says how an image is to be turned, in TIFF files and in the EXIF data of others."""
FLIPPED = {2: (-1,), 3: (-2, -1), 4: (-2,), 5: (), 6: (-1,), 7: (-2, -1), 8: (-2,)}
"""Axes to flip by orientation; from 5 on after rows and columns have changed places."""


def upright(array: Array, orientation: object) -> Array:
    """Stored pixels (…, rows, columns) as they are to be seen, by the tag `ORIENTATION` (TIFF 6.0, EXIF 2.3).

    >>> upright(np.array([[1, 2, 3]]), 6).tolist()
    [[1], [2], [3]]
    """
    if not isinstance(orientation, int) or orientation not in FLIPPED:
        return array
    turned = np.swapaxes(array, -1, -2) if orientation >= 5 else array
    return np.ascontiguousarray(np.flip(turned, FLIPPED[orientation]))


def spacing_along(steps: Mapping[str, float], spatial: str) -> tuple[float, ...] | None:
    """Millimetres along the spatial axes; None where one of them is not known, as that of time."""
    found = tuple(steps.get(name, 0.0) for name in spatial)
    return found if all(0 < step < math.inf for step in found) else None


def slices_note(shape: tuple[int, ...]) -> tuple[str, ...]:
    """What to say where three axes without names are taken for a volume, and the first or the last may be channels.

    >>> slices_note((32, 32, 8))[0].partition("; ")[2]
    'if the 8 along the last axis are channels of an image, give --axes=YXC'
    """
    if len(shape) != 3 or min(shape[0], shape[2]) >= FEW_SLICES:
        return ()
    taken = f"one sample of the shape {shape} is taken for a volume of {shape[0]} slices"
    if shape[2] < min(shape[:2]):
        return (f"{taken}; if the {shape[2]} along the last axis are channels of an image, give --axes=YXC",)
    return (f"{taken}; if these are channels of an image, give --axes=CYX",) if shape[0] < FEW_SLICES else ()
