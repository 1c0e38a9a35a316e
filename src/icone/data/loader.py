"""Batches of prepared samples, in an order that the seed and the epoch determine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from icone.data.dataset import Dataset
from icone.data.memory import GB
from icone.data.threads import read_ahead
from icone.errors import InputError
from icone.nn.ranks import Ranks

BATCHES_AHEAD = 4
"""Batches per thread that are read before they are needed."""
DEVICE_SHARE = 0.5
"""Share of the free memory of a GPU that the samples may take; training needs the rest."""


class Batch(NamedTuple):
    """What one step sees, on the training device."""

    images: Tensor
    """(B, C, *size) in the stored dtype, or (B, views, C, *size) where a crop was read for every view; those of this
    rank's share alone where ranks share the batch."""
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a batch
    """(B,) position inside the training subset; it addresses the anchor table."""
    label: Tensor
    """(B,) class, or -1."""


class Loader:
    """Every instance once per epoch, shuffled; the last batches may be short, but not below `smallest_batch`.

    What the host does (`begin` an epoch, `advance` to the next step) is kept apart from what the device does
    (`take` a batch), because a captured step repeats the latter alone. Samples that fit into the device's memory
    are moved there once, and `take` gathers them; others are read by threads a few batches ahead, and `advance`
    copies them into buffers whose addresses stay the same. With `ranks` the images of a batch are those of this rank's
    share, while indices and labels are those of the whole batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        workers: int = 2,
        smallest_batch: int = 1,
        ranks: Ranks | None = None,
        num_views: int = 1,
    ) -> None:
        """`num_views` is how many views are made of a sample: where they are made of crops, that many are read."""
        count = len(dataset)
        if count < 2:
            raise InputError(f"training needs at least 2 samples, got {count}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.sizes = batch_sizes(count, batch_size, smallest_batch)
        """Instances in each batch of an epoch."""
        self.seed = seed
        self.device = torch.device(device)
        self.workers = workers
        self.ranks = ranks
        self.num_views = num_views
        self.waited = 0.0
        """Seconds in which `advance` waited for samples that were not read yet, to be set back by who reads it."""
        self._labels = dataset.labels.to(self.device)
        self._images = samples_on(dataset, self.device)
        self._order = torch.zeros(count, dtype=torch.int64, device=self.device)
        self.position = torch.zeros((), dtype=torch.int64, device=self.device)
        """Number of instances of this epoch that were taken, on the device."""
        self._buffers: dict[tuple[int, int], Batch] = {}
        self._stream: Generator[tuple[Tensor, Tensor], None, None] = self._read(iter(()))
        self._next: tuple[int, int] | None = None
        """Epoch and number of the batch that the stream gives next; None where there is none."""

    @property
    def resident(self) -> bool:
        """Whether the samples lie in the memory of the device."""
        return self._images is not None

    def order(self, epoch: int) -> Tensor:
        """The permutation of the instances in an epoch: a function of (seed, epoch) alone."""
        return torch.from_numpy(np.random.default_rng([self.seed, epoch]).permutation(len(self.dataset)))

    def begin(self, epoch: int, start: int = 0) -> None:
        """Begin an epoch with its batch number `start`. Its first batches have been read ahead if it is the next."""
        self._order.copy_(self.order(epoch))
        self.position.fill_(sum(self.sizes[:start]))
        if not self.resident and self._next != (epoch, start):
            self.end()
            self._stream, self._next = self._read(self._chunks(epoch, start)), (epoch, start)

    def advance(self, sizes: Sequence[int]) -> None:
        """Prepare what a step takes: one batch, or several micro-batches whose gradients are accumulated."""
        if self.resident:
            return
        for micro_batch, size in enumerate(sizes):
            images, index = self._next_batch()
            if (micro_batch, size) not in self._buffers:
                index = index.to(self.device)
                self._buffers[micro_batch, size] = Batch(images.clone(), index, self._labels[index])
            else:
                buffer = self._buffers[micro_batch, size]
                buffer.images.copy_(images)
                buffer.index.copy_(index)
                torch.index_select(self._labels, 0, buffer.index, out=buffer.label)

    def take(self, micro_batch: int, size: int) -> Batch:
        """The next `size` instances, by device operations alone; `micro_batch` counts the batches within a step."""
        if self._images is None:
            return self._buffers[micro_batch, size]
        # Warm-up steps before a capture may run over the end of an epoch: they begin again, and are undone.
        positions = (self.position + torch.arange(size, device=self.device)) % len(self._order)
        index = self._order.index_select(0, positions)
        self.position += size
        return Batch(self._images.index_select(0, self._own(index)), index, self._labels.index_select(0, index))

    def end(self) -> None:
        """Leave the epoch, and stop the threads that read ahead."""
        self._stream.close()
        self._next = None

    def _chunks(self, epoch: int, start: int) -> Iterator[tuple[int, Tensor]]:
        """The batches from one on, in this epoch and all that follow, each with the number of its epoch."""
        for number in itertools.count(epoch):
            for chunk in torch.split(self.order(number), self.sizes)[start:]:
                yield number, chunk
            start = 0

    def _next_batch(self) -> tuple[Tensor, Tensor]:
        began = time.monotonic()
        batch = next(self._stream)
        self.waited += time.monotonic() - began
        assert self._next is not None
        epoch, number = self._next
        self._next = (epoch, number + 1) if number + 1 < len(self.sizes) else (epoch + 1, 0)
        return batch

    def _own(self, index: Tensor) -> Tensor:
        """What this rank reads of a batch."""
        if self.ranks is None:
            return index
        share = self.ranks.share_of(len(index))
        return index[share.start : share.stop]

    def _read(self, chunks: Iterator[tuple[int, Tensor]]) -> Generator[tuple[Tensor, Tensor], None, None]:
        batches = read_ahead(self._fetch, chunks, self.workers, ahead=BATCHES_AHEAD * self.workers)
        try:
            yield from _copied_ahead(batches, self.device) if self.device.type == "cuda" else batches
        finally:
            batches.close()

    def _fetch(self, numbered: tuple[int, Tensor]) -> tuple[Tensor, Tensor]:
        epoch, chunk = numbered
        images = self.dataset.for_views(self._own(chunk), self.num_views, self.seed, epoch)
        return images.pin_memory() if self.device.type == "cuda" else images, chunk


def too_large_batch(batch_size: int, instances: int) -> InputError:
    """The sentence about a batch of more samples than there are, or of none."""
    return InputError(f"--batch-size must be 1 to {instances}, the number of training samples, got {batch_size}")


def batch_sizes(instances: int, batch_size: int, smallest: int) -> list[int]:
    """Instances in each batch of an epoch, in which every instance has its turn and no batch is below the smallest.

    A remainder that is too small shares with the batch before it, half and half, so that no batch is above the batch
    size. Where the two halves would be too small as well, which takes a batch size below twice the smallest, both make
    one batch. Sizes are few, because a captured step has a graph of its own for every size.

    >>> batch_sizes(11, 4, smallest=2), batch_sizes(9, 4, smallest=1)
    ([4, 4, 3], [4, 4, 1])
    >>> batch_sizes(9, 4, smallest=2), batch_sizes(9, 2, smallest=2)
    ([4, 3, 2], [2, 2, 2, 3])
    """
    if not 1 <= batch_size <= instances:
        raise too_large_batch(batch_size, instances)
    assert smallest <= batch_size
    whole, rest = divmod(instances, batch_size)
    sizes = [batch_size] * whole
    if not rest:
        return sizes
    if rest >= smallest:
        return [*sizes, rest]
    shared = sizes.pop() + rest
    half = shared // 2
    return [*sizes, shared - half, half] if half >= smallest else [*sizes, shared]


def _copied_ahead(batches: Iterator[tuple[Tensor, Tensor]], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches on the device: while one is used, the next is copied on a side stream."""
    side = torch.cuda.Stream(device)
    waiting: tuple[Tensor, Tensor, torch.cuda.Event] | None = None
    for images, index in batches:
        with torch.cuda.stream(side):
            moved = images.to(device, non_blocking=True), index.pin_memory().to(device, non_blocking=True)
            following = (*moved, side.record_event())
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = following
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(images: Tensor, index: Tensor, event: torch.cuda.Event) -> tuple[Tensor, Tensor]:
    current = torch.cuda.current_stream(images.device)
    current.wait_event(event)
    for tensor in (images, index):
        tensor.record_stream(current)
    return images, index


_on_device: WeakKeyDictionary[Dataset, dict[torch.device, Tensor]] = WeakKeyDictionary()


def samples_on(dataset: Dataset, device: torch.device) -> Tensor | None:
    """All samples in the memory of the device, copied once however many runs use them; None if they do not fit."""
    if dataset.images is None or dataset.images.device.type == device.type:
        return dataset.images
    copies = _on_device.setdefault(dataset, {})
    if device not in copies:
        free, _ = torch.cuda.mem_get_info(device)
        if dataset.images.nbytes > DEVICE_SHARE * free:
            return None
        copies[device] = dataset.images.to(device)
    return copies[device]


def where_samples_are(loader: Loader) -> str:
    """A sentence on where the samples of a run on a GPU lie and what they take there.

    >>> from icone.config import PretrainConfig
    >>> from icone.data import load_data
    >>> where_samples_are(Loader(load_data(PretrainConfig(source="synthetic:cells@16x23")).train, 1, seed=0))
    'the samples take 0.000 GB of the memory of cpu'
    """
    size = loader.dataset.nbytes / GB
    if loader.dataset.preparation.crops:
        return f"crops of the samples, which take {size:.3f} GB, are read while {loader.device} trains"
    if loader.resident:
        return f"the samples take {size:.3f} GB of the memory of {loader.device}"
    return f"the samples take {size:.3f} GB, too much for {loader.device} while it trains: they are streamed to it"


def larger_last_batch(loader: Loader) -> str:
    """A sentence on a last batch that is above the batch size.

    >>> from icone.config import PretrainConfig
    >>> from icone.data import load_data
    >>> train = load_data(PretrainConfig(source="synthetic:cells@16x23")).train
    >>> larger_last_batch(Loader(train, 2, seed=0, smallest_batch=2))
    'the last batch of every epoch has 3 samples, not 2, because the method cannot train on the 1 left over'
    """
    last, usual = loader.sizes[-1], loader.batch_size
    return (
        f"the last batch of every epoch has {last} samples, not {usual}, "
        f"because the method cannot train on the {last - usual} left over"
    )
