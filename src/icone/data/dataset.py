"""The prepared samples of a data set, in memory where they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icone.data.formats.registry import quiet_readers
from icone.data.inspection import Problem, Progress
from icone.data.labels import class_names
from icone.data.prepare import Preparation
from icone.data.source_cache import PreparedSamples
from icone.data.sources.base import Sample, Source
from icone.data.splits import Integers
from icone.data.threads import cut, in_chunks, read_ahead
from icone.errors import InputError

PIECE = 2**24
"""Bytes of prepared samples that are read from the disk at once."""
CHUNK = 2**22
"""Bytes of prepared samples that a thread makes in one go."""
VALUES = 2**15
"""Values of samples that are prepared by one call: up to as many torch stays in the thread that calls it, and the
threads that read are as many as there should be."""


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
            return prepare_samples(self.source, self.preparation, positions.tolist())
        samples, damaged = self.prepared.read(positions)
        for row in damaged:
            samples[row] = prepare_samples(self.source, self.preparation, [int(positions[row])])[0]
        return samples

    def for_views(self, indices: Tensor, num_views: int, seed: int, epoch: int) -> Tensor:
        """What `num_views` random views of these samples are made of: the samples, (B, C, *size).

        Where crops are taken of them (`icone.data.crops`), a crop for each view: (B, num_views, C, *size).
        """
        return self.images_at(indices)

    def _read(self, piece: Sequence[int]) -> Tensor:
        return self.images_at(torch.arange(piece[0], piece[-1] + 1))

    def _read_all(self, workers: int, progress: Progress | None) -> Tensor:
        shape = (len(self), self.preparation.channels, *self.preparation.size)
        images = torch.empty(shape, dtype=getattr(torch, self.preparation.dtype))
        # what is kept on disk is read in large pieces; what has to be decoded, in small ones
        if self.prepared is None:
            pieces = in_chunks(range(len(self)), workers, chunk_size(self.source, self.preparation))
        else:
            pieces = cut(range(len(self)), PIECE // self.preparation.nbytes)
        with quiet_readers():
            for piece, read in zip(pieces, read_ahead(self._read, pieces, workers, ahead=4 * workers), strict=True):
                images[piece[0] : piece[-1] + 1] = read
                if progress is not None:
                    progress("reading the samples", piece[-1] + 1, len(self))
        return images


def chunk_size(source: Source, preparation: Preparation) -> int:
    """How many samples of a source a thread prepares in one go, at most."""
    return max(1, min(source.chunk, CHUNK // preparation.nbytes))


def prepare_samples(source: Source, preparation: Preparation, positions: Sequence[int]) -> Tensor:
    """The samples of a source at these positions, read and prepared: (B, C, *size); small ones that are alike together.

    The result does not depend on which samples are prepared together.
    """
    prepared = torch.empty(
        (len(positions), preparation.channels, *preparation.size), dtype=getattr(torch, preparation.dtype)
    )
    alike: dict[tuple[Any, ...], list[tuple[int, Sample]]] = {}
    for row, sample in enumerate(source.each(positions)):
        if isinstance(sample, InputError):
            raise sample
        if 2 * sample.array.size > VALUES:
            prepared[row] = preparation(sample)
        else:
            key = (sample.array.shape, sample.array.dtype, sample.spacing, sample.missing)
            alike.setdefault(key, []).append((row, sample))
    for group in alike.values():
        for some in cut(group, VALUES // max(group[0][1].array.size, prepared[0].numel())):
            prepared[[row for row, _ in some]] = preparation.alike([sample for _, sample in some])
    return prepared


def source_classes(source: Source) -> tuple[str, ...]:
    """The classes of a source in order; none where its labels are numbers, or several per sample."""
    return class_names(source.labels or ()) if source.task == "classification" else ()


def integer_labels(source: Source) -> Integers:
    """The class of every sample of a source as an index into its class names, -1 where there is none."""
    index: dict[str | None, int] = {name: i for i, name in enumerate(source_classes(source))}
    return np.array([index.get(label, -1) for label in source.labels or (None,) * len(source)], dtype=np.int64)
