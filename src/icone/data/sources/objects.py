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

from icone.data.formats.axes import by_axes, slices_note, spatial_axes
from icone.data.formats.npy import channel_axis, channels_first
from icone.data.formats.pillow import pixels
from icone.data.sources.base import Array, Sample, Source
from icone.errors import InputError, printable

IMAGE_KEYS = ("image", "img", "volume", "x", "pixel_values")
"""Names under which an item of a Dataset that is a dictionary holds its sample."""
LABEL_ATTRIBUTES = ("targets", "labels")
"""Attributes under which torchvision's data sets, and those made after them, keep a label per sample."""
IMAGE_EDGE = 16
"""Points and numbers of each from which on an array of two axes may be one image."""
IMAGE_ASPECT = 2
"""The longer edge of what may be an image, in shorter ones, at most."""


class ObjectSource(Source):
    """Samples that a program holds in memory or makes by itself.

    Its content is not known before it is read, so nothing about it is kept on disk between runs, and a stored run
    cannot open it again: whoever continues the run gives the object again.
    """

    is_cacheable: ClassVar[bool] = False

    def _identity(self) -> str:
        return self.name


class ArrayObjectSource(ObjectSource):
    """An array or tensor (N, C, *size) or (N, *size), its first axis counting the samples.

    (N, D) are points. With more axes `channel_axis` says what the shape of one sample means; `axes` decides otherwise.
    """

    is_decoded: ClassVar[bool] = False

    def __init__(self, data: Any, axes: str | None) -> None:
        array: Array = data.detach().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)
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
        self.notes = (*self._arrange.notes, *image_note(array.shape, "give a list of such arrays"))

    def _read(self, position: int) -> Sample:
        return Sample(self._arrange(self._array[position]))


def image_note(shape: tuple[int, ...], way_out: str) -> list[str]:
    """What to say about an array of points that may be one image: its two edges are alike.

    >>> image_note((40, 40), "give a list of such arrays")[0].partition(". ")[2]
    'Were it one image, give a list of such arrays'
    >>> image_note((1000, 40), "give a list of such arrays"), image_note((40, 40, 40), "give a list of such arrays")
    ([], [])
    """
    if len(shape) != 2 or min(shape) < IMAGE_EDGE or max(shape) > IMAGE_ASPECT * min(shape):
        return []
    return [
        f"the first axis counts the samples: {shape[0]:,} points of {shape[1]:,} numbers each. Were it one image, "
        f"{way_out}"
    ]


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

    def __init__(self, data: Any) -> None:
        self._data = data
        self._lock = threading.Lock()  # a Dataset need not be made for several threads
        count = len(data)
        if count == 0:
            raise InputError(f"{describe_object(data)} is empty: there is nothing to learn from")
        name = describe_object(data)
        labels, item = _labels_of(data, count), data[0]
        try:
            first = as_sample(item)
        except InputError as error:
            raise InputError(f"cannot use sample 0 of {name}: {error}") from error
        super().__init__(
            name=name,
            spatial_dims=first.array.ndim - 1,
            ids=numbered_ids(count),
            labels=labels,
        )
        if labels is None and isinstance(item, (tuple, list)) and len(item) > 1:
            self.notes = (
                f"only the first part of every item of {name} is used; where the second is a label, give labels=…, or "
                "let the data set have an attribute `targets` with one label per sample",
            )

    def _read(self, position: int) -> Sample:
        with self._lock:
            return as_sample(self._data[position])


def as_sample(item: Any) -> Sample:
    """One sample from what a Dataset or a list holds; spacing where the item says it, as MONAI's tensors do."""
    if isinstance(item, dict):
        key = next((key for key in IMAGE_KEYS if key in item), None)
        if key is None:
            raise InputError(f"it is a dictionary with the keys {', '.join(map(str, item))}; name the sample 'image'")
        item = item[key]
    elif isinstance(item, (tuple, list)) and item:
        item = item[0]
    if isinstance(item, Image.Image):
        array = pixels(item)
        return Sample(array, is_colour=len(array) == 3)
    if not isinstance(item, (Tensor, np.ndarray)):
        raise InputError(f"it is of type {type(item).__name__}; give an array, a tensor or a PIL image")
    array = item.detach().cpu().numpy() if isinstance(item, Tensor) else item
    if array.dtype.kind not in "buif":
        raise InputError(f"its values are of type {array.dtype}, but only numbers can be samples")
    array = array if array.ndim == 1 else channels_first(np.asarray(array))
    return Sample(array, _spacing_of(item, array.ndim - 1))


def _spacing_of(item: Any, dims: int) -> tuple[float, ...] | None:
    spacing = getattr(item, "pixdim", None)
    if dims != 3 or spacing is None:
        return None
    found = tuple(float(step) for step in spacing)
    return found if len(found) == dims and min(found) > 0 else None


def _labels_of(data: Any, count: int) -> list[str | None] | None:
    found = next((getattr(data, name) for name in LABEL_ATTRIBUTES if hasattr(data, name)), None)
    if found is None:
        return None
    labels = label_texts(found)
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
    return [None if is_missing(value) else _text_of(value) or None for value in values]


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: NaN and NaT differ from themselves, and pandas' NA does not say whether it does."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _text_of(value: Any) -> str:
    value = value.item() if isinstance(value, (Tensor, np.generic)) else value  # scalars in a list
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
    if isinstance(data, (np.ndarray, torch.Tensor)):
        return f"array of shape {tuple(data.shape)}"
    if isinstance(data, (list, tuple)):
        kind = "paths" if all_of_type(data, (str, os.PathLike)) else type(data[0]).__name__ if data else "samples"
        return f"list of {len(data)} {kind}"
    length = f" of {len(data)} samples" if hasattr(data, "__len__") else ""
    return f"{type(data).__name__}{length}"


def is_dataset(data: Any) -> bool:
    """Whether an object has a length and gives items by number; a text, a mapping or a set is none."""
    plain = isinstance(data, (str, bytes, dict, set))
    return not plain and hasattr(data, "__len__") and hasattr(data, "__getitem__")


def all_of_type(data: Any, kinds: type | tuple[type, ...]) -> bool:
    """Whether an object is a list of these types alone."""
    return isinstance(data, Sequence) and len(data) > 0 and all(isinstance(one, kinds) for one in data)
