"""Python objects as data sets: arrays and tensors, lists of arrays or PIL images, map-style torch Datasets."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from icone.data.formats.axes import ORIENTATION, by_axes, slices_note, spatial_axes, upright
from icone.data.formats.npy import MAX_CHANNELS, channel_axis, channels_first
from icone.data.formats.pillow import pixels
from icone.data.sources.base import Array, Sample, Source
from icone.errors import InputError, one_line, printable

IMAGE_KEYS = ("image", "img", "volume", "x", "pixel_values")
"""Names under which an item of a Dataset that is a dictionary holds its sample."""
LABEL_ATTRIBUTES = ("targets", "labels")
"""Attributes under which torchvision's data sets, and those made after them, keep a label per sample."""
PATH = (str, os.PathLike)
"""Types of a path."""
IMAGE_EDGE = 16
"""Points and numbers of each from which on an array of two axes may be one image."""
IMAGE_ASPECT = 2
"""The longer edge of what may be an image, in shorter ones, at most."""


FIRST_AXIS = "; the first axis of an array counts the samples, and one sample alone is "
"""Begins what is said of an array that may be a single sample."""


class ObjectSource(Source):
    """Samples that a program holds in memory or makes by itself.

    Its content is not known before it is read, so nothing about it is kept on disk between runs, and a stored run
    cannot open it again: whoever continues the run gives the object again.
    """

    def _identity(self) -> str:
        return self.name


class ArrayObjectSource(ObjectSource):
    """An array or tensor (N, C, *size) or (N, *size), its first axis counting the samples.

    (N, D) are points. With more axes `channel_axis` says what the shape of one sample means; `axes` decides otherwise.
    """

    is_decoded: ClassVar[bool] = False
    one_alone: ClassVar[str] = FIRST_AXIS + "given in a list, [x]"

    def __init__(self, data: Any, axes: str | None) -> None:
        array = as_array(data)
        if array.ndim < 2 or 0 in array.shape or array.dtype.kind not in "buif":
            raise InputError(
                f"{describe_object(data)} of type {array.dtype} is no data set: give numbers of shape (N, C, *size), "
                "(N, *size) or, for points, (N, D)"
            )
        self._arrange = Arrangement(array.shape[1:], axes)
        self._array = array
        super().__init__(
            name=describe_object(data), spatial_dims=self._arrange.spatial_dims, ids=numbered_ids(len(array))
        )
        one_image = [] if axes is not None else image_note(array.shape, "give a list of such arrays")
        self.notes = (*self._arrange.notes, *one_image)

    def _read(self, position: int) -> Sample:
        return Sample(self._arrange(self._array[position]))


def image_note(shape: tuple[int, ...], way_out: str) -> list[str]:
    """What to say about an array of points or images that may be one image.

    Points may be one where its two edges are alike, and images where they would be colours or rows of colours.

    >>> image_note((40, 40), "give a list of such arrays")[0].partition(". ")[2]
    'Were it one image, give a list of such arrays'
    >>> image_note((40, 40, 3), "give a list of such arrays")[0].partition(". ")[0]
    'the first axis counts the samples: 40 images of 40 × 3'
    >>> image_note((1000, 40), "give a list of such arrays"), image_note((40, 40, 40), "give a list of such arrays")
    ([], [])
    """
    if len(shape) == 3 and min(shape[0], shape[2]) <= MAX_CHANNELS:
        counted_samples = f"{shape[0]:,} images of {shape[1]} × {shape[2]}"
    elif len(shape) == 2 and min(shape) >= IMAGE_EDGE and max(shape) <= IMAGE_ASPECT * min(shape):
        counted_samples = f"{shape[0]:,} points of {shape[1]:,} numbers each"
    else:
        return []
    return [f"the first axis counts the samples: {counted_samples}. Were it one image, {way_out}"]


class Arrangement:
    """How one sample of an array becomes (C, *spatial): by its shape, or by the names of its axes.

    >>> Arrangement((5, 64, 64), "CYX").spatial_dims, Arrangement((5, 64, 64), None).spatial_dims
    (2, 3)
    """

    def __init__(self, shape: tuple[int, ...], axes: str | None) -> None:
        self.notes: tuple[str, ...] = ()
        self._axes = axes
        self._channel_axis = None
        if axes is not None:
            by_axes(np.broadcast_to(np.float32(0), shape), axes)  # refuses names that do not fit
            self.spatial_dims = len(spatial_axes(axes))
        elif len(shape) == 1:
            self.spatial_dims = 0
        else:
            self._channel_axis = channel_axis(shape)
            self.spatial_dims = len(shape) - (self._channel_axis is not None)
            self.notes = slices_note(shape) if self.spatial_dims == 3 else ()

    def __call__(self, array: Array) -> Array:
        if self._axes is not None:
            return by_axes(array, self._axes)
        if self.spatial_dims == 0:
            return array
        return array[None] if self._channel_axis is None else np.moveaxis(array, self._channel_axis, 0)


class SequenceSource(ObjectSource):
    """A list of samples, or a map-style Dataset: anything with a length that gives an item by its number.

    An item is an array or tensor (C, *spatial) or (*spatial), a PIL image, a tuple that begins with one of them, or a
    dictionary that has it under `image`. Labels are taken from the attribute `targets` or `labels`, where there is one.
    """

    def __init__(self, data: Any, axes: str | None = None) -> None:
        self._data, self._axes = data, axes
        self._lock = threading.Lock()  # a Dataset need not be made for several threads
        count = len(data)
        if count == 0:
            raise InputError(f"{describe_object(data)} is empty: there is nothing to learn from")
        name = describe_object(data)
        labels = _labels_of(data, count)
        try:
            item = data[0]
            first = as_sample(item, axes)
        except Exception as error:  # a Dataset is the user's code: it raises anything
            raise InputError(f"cannot use sample 0 of {name}: {one_line(error)}") from error
        super().__init__(
            name=name,
            spatial_dims=first.array.ndim - 1,
            ids=numbered_ids(count),
            labels=labels,
        )
        if axes is None and first.is_colour is None and len(first.array) == 1:
            self.notes = slices_note(first.array.shape[1:])
        if labels is None and isinstance(item, (tuple, list)) and len(item) > 1:
            self.notes += (
                f"only the first part of every item of {name} is used; where the second is a label, give labels=…, or "
                "let the data set have an attribute `targets` with one label per sample",
            )

    def _read(self, position: int) -> Sample:
        with self._lock:
            return as_sample(self._data[position], self._axes)


def as_sample(item: Any, axes: str | None = None) -> Sample:
    """One sample from what a Dataset or a list holds; spacing where the item says it, as MONAI's tensors do.

    `axes` names the axes of an array; a PIL image says them itself.
    """
    if isinstance(item, dict):
        key = next((key for key in IMAGE_KEYS if key in item), None)
        if key is None:
            raise InputError(f"it is a dictionary with the keys {', '.join(map(str, item))}; name the sample 'image'")
        item = item[key]
    elif isinstance(item, (tuple, list)) and item:
        item = item[0]
    if isinstance(item, Image.Image):
        if axes is not None:
            raise InputError(f"--axes={axes} is for arrays, and a PIL image says its axes itself: leave it out")
        array = pixels(item)
        orientation = item.getexif().get(ORIENTATION)  # after the pixels, which EXIF data may follow
        return Sample(upright(array, orientation), is_colour=len(array) == 3)
    if not isinstance(item, (Tensor, np.ndarray)):
        way_out = "; files are given as a list of their paths alone" if isinstance(item, PATH) else ""
        raise InputError(f"it is of type {type(item).__name__}; give an array, a tensor or a PIL image{way_out}")
    array = as_array(item)
    if array.dtype.kind not in "buif":
        raise InputError(f"its values are of type {array.dtype}, but only numbers can be samples")
    if axes is not None:
        array = by_axes(array, axes)
    elif array.ndim != 1:
        array = channels_first(array)
    return Sample(array, _spacing_of(item, array.ndim - 1))


def _spacing_of(item: Any, dims: int) -> tuple[float, ...] | None:
    spacing = getattr(item, "pixdim", None)
    if dims != 3 or spacing is None:
        return None
    found = tuple(float(step) for step in spacing)
    return found if len(found) == dims and min(found) > 0 else None


def _labels_of(data: Any, count: int) -> list[str | None] | None:
    """A label per sample from an attribute of a Dataset; None where it holds something else."""
    found = next((getattr(data, name) for name in LABEL_ATTRIBUTES if hasattr(data, name)), None)
    if found is None or not hasattr(found, "__len__"):
        return None
    try:
        labels = label_texts(found)
    except InputError:
        return None
    names = getattr(data, "classes", None)
    if names is not None and all(label is not None and label.isdecimal() for label in labels):
        labels = [str(names[int(label)]) if label is not None else None for label in labels]
    return labels if len(labels) == count else None


def label_texts(labels: Any) -> list[str | None]:
    """Labels of any kind of sequence as texts, without spaces around; None, NaN, pandas' NA and "" mean "not labelled".

    >>> label_texts(torch.tensor([1, 0])), label_texts(["a ", None, float("nan"), " "])
    (['1', '0'], ['a', None, None, None])
    """
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    for row, value in enumerate(values):
        if isinstance(value, (list, tuple, set, dict)) or getattr(value, "ndim", 0) > 0:
            kind = type(value).__name__
            raise InputError(
                f"entry {row} is of type {kind}, and a label is one text or number; several labels of a sample are a "
                "row of an array (N, K) of 0 and 1"
            )
    return [None if is_missing(value) else _text_of(value) or None for value in values]


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: NaN and NaT differ from themselves, and pandas' NA does not say whether it does."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True
    except ValueError:  # an array
        return False


def _text_of(value: Any) -> str:
    value = value.item() if isinstance(value, (Tensor, np.generic)) else value  # scalars in a list
    value = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else printable(str(value).strip())


def numbered_ids(count: int) -> list[str]:
    """The ids of samples that have no name: their numbers."""
    width = max(6, len(str(count - 1)))
    return [f"{i:0{width}d}" for i in range(count)]


def describe_object(data: Any) -> str:
    """A data object in a few words, for messages and for the configuration of its run.

    >>> describe_object(torch.zeros(8, 1, 32, 32)), describe_object([Image.new("L", (4, 4))])
    ('array of shape (8, 1, 32, 32)', 'list of 1 Image')
    """
    data = as_list(data)
    if isinstance(data, (np.ndarray, torch.Tensor)):
        return f"array of shape {tuple(data.shape)}"
    if isinstance(data, (list, tuple)):
        kind = "paths" if all_of_type(data, PATH) else type(data[0]).__name__ if data else "samples"
        return f"list of {len(data)} {kind}"
    length = f" of {len(data)} samples" if hasattr(data, "__len__") else ""
    return f"{type(data).__name__}{length}"


def as_list(data: Any) -> Any:
    """A pandas Series, and an array of texts or objects along one axis, as the list of what they hold.

    >>> as_list(np.array(["a.png", "b.png"]))
    ['a.png', 'b.png']
    """
    is_series = hasattr(data, "iloc") and not hasattr(data, "columns")
    is_listed = isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype.kind in "OUT"
    return data.tolist() if is_series or is_listed else data


def as_array(data: Any) -> Array:
    """An array, or a tensor from wherever it is; NumPy has no bfloat16, which becomes float32."""
    if np.ma.is_masked(data):
        raise InputError(
            "the array has masked values, which the training would read as numbers: give array.filled(value), with the "
            "value of the background"
        )
    if not isinstance(data, Tensor):
        return np.asarray(data)
    tensor = data.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def is_dataset(data: Any) -> bool:
    """Whether an object has a length and gives items by number; a text, a mapping or a set is none."""
    plain = isinstance(data, (str, bytes, dict, set))
    return not plain and hasattr(data, "__len__") and hasattr(data, "__getitem__")


def all_of_type(data: Any, kinds: type | tuple[type, ...]) -> bool:
    """Whether an object is a list of these types alone."""
    return isinstance(data, Sequence) and len(data) > 0 and all(isinstance(one, kinds) for one in data)
