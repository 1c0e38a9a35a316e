"""Which tiles of a huge image are background: those that Otsu's threshold of a thumbnail says hold next to nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from icone.data.formats.base import Array
from icone.data.formats.lazy import LazyImage

FOREGROUND = 0.05
"""The share of a tile's thumbnail that has to lie beside the background."""
PER_TILE = 8
"""Pixels or voxels of the thumbnail along the edge of a tile, where memory allows."""
MOST = 2**23
"""Values of a thumbnail at most: 32 MB."""
BINS = 256

Side = Literal["dark", "bright"]


class Content(NamedTuple):
    """Where a thumbnail (*spatial) shows something, where it is finite, and which side was taken for background."""

    foreground: npt.NDArray[np.bool_]
    finite: npt.NDArray[np.bool_]
    gray: Array
    side: Side

    def has_content(self, start: Sequence[int], stop: Sequence[int], shape: Sequence[int]) -> bool:
        """Whether a region of an image of this shape is finite, not constant, and shows enough."""
        part = tuple(
            slice(a * small // n, max(a * small // n + 1, math.ceil(b * small / n)))
            for a, b, n, small in zip(start, stop, shape, self.gray.shape, strict=True)
        )
        gray = self.gray[part]
        varies = gray.size == 1 or bool(gray.min() < gray.max())
        return bool(self.finite[part].all()) and varies and float(self.foreground[part].mean()) >= FOREGROUND


def find_content(image: LazyImage, tile: int, side: Literal["auto", "dark", "bright"] = "auto") -> Content:
    """Part the thumbnail of an image into background and foreground.

    Channels are scaled to [0, 1] and averaged. Otsu's threshold parts the values in two; the background is the side
    that is asked for, or the one with the smaller standard deviation: empty glass and empty medium are even.
    """
    small = thumbnail(image, tile)
    finite: npt.NDArray[np.bool_] = np.asarray(np.isfinite(small).all(axis=0))
    flat = small[:, finite]
    low = flat.min(axis=1, initial=np.inf)
    span = flat.max(axis=1, initial=-np.inf) - low
    axes = (slice(None), *(None,) * (small.ndim - 1))
    with np.errstate(invalid="ignore", over="ignore"):
        gray = ((small - low[axes]) / np.where(span > 0, span, 1)[axes]).mean(axis=0)
    values = gray[finite]
    threshold = otsu_threshold(values)
    above = gray > threshold
    if side == "auto":
        bright, dark = values[values > threshold], values[values <= threshold]
        side = "bright" if bright.size and bright.std() < dark.std() else "dark"
    return Content(above if side == "dark" else ~above, finite, gray, side)


def thumbnail(image: LazyImage, tile: int) -> Array:
    """Every n-th value along each axis, (C, *small) float32, from the lowest resolution in the file that has enough.

    The image is read once, block by block; of a lower resolution that much less.
    """
    step = max(1, tile // PER_TILE)
    while image.channels * math.prod(math.ceil(n / step) for n in image.shape[1:]) > MOST:
        step += 1
    level, ratio = image, 1.0
    for coarser in image.coarser:
        largest = max(n / m for n, m in zip(image.shape[1:], coarser.shape[1:], strict=True))
        if ratio < largest <= step and coarser.channels == image.channels:
            level, ratio = coarser, largest
    steps = [max(1, round(step * m / n)) for n, m in zip(image.shape[1:], level.shape[1:], strict=True)]
    small: Array = np.empty(
        (level.channels, *(math.ceil(n / s) for n, s in zip(level.shape[1:], steps, strict=True))), np.float32
    )
    for start, stop in level.blocks():
        first = [math.ceil(a / s) for a, s in zip(start, steps, strict=True)]
        after = [math.ceil(b / s) for b, s in zip(stop, steps, strict=True)]
        if all(a < b for a, b in zip(first, after, strict=True)):
            block = level.read(start, stop)
            inner: Any = tuple(slice(f * s - a, None, s) for f, s, a in zip(first, steps, start, strict=True))
            small[(slice(None), *map(slice, first, after))] = block[(slice(None), *inner)]
    return small


def otsu_threshold(values: Array) -> float:
    """The value that parts a histogram in two with the largest variance between them (Otsu, 1979).

    w₀ w₁ (μ₀ − μ₁)² is largest, with the shares w and the means μ of the values up to the threshold and above it.

    >>> 0.2 <= otsu_threshold(np.array([0.1, 0.2, 0.8, 0.9])) < 0.8
    True
    """
    if not values.size or values.min() == values.max():
        return float(values.max(initial=0))
    counts, edges = np.histogram(values, BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)[:-1]
    total, moment = counts.sum(), np.cumsum(counts * centres)
    above = total - below
    gap = moment[:-1] / below - (moment[-1] - moment[:-1]) / above
    return float(edges[1:-1][np.argmax(below * above * gap**2)])
