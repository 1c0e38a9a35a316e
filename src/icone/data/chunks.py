"""Samples at their own resolution, cut into chunks that are kept on disk."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from torch import Tensor

from icone.data.formats.base import PREPARING, Array, Sample
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
AT_ONCE = 2**26
"""Bytes that preparing a part of a sample may take."""
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


def chunks_of(source: Source, preparation: Preparation, position: int) -> Iterator[Array]:
    """The chunks of one sample in C order of their places; beside what is read, little more than a slab is in memory.

    Of a large file whose format allows it, one slab of chunks is read at a time. Where samples are resampled to a
    spacing, or scaled by percentiles of their own, they are read whole.
    """
    edge = CHUNK[preparation.spatial_dims]
    image = source.regions(position) if preparation.low is not None and preparation.spacing is None else None
    if image is not None:
        _, depth, *rest = image.shape
        for start in range(0, depth, edge):
            region = image.read((start, *(0 for _ in rest)), (min(start + edge, depth), *rest))
            yield from _split(_prepared_slab(Sample(region, is_colour=image.is_colour), preparation), preparation)
        return
    with source.room(position):
        sample = source.read(position)
        if preparation.spacing is not None or (preparation.low is None and preparation.colour != "auto"):
            for slab in preparation(sample).split(edge, dim=1):
                yield from _split(_encoded(slab), preparation)
            return
        own = preparation.with_range_of(sample.array)
        for start in range(0, sample.array.shape[1], edge):
            part = sample._replace(array=sample.array[:, start : start + edge])
            yield from _split(_prepared_slab(part, own), own)


def _prepared_slab(part: Sample, preparation: Preparation) -> Array:
    """A slab (C, ≤ edge, …) of a sample as it is kept, prepared a few of its planes at a time."""
    _, depth, *rest = part.array.shape
    planes = max(1, AT_ONCE // (len(part.array) * math.prod(rest) * PREPARING))
    slab: Array = np.empty((preparation.channels, depth, *rest), chunk_dtype(preparation))
    for start in range(0, depth, planes):
        thin = part._replace(array=part.array[:, start : start + planes])
        slab[:, start : start + planes] = _encoded(preparation(thin))
    return slab


def _encoded(prepared: Tensor) -> Array:
    """Values in [0, 1] as 16 bit; `icone.views.base.unit_range` is the inverse. What is 8 bit stays so."""
    values: Array = prepared.numpy()
    return values if values.dtype == np.uint8 else (np.rint(values * 65_535) - 32_768).astype(np.int16)


def _split(slab: Array, preparation: Preparation) -> Iterator[Array]:
    """The chunks of a slab along all its axes but the first spatial one, those at the end filled up with 0."""
    shape, (_, _, *rest) = chunk_shape(preparation), slab.shape
    for place in itertools.product(*(range(0, n, shape[1]) for n in rest)):
        part = slab[(slice(None), slice(None), *(slice(a, a + shape[1]) for a in place))]
        if part.shape != shape:
            part = np.pad(part, [(0, n - m) for n, m in zip(shape, part.shape, strict=True)])
        yield np.ascontiguousarray(part)


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
            "memory: name a folder for them with --cache=DIR, or allow them more memory with --memory-gb"
        )
    chunks: Array = np.empty((count, *shape), dtype)
    for row, chunk in enumerate(make()):
        chunks[row] = chunk
    return ChunkedSamples(MemoryRows(chunks), lambda: None, shapes, preparation)


def _all_chunks(
    source: Source, preparation: Preparation, positions: Sequence[int], threads: int, progress: Progress | None
) -> Iterator[Array]:
    """The chunks of all samples; several samples at a time where there are threads for it, else slab by slab."""
    one = partial(chunks_of, source, preparation)
    with quiet_readers():
        found: Iterator[Iterable[Array]] = map(one, positions)
        if threads:
            found = read_ahead(lambda position: list(one(position)), positions, threads, ahead=threads)
        for done, chunks in enumerate(found, start=1):
            yield from chunks
            if progress is not None:
                progress("cutting the samples into chunks", done, len(positions))
