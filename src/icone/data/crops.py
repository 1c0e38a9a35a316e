"""Crops of samples that keep their resolution: random ones for training, those of a grid for evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from icone.data.chunks import ChunkedSamples, Shape, chunk_bytes, chunk_dtype
from icone.data.dataset import Dataset
from icone.data.formats.base import Array
from icone.data.inspection import Problem
from icone.data.prepare import Preparation
from icone.data.sources.base import Source
from icone.data.splits import Integers

TRIES = 8
"""Times that crops are drawn until none of them is constant."""
SALT = 22
"""Begins the seeds of crops, so that they are others than those of the order of an epoch."""


def window_starts(shape: Shape, size: Shape) -> npt.NDArray[np.int64]:
    """Where windows of a size begin that cover a sample with as few as possible, evenly spread: (n, axes).

    >>> window_starts((10, 4), (4, 4)).tolist()
    [[0, 0], [3, 0], [6, 0]]
    """
    each = [
        np.linspace(0, max(0, n - edge), -(-n // edge)).round().astype(int) for n, edge in zip(shape, size, strict=True)
    ]
    return np.array(list(itertools.product(*each)))


def draw_crops(
    shape: Shape, size: Shape, overlap: float, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Where `count` random crops of a sample begin: (count, axes). Each two share `overlap` of their volume or more.

    All lie in a window that is drawn first, uniformly in the sample. It has edges of size · (2 − overlap^(1/axes)), so
    that two crops are at most size · (1 − overlap^(1/axes)) apart along an axis, and share overlap^(1/axes) of it.
    """
    room = np.maximum(np.array(shape) - size, 0)
    reach = np.minimum(room, np.floor(np.array(size) * (1 - overlap ** (1 / len(size))))).astype(np.int64)
    window = rng.integers(0, room - reach, endpoint=True)
    starts: npt.NDArray[np.int64] = window + rng.integers(0, reach, (count, len(size)), endpoint=True)
    return starts


def _is_constant(crop: Array) -> bool:
    """Whether a crop holds one value only. Most are told by some of their values."""
    values = crop.reshape(-1)
    return bool((values[:: len(values) // 1000 + 1] == values[0]).all() and (values == values[0]).all())


class CropDataset(Dataset):
    """The samples of a source at their own resolution, of which crops (C, *size) are read.

    What is smaller than a crop along an axis is padded there with 0, the low value, evenly on both sides. `images_at`
    gives the crop in the middle, `for_views` random ones, `windows_at` those of a grid; as uint8, or as int16, which
    `icone.views.base.unit_range` turns into [0, 1] on the device.
    """

    def __init__(
        self,
        source: Source,
        positions: Integers,
        rows: Integers,
        overlap: float,
        *,
        preparation: Preparation,
        chunked: ChunkedSamples,
        skipped: Sequence[Problem] = (),
    ) -> None:
        """`rows` are the numbers of the samples among those that are `chunked`."""
        super().__init__(source, positions.tolist(), preparation, resident=False, skipped=skipped)
        self._chunked, self._rows, self._overlap = chunked, rows, overlap

    @property
    def is_kept(self) -> bool:
        """Crops come from chunks, never from the source."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return sum(chunk_bytes(self.preparation, self.shape(row)) for row in range(len(self)))

    @property
    def is_on_disk(self) -> bool:
        """Whether the chunks are on disk, and not in memory."""
        return self._chunked.is_on_disk

    def subset(self, rows: Sequence[int]) -> CropDataset:
        """The samples at these rows alone, in this order."""
        chosen = np.asarray(rows, dtype=np.int64)
        positions, kept = np.array(self.positions)[chosen], self._rows[chosen]
        make = partial(CropDataset, preparation=self.preparation, chunked=self._chunked)
        return make(self.source, positions, kept, self._overlap)

    def shape(self, index: int) -> Shape:
        """The spatial shape of a sample."""
        return self._chunked.shapes[int(self._rows[index])]

    def images_at(self, indices: Tensor) -> Tensor:
        """The crop in the middle of each sample: (B, C, *size)."""
        size = np.array(self.preparation.size)
        middles = [(np.maximum(self.shape(int(i)) - size, 0) // 2)[None] for i in indices]
        return torch.cat([self.windows_at(int(i), start) for i, start in zip(indices, middles, strict=True)])

    def for_views(self, indices: Tensor, num_views: int, seed: int, epoch: int) -> Tensor:
        """Random crops of each sample: (B, num_views, C, *size), a function of (seed, epoch, index).

        Where one is constant, as air outside of a window of intensities is, they are drawn again, eight times at most.
        """
        crops = self._empty(len(indices), num_views)
        for out, index in zip(crops, map(int, indices), strict=True):
            rng = np.random.default_rng([SALT, seed, epoch, index])
            for _ in range(TRIES):
                starts = draw_crops(self.shape(index), self.preparation.size, self._overlap, num_views, rng)
                self._read_into(out, index, starts)
                if not any(map(_is_constant, out)):
                    break
        return torch.from_numpy(crops)

    def _empty(self, *counts: int) -> Array:
        shape = (*counts, self.preparation.channels, *self.preparation.size)
        return np.empty(shape, chunk_dtype(self.preparation))

    def window_starts(self, index: int) -> npt.NDArray[np.int64]:
        """Where the windows begin that cover a sample: (n, axes)."""
        return window_starts(self.shape(index), self.preparation.size)

    def windows_at(self, index: int, starts: npt.NDArray[np.int64]) -> Tensor:
        """The windows of a sample that begin there: (n, C, *size)."""
        windows = self._empty(len(starts))
        self._read_into(windows, index, starts)
        return torch.from_numpy(windows)

    def _read_into(self, out: Array, index: int, starts: npt.NDArray[np.int64]) -> None:
        """Fill (n, C, *size) with crops of one sample; what they share is read once."""
        shape, size = np.array(self.shape(index)), np.array(self.preparation.size)
        low, high = starts.min(axis=0), np.minimum(starts.max(axis=0) + size, shape)
        region = self._chunked.read(int(self._rows[index]), tuple(low.tolist()), tuple(high.tolist()))
        before = (np.maximum(size - shape, 0) // 2).tolist()  # such an axis has all its crops at 0
        inside = [slice(b, b + int(n)) for b, n in zip(before, np.minimum(size, shape), strict=True)]
        if (shape < size).any():
            out[:] = np.iinfo(out.dtype).min
        for window, start in zip(out, (starts - low).tolist(), strict=True):
            spans = [slice(a, a + part.stop - part.start) for a, part in zip(start, inside, strict=True)]
            window[(slice(None), *inside)] = region[(slice(None), *spans)]
