"""What the axes of one sample mean: as the user names them (`--axes`), as its file does, or by a guess with a note.

And which array of a file holds the samples, where there are several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from icone.data.formats.base import Array, Sample
from icone.errors import InputError

FEW_SLICES = 48
"""A first axis shorter than this may as well be the channels of an image, as in multiplexed microscopy."""
FOURTH_AXIS = (
    "the {} volumes along the fourth axis are taken for channels; if they are points in time, "
    "--axes XYZT takes their mean"
)
"""The note about a volume of four axes in the medical formats."""
MAX_CHANNELS = 4
"""The longest axis that is taken for channels where a bare array leaves it open."""
NUMPY_KEYS = ("image", "volume", "images", "data", "x", "arr_0")
"""Names under which a file with several arrays holds the data."""


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
        raise InputError(f"--axes {axes} names {len(axes)} axes, but one sample has the shape {array.shape}")
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
            f"--axes {axes}: name every axis of one sample once, of C (channels), T (time), Z, Y and X; "
            "for example CYX or ZYX"
        )
    depth = "Z" if "Z" in axes else "T"
    return "".join(name for name in order.replace("Z", depth) if name in axes)


def spacing_along(steps: Mapping[str, float], spatial: str) -> tuple[float, ...] | None:
    """Millimetres along the spatial axes; None where one of them is not known, as that of time."""
    found = tuple(steps.get(name, 0.0) for name in spatial)
    return found if all(0 < step < math.inf for step in found) else None


def slices_note(shape: tuple[int, ...]) -> tuple[str, ...]:
    """What to say where three axes without names are taken for a volume of few slices."""
    if len(shape) != 3 or shape[0] >= FEW_SLICES:
        return ()
    return (
        f"one sample of the shape {shape} is taken for a volume of {shape[0]} slices; "
        "if these are channels of an image, give --axes CYX",
    )


def bare_sample(array: Array, axes: str | None) -> Sample:
    """One image or volume from an array that does not say what its axes are."""
    if axes is not None:
        return Sample(by_axes(array, axes))
    sample = channels_first(array)
    return Sample(sample, notes=slices_note(array.shape) if sample.ndim == 4 else ())


def pick_key(keys: list[str]) -> str:
    """The name of the data among the arrays of a file.

    >>> pick_key(["labels", "images"])
    'images'
    """
    if len(keys) == 1:
        return keys[0]
    for key in NUMPY_KEYS:
        if key in keys:
            return key
    raise InputError(f"it holds the arrays {', '.join(keys)}; name the one with the data 'image' or 'images'")


def channels_first(array: Array) -> Array:
    """Bring one image or volume to (C, *spatial) by its shape alone; `channel_axis` is the rule.

    >>> channels_first(np.zeros((32, 40, 3))).shape, channels_first(np.zeros((20, 32, 40))).shape
    ((3, 32, 40), (1, 20, 32, 40))
    """
    axis = channel_axis(array.shape)
    return array[None] if axis is None else np.moveaxis(array, axis, 0)


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Which axis of one sample's shape holds channels: 0, -1, or None.

    Two axes: none. Three: the last if it is 1 to 4 long, else the first if it is, else none (a volume).
    Four: the shorter of the last and the first (the last if they are equal).
    """
    if len(shape) == 2:
        return None
    if len(shape) == 3:
        return next((axis for axis in (-1, 0) if shape[axis] <= MAX_CHANNELS), None)
    if len(shape) == 4:
        return -1 if shape[-1] <= shape[0] else 0
    raise InputError(f"one sample has the shape {shape}, but it should have two to four axes")


def axis_letters(shape: tuple[int, ...], axes: str | None) -> str:
    """A letter for every axis of one sample: as the user names those that are longer than 1, or by `channel_axis`.

    >>> axis_letters((512, 512, 3), None), axis_letters((20, 512, 512), None), axis_letters((1, 5, 64, 64), "CYX")
    ('YXC', 'ZYX', '_CYX')
    """
    if axes is None:
        channel = channel_axis(shape)
        if channel is None:
            return "ZYX"[-len(shape) :]
        spatial = "ZYX"[-(len(shape) - 1) :]
        return "C" + spatial if channel == 0 else spatial + "C"
    spatial_axes(axes)  # refuses what are no axes
    if len(axes) == len(shape):
        return axes
    if len(axes) != sum(n > 1 for n in shape):
        raise InputError(f"--axes {axes} names {len(axes)} axes, but it has the shape {shape}")
    letters = iter(axes)
    return "".join(next(letters) if n > 1 else "_" for n in shape)
