"""The prepared samples of a data set, in memory where they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icone.data.inspection import Problem, Progress
from icone.data.labels import class_names
from icone.data.preparation import Preparation
from icone.data.readers import quiet_readers
from icone.data.source import Source
from icone.data.subsets import Integers
from icone.data.threads import read_ahead


class Dataset:
    """The samples of a source at the given positions, prepared.

    `images` holds them all, (N, C, *size) in the stored dtype, if they are `resident` in memory, else it is
    None; `images_at` works either way. `labels` is (N,) with the index into `class_names`, or -1.
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
    ) -> None:
        self.source = source
        self.positions = tuple(int(position) for position in positions)
        self.preparation = preparation
        self.skipped = tuple(skipped)
        self.ids: tuple[str, ...] = tuple(source.ids[p] for p in self.positions)
        self.paths: tuple[Path | None, ...] = tuple(source.paths[p] for p in self.positions)
        self.class_names = class_names(source.labels or ())
        self.labels = torch.from_numpy(integer_labels(source)[list(self.positions)])
        self.images = self._read_all(workers, progress) if resident else None

    def __len__(self) -> int:
        return len(self.positions)

    def images_at(self, indices: Tensor) -> Tensor:
        """The prepared samples at indices (B,) of this data set: (B, C, *size)."""
        if self.images is not None:
            return self.images[indices]
        return torch.stack([self._prepare(int(index)) for index in indices])

    def _prepare(self, index: int) -> Tensor:
        return self.preparation(self.source.read(self.positions[index]))

    def _read_all(self, workers: int, progress: Progress | None) -> Tensor:
        shape = (len(self), self.preparation.channels, *self.preparation.size)
        images = torch.empty(shape, dtype=getattr(torch, self.preparation.dtype))
        with quiet_readers():
            prepared = read_ahead(self._prepare, range(len(self)), workers, ahead=4 * workers)
            for index, image in enumerate(prepared):
                images[index] = image
                if progress is not None:
                    progress(index + 1, len(self))
        return images


def integer_labels(source: Source) -> Integers:
    """The class of every sample of a source as an index into its class names, -1 where there is none."""
    if source.labels is None:
        return np.full(len(source), -1, dtype=np.int64)
    index: dict[str | None, int] = {name: i for i, name in enumerate(class_names(source.labels))}
    return np.array([index.get(label, -1) for label in source.labels], dtype=np.int64)
