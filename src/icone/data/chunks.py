"""Samples at their own resolution, cut into chunks that are kept on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from torch import Tensor

from icone.data.formats.base import PREPARING, Array
from icone.data.formats.registry import quiet_readers
from icone.data.inspection import Progress
from icone.data.memory import GB
from icone.data.prepare import Preparation
from icone.data.source_cache import SourceCache
from icone.data.sources.base import Source
from icone.data.splits import Integers
from icone.data.threads import read_ahead
from icone.errors import InputError

CHUNK = {2: 128, 3: 32}
"""Edge of a chunk in pixels or voxels, by spatial axes: a crop of 96³ touches at most 64 chunks."""
Shape = tuple[int, ...]


def chunk_dtype(preparation: Preparation) -> str:
    """The type of the values in chunks: intensities of other types than 8 bit are kept with 16."""
    return "uint8" if preparation.dtype == "uint8" else "int16"


def chunk_shape(preparation: Preparation) -> Shape:
    """Channels and edges of one chunk."""
    return preparation.channels, *(CHUNK[preparation.spatial_dims],) * preparation.spatial_dims


def chunk_grid(shape: Shape) -> Shape:
    """Chunks along each axis of a sample.

    >>> chunk_grid((300, 512, 512))
    (10, 16, 16)
    """
    return tuple(-(-n // CHUNK[len(shape)]) for n in shape)


def chunk_bytes(preparation: Preparation, shape: Shape) -> int:
    """Bytes of all chunks of a sample."""
    values = math.prod(chunk_grid(shape)) * math.prod(chunk_shape(preparation))
    return values * np.dtype(chunk_dtype(preparation)).itemsize


class Rows(Protocol):
    """Chunks by their number."""

    def read(self, rows: Integers) -> tuple[Array, list[int]]:
        """A copy of the given rows, and which of these are damaged."""


class MemoryRows:
    """Chunks in memory, where none can be kept on disk."""

    def __init__(self, chunks: Array) -> None:
        self._chunks = chunks

    def read(self, rows: Integers) -> tuple[Array, list[int]]:
        return self._chunks[rows], []


class ChunkedSamples:
    """Prepared samples of any shape, cut into chunks of one shape that lie one after another.

    Sample i has the spatial shape `shapes[i]`. Values are uint8, or int16 from −32768 (0) to 32767 (1). What the last
    chunks of an axis have beyond the sample has no meaning.
    """

    def __init__(
        self, rows: Rows, damage: Callable[[], None], shapes: Sequence[Shape], preparation: Preparation
    ) -> None:
        self._rows, self.shapes, self._damage = rows, list(shapes), damage
        self._chunk = chunk_shape(preparation)
        counts = [math.prod(chunk_grid(shape)) for shape in shapes]
        self._first = np.concatenate([[0], np.cumsum(counts)])

    @property
    def is_on_disk(self) -> bool:
        return not isinstance(self._rows, MemoryRows)

    def read(self, sample: int, start: Shape, stop: Shape) -> Array:
        """The region [start, stop) of a sample, which lies inside it: (C, *(stop − start)) in the type of chunks."""
        grid, edge = chunk_grid(self.shapes[sample]), self._chunk[1]
        begin = [a // edge for a in start]
        ranges = [range(a, -(-b // edge)) for a, b in zip(begin, stop, strict=True)]
        counts = [len(one) for one in ranges]
        places = np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), grid).ravel()
        chunks, damaged = self._rows.read(self._first[sample] + places)
        if damaged:
            self._damage()
        axes = len(counts)
        tiled = chunks.reshape(*counts, *self._chunk)
        order = [
            axes,
            *(axis for pair in zip(range(axes), range(axes + 1, 2 * axes + 1), strict=True) for axis in pair),
        ]
        whole = tiled.transpose(order).reshape(self._chunk[0], *(n * edge for n in counts))
        spans = (slice(a - b * edge, c - b * edge) for a, b, c in zip(start, begin, stop, strict=True))
        return whole[(slice(None), *spans)]


def chunks_of(slabs: Iterator[Tensor], preparation: Preparation) -> Iterator[Array]:
    """The chunks of one prepared sample from its slabs along the first axis, in C order of their places.

    A slab is (C, edge, …), the last one may be thinner.
    """
    dtype, (_, edge, *_) = chunk_dtype(preparation), chunk_shape(preparation)
    for slab in slabs:
        values = slab.numpy()
        if dtype == "int16":  # `icone.views.base.unit_range` is the inverse
            values = (np.rint(values * 65_535) - 32_768).astype(dtype)
        values = np.pad(values, [(0, 0), *((0, -n % edge) for n in values.shape[1:])])
        channels, _, *rest = values.shape
        split = values.reshape(channels, edge, *(m for n in rest for m in (n // edge, edge)))
        places = [2 + 2 * axis for axis in range(len(rest))]
        split = split.transpose(*places, 0, 1, *(axis + 1 for axis in places))
        yield from split.reshape(-1, channels, edge, *(edge for _ in rest))


def slabs_of(source: Source, preparation: Preparation, position: int) -> Iterator[Tensor]:
    """A sample prepared slab by slab, so that beside the decoded file little more is in memory.

    Where it is resampled to a spacing, it is prepared whole.
    """
    edge = CHUNK[preparation.spatial_dims]
    with source.room(position):
        sample = source.read(position)
        if preparation.spacing is not None or (preparation.low is None and preparation.colour != "auto"):
            yield from preparation(sample).split(edge, dim=1)
            return
        own = preparation.with_range_of(sample.array)
        for start in range(0, sample.array.shape[1], edge):
            yield own(sample._replace(array=sample.array[:, start : start + edge]))


def keep_chunks(
    source: Source,
    preparation: Preparation,
    positions: Integers,
    shapes: Sequence[Shape],
    cache: SourceCache | None,
    memory_limit: float,
    workers: int,
    progress: Progress | None,
) -> ChunkedSamples:
    """The samples at ascending positions, of these spatial shapes, in chunks: on disk, or in memory up to a limit."""
    count, shape = sum(math.prod(chunk_grid(one)) for one in shapes), chunk_shape(preparation)
    dtype = chunk_dtype(preparation)
    largest = preparation.channels * max(map(math.prod, shapes)) * (PREPARING + 8)
    threads = workers if (2 * workers + 1) * largest <= memory_limit else 0
    make = partial(_all_chunks, source, preparation, positions.tolist(), threads, progress)
    kept = cache.chunks(positions, preparation, (count, *shape), dtype, make()) if cache else None
    if kept is not None:
        return ChunkedSamples(*kept, shapes, preparation)
    needed = sum(chunk_bytes(preparation, one) for one in shapes)
    if needed > memory_limit:
        raise InputError(
            f"the samples at their own resolution take {needed / GB:.1f} GB, and can be kept neither on disk nor in "
            "memory: name a folder for them with --cache DIR, or allow them more memory with --memory-gb"
        )
    chunks: Array = np.empty((count, *shape), dtype)
    for row, chunk in enumerate(make()):
        chunks[row] = chunk
    return ChunkedSamples(MemoryRows(chunks), lambda: None, shapes, preparation)


def _all_chunks(
    source: Source, preparation: Preparation, positions: Sequence[int], threads: int, progress: Progress | None
) -> Iterator[Array]:
    """The chunks of all samples; several samples at a time where there are threads for it, else slab by slab."""

    def one(position: int) -> Iterator[Array]:
        return chunks_of(slabs_of(source, preparation, position), preparation)

    with quiet_readers():
        found = (
            read_ahead(lambda p: list(one(p)), positions, threads, ahead=threads) if threads else map(one, positions)
        )
        for done, chunks in enumerate(found, start=1):
            yield from chunks
            if progress is not None:
                progress(done, len(positions))
