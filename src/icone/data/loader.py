"""Batches of prepared samples, in an order that the seed and the epoch determine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icone.data.dataset import Dataset
from icone.data.memory import GB
from icone.data.threads import read_ahead
from icone.errors import InputError

AHEAD = 4
"""Batches per thread that are read before they are needed."""


class Batch(NamedTuple):
    """What one step sees, on the training device."""

    images: Tensor
    """(B, C, *size) in the stored dtype."""
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a batch
    """(B,) position inside the training subset; it addresses the anchor table."""
    label: Tensor
    """(B,) class, or -1."""


class Loader:
    """Every instance once per epoch, shuffled; the last batch may be short.

    Data in memory is moved to the device once and gathered there. Other data is read by threads a few
    batches ahead.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        workers: int = 2,
    ) -> None:
        count = len(dataset)
        if count < 2:
            raise InputError(f"training needs at least 2 samples, got {count}")
        if not 1 <= batch_size <= count:
            raise InputError(f"the batch size must be 1 to {count}, the number of training samples, got {batch_size}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.device = torch.device(device)
        self.workers = workers
        self._labels = dataset.labels.to(self.device)
        self._images = None if dataset.images is None else _move(dataset.images, self.device)

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch, the short one included."""
        return -(-len(self.dataset) // self.batch_size)

    def order(self, epoch: int) -> Tensor:
        """The permutation of the instances in an epoch: a function of (seed, epoch) alone."""
        return torch.from_numpy(np.random.default_rng([self.seed, epoch]).permutation(len(self.dataset)))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from the one numbered `start` on."""
        chunks = torch.split(self.order(epoch), self.batch_size)[start:]
        images = self._gather(chunks) if self._images is not None else self._read(chunks)
        for chunk, batch in zip(chunks, images, strict=True):
            index = chunk.to(self.device)
            yield Batch(batch, index, self._labels[index])

    def _gather(self, chunks: tuple[Tensor, ...]) -> Iterator[Tensor]:
        assert self._images is not None
        return (self._images[chunk.to(self.device)] for chunk in chunks)

    def _read(self, chunks: tuple[Tensor, ...]) -> Iterator[Tensor]:
        for images in read_ahead(self._fetch, chunks, self.workers, ahead=AHEAD * self.workers):
            yield images.to(self.device, non_blocking=True)

    def _fetch(self, chunk: Tensor) -> Tensor:
        images = self.dataset.images_at(chunk)
        return images.pin_memory() if self.device.type == "cuda" else images


def _move(images: Tensor, device: torch.device) -> Tensor:
    try:
        return images.to(device)
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"the prepared samples take {images.nbytes / GB:.1f} GB, which is more than {device} has free; "
            "keep them on the disk with --memory-gb 0, or make them smaller with --size"
        ) from error
