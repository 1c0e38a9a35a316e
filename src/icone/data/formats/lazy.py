"""One image or volume that is too large to be read whole: its regions are read when they are asked for."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.base import Array, colour_by_names
from icone.errors import InputError

CHANNELS = "SC"
"""Axes that are channels: S are those of one pixel in a TIFF."""
MILLIMETRES = {"nanometer": 1e-6, "micrometer": 1e-3, "millimeter": 1.0, "centimeter": 10.0, "meter": 1000.0}
"""Units of length by the names that OME-Zarr has for them."""
BLOCK = 2**24
"""Bytes that a pass over the whole image reads at once."""


class LazyImage:
    """An array in a file as (C, *spatial), of which regions are read.

    `array` has `shape`, `dtype`, perhaps `chunks`, and is indexed by a slice for every axis. `axes` has a letter for
    each of its axes: C and S are channels, Y and X are there, and one more that is longer than 1 is the depth. `steps`
    and `offsets` are the size of a voxel and the place of the first one along the named axes, in `unit`.
    """

    def __init__(
        self,
        array: Any,
        axes: str,
        *,
        spatial: str | None = None,
        steps: Mapping[str, float] | None = None,
        offsets: Mapping[str, float] | None = None,
        unit: str | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        self._array, self._axes = array, axes
        self.spatial = spatial or _spatial(array.shape, axes)
        """The letters of the spatial axes, in the order Z, Y, X."""
        lengths = dict(zip(axes, array.shape, strict=True))
        self.channels = math.prod(n for name, n in zip(axes, array.shape, strict=True) if name in CHANNELS)
        self.shape = (self.channels, *(int(lengths[name]) for name in self.spatial))
        self.dtype = np.dtype(array.dtype)
        self._has_steps = set(self.spatial) <= set(steps or {})
        self.steps = tuple(float((steps or {}).get(name, 1.0)) for name in self.spatial)
        self.offsets = tuple(float((offsets or {}).get(name, 0.0)) for name in self.spatial)
        self.unit = unit
        self.names = names if len(names) == self.channels else ()
        self.is_colour = colour_by_names(self.names)
        self.notes: tuple[str, ...] = ()
        """What the file says and regions do not follow, a sentence each: the whole file is another sample."""
        self.guesses: tuple[str, ...] = ()
        """What was guessed or left out, as `Sample.notes` of the whole file says it."""
        self.coarser: tuple[LazyImage, ...] = ()
        """The same image at lower resolutions, where the file has them."""

    @property
    def millimetres(self) -> tuple[float, ...] | None:
        """The size of a voxel in millimetres, where it and its unit are known along every spatial axis."""
        factor = MILLIMETRES.get(self.unit or "")
        return None if factor is None or not self._has_steps else tuple(step * factor for step in self.steps)

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        """The region from `start` to `stop` along the spatial axes: (C, *region)."""
        index: list[slice] = []
        channels: list[int] = []
        others: list[int] = []
        for at, name in enumerate(self._axes):
            if name in self.spatial:
                axis = self.spatial.index(name)
                index.append(slice(int(start[axis]), int(stop[axis])))
            else:
                index.append(slice(None) if name in CHANNELS else slice(0, 1))
                (channels if name in CHANNELS else others).append(at)
        region = np.asarray(self._array[tuple(index)])
        region = region.transpose(*channels, *(self._axes.index(name) for name in self.spatial), *others)
        return region.reshape(self.channels, *(int(b) - int(a) for a, b in zip(start, stop, strict=True)))

    def blocks(self, limit: int = BLOCK) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Regions that cover the image once, as (start, stop): whole chunks, of about `limit` bytes together."""
        shape = self.shape[1:]
        chunks = dict(zip(self._axes, getattr(self._array, "chunks", None) or self._array.shape, strict=True))
        edges = [min(int(chunks[name]), n) for name, n in zip(self.spatial, shape, strict=True)]
        for axis in reversed(range(len(shape))):
            while edges[axis] < shape[axis] and 2 * self.channels * math.prod(edges) * self.dtype.itemsize <= limit:
                edges[axis] = min(2 * edges[axis], shape[axis])
        for start in product(*(range(0, n, edge) for n, edge in zip(shape, edges, strict=True))):
            yield start, tuple(min(a + edge, n) for a, edge, n in zip(start, edges, shape, strict=True))


def _spatial(shape: Sequence[int], axes: str) -> str:
    """Depth, if there is one, Y and X; other axes have to be 1 long."""
    depth = [name for name, n in zip(axes, shape, strict=True) if name not in "YX" + CHANNELS and n > 1]
    if not {"Y", "X"} <= set(axes) or len(depth) > 1:
        raise InputError(
            f"it has the axes {axes} and the shape {tuple(shape)}, but tiles have Y, X and at most one other axis "
            "besides channels: write one point in time to a file, or name the axes with --axes"
        )
    return "".join([*depth, "Y", "X"])


class RawArray:
    """An array that lies in a file in C order, without compression; rows and regions are read, not mapped.

    Pages of a mapped file would count as memory of this process, and a mapped file that is cut would end it.
    """

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.chunks = (*(1,) * (len(shape) - 1), shape[-1])
        self._offset = offset
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, index: int | slice | tuple[slice, ...]) -> Array:
        """A row, a range of rows, or a region."""
        if not isinstance(index, (slice, tuple)):
            (row,) = self[index : index + 1]
            return np.asarray(row)
        parts = index if isinstance(index, tuple) else (index, *(slice(None) for _ in self.shape[1:]))
        spans = [range(n)[part] for part, n in zip(parts, self.shape, strict=True)]
        out: Array = np.empty([len(span) for span in spans], self.dtype)
        axis = len(spans) - 1  # from here on the elements of a region lie together in the file
        while axis > 0 and len(spans[axis]) == self.shape[axis]:
            axis -= 1
        steps = [math.prod(self.shape[i + 1 :]) for i in range(len(spans))]
        first = spans[axis].start * steps[axis]
        run = len(spans[axis]) * steps[axis] * self.dtype.itemsize
        content = out.reshape(-1).view(np.uint8).data
        for row, place in enumerate(product(*spans[:axis])):
            at = first + sum(i * step for i, step in zip(place, steps, strict=False))
            if not read_into(content[row * run : (row + 1) * run], self._file, self._offset + at * self.dtype.itemsize):
                raise InputError("the file ends before what its header declares, or cannot be read")
        return out


def read_into(buffer: memoryview, file: int, start: int) -> bool:
    """Fill a buffer from a file; False where the file ends before, or cannot be read."""
    done = 0
    try:
        while done < len(buffer) and (read := os.preadv(file, [buffer[done:]], start + done)):
            done += read
    except OSError:
        return False
    return done == len(buffer)
