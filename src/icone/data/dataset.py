"""The prepared samples of a data set, in memory where they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icone.data.formats.registry import quiet_readers
from icone.data.inspection import Problem, Progress
from icone.data.labels import class_names
from icone.data.prepare import Preparation
from icone.data.source_cache import PreparedSamples
from icone.data.sources.base import Source
from icone.data.splits import Integers
from icone.data.threads import read_ahead

PIECE = 2**24
"""Bytes of prepared samples that are read from the disk at once."""


class Dataset:
    """The samples of a source at the given positions, prepared.

    `images` holds them all, (N, C, *size) in the stored dtype, if they are `resident` in memory, else it is
    None; `images_at` works either way. They come from `prepared` where they are kept on disk, else from the
    source. `labels` is (N,) with the index into `class_names`, or -1.
    """

    def __init__(
        self,
        source: Source,
        positions: Iterable[int],
        preparation: Preparation,
        *,
        resident: bool,
        workers: int = 2,
        progress: Progress | None = None,
        skipped: Sequence[Problem] = (),
        prepared: PreparedSamples | None = None,
    ) -> None:
        self.source = source
        self.positions = tuple(int(position) for position in positions)
        self.preparation = preparation
        self.skipped = tuple(skipped)
        self.prepared = prepared
        self.ids: tuple[str, ...] = tuple(source.ids[p] for p in self.positions)
        self.paths: tuple[Path | None, ...] = tuple(source.paths[p] for p in self.positions)
        self.groups = None if source.groups is None else tuple(source.groups[p] for p in self.positions)
        self.class_names = source_classes(source)
        self.labels = torch.from_numpy(integer_labels(source)[list(self.positions)])
        self.images: Tensor | None = None
        if resident:
            self.images = self._read_all(workers, progress)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def is_kept(self) -> bool:
        """Whether the samples are in memory or on disk, so that the source is not read again."""
        return self.images is not None or self.prepared is not None

    @property
    def nbytes(self) -> int:
        """Bytes of all prepared samples."""
        return len(self) * self.preparation.nbytes

    def subset(self, rows: Sequence[int]) -> Dataset:
        """The samples at these rows alone, in this order; what lies in memory is not read again."""
        positions = [self.positions[int(row)] for row in rows]
        part = Dataset(self.source, positions, self.preparation, resident=False, prepared=self.prepared)
        if self.images is not None:
            part.images = self.images[torch.as_tensor(rows, dtype=torch.int64)]
        return part

    def images_at(self, indices: Tensor) -> Tensor:
        """The prepared samples at indices (B,) of this data set: (B, C, *size)."""
        if self.images is not None:
            return self.images[indices]
        positions = np.array([self.positions[int(index)] for index in indices], dtype=np.int64)
        if self.prepared is None:
            return torch.stack([prepare_sample(self.source, self.preparation, int(p)) for p in positions])
        samples, damaged = self.prepared.read(positions)
        for row in damaged:
            samples[row] = prepare_sample(self.source, self.preparation, int(positions[row]))
        return samples

    def for_views(self, indices: Tensor, num_views: int, seed: int, epoch: int) -> Tensor:
        """What `num_views` random views of these samples are made of: the samples, (B, C, *size).

        Where crops are taken of them (`icone.data.crops`), a crop for each view: (B, num_views, C, *size).
        """
        return self.images_at(indices)

    def _read(self, piece: range) -> Tensor:
        return self.images_at(torch.arange(piece.start, piece.stop))

    def _read_all(self, workers: int, progress: Progress | None) -> Tensor:
        shape = (len(self), self.preparation.channels, *self.preparation.size)
        images = torch.empty(shape, dtype=getattr(torch, self.preparation.dtype))
        # what is kept on disk is read in large pieces; what has to be decoded, one by one
        step = 1 if self.prepared is None else max(1, PIECE // self.preparation.nbytes)
        pieces = [range(start, min(start + step, len(self))) for start in range(0, len(self), step)]
        with quiet_readers():
            for piece, read in zip(pieces, read_ahead(self._read, pieces, workers, ahead=4 * workers), strict=True):
                images[piece.start : piece.stop] = read
                if progress is not None:
                    progress(piece.stop, len(self))
        return images


def prepare_sample(source: Source, preparation: Preparation, position: int) -> Tensor:
    """The sample of a source at a position, read and prepared: (C, *size)."""
    with source.room(position):
        return preparation(source.read(position))


def source_classes(source: Source) -> tuple[str, ...]:
    """The classes of a source in order; none where its labels are numbers, or several per sample."""
    return class_names(source.labels or ()) if source.task == "classification" else ()


def integer_labels(source: Source) -> Integers:
    """The class of every sample of a source as an index into its class names, -1 where there is none."""
    index: dict[str | None, int] = {name: i for i, name in enumerate(source_classes(source))}
    return np.array([index.get(label, -1) for label in source.labels or (None,) * len(source)], dtype=np.int64)
