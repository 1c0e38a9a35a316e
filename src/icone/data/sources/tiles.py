"""The tiles of one or a few huge images or volumes as a data set."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from icone.config import DataConfig
from icone.data.background import FOREGROUND, Content, find_content
from icone.data.formats.base import Header
from icone.data.formats.lazy import LazyImage
from icone.data.formats.registry import FORMATS, path_and_key, quiet_readers
from icone.data.identity import DigestMemory, content_digest
from icone.data.layouts import labels_from_folders, splits_from_folders
from icone.data.memory import check_fits
from icone.data.sources.base import Counted, Sample, Source, uncounted
from icone.data.sources.found_files import FoundSample, Patterns, find_sample, find_samples
from icone.errors import InputError, one_line

PER_TILE = 400
"""Bytes that this package keeps about every tile: its id, its place, its digest."""
DIGESTED = 32
"""Tiles of a file whose contents stand for it in its digest."""


class TiledImage(NamedTuple):
    """A huge image and the regular grid of its tiles: tile i begins at i · stride along every axis."""

    name: str
    path: Path
    image: LazyImage
    nbytes: int
    """Bytes of its files."""
    tile: int
    stride: int

    @property
    def grid(self) -> tuple[int, ...]:
        """Tiles along each axis; one that reaches over the end is among them if at least half of it is inside."""
        whole = [max(0, n - self.tile) // self.stride + 1 for n in self.image.shape[1:]]
        ends = [(count - 1) * self.stride + self.tile for count in whole]
        return tuple(
            count + (end < n and 2 * (n - count * self.stride) >= self.tile)
            for count, end, n in zip(whole, ends, self.image.shape[1:], strict=True)
        )

    def region(self, cell: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where the tile at a place in the grid begins and ends."""
        start = tuple(int(i) * self.stride for i in cell)
        return start, tuple(min(a + self.tile, n) for a, n in zip(start, self.image.shape[1:], strict=True))

    def digest(self) -> str:
        """A digest of what the image is: shape, type, bytes of its files, and some tiles all over it."""
        cells = np.linspace(0, math.prod(self.grid) - 1, min(DIGESTED, math.prod(self.grid))).astype(int)
        regions = [self.region([int(i) for i in np.unravel_index(cell, self.grid)]) for cell in cells]
        parts = [np.ascontiguousarray(self.image.read(*region)).data for region in regions]
        return content_digest(f"{self.image.shape} {self.image.dtype.str} {self.nbytes}".encode(), *parts)


class TilesSource(Source):
    """Every tile of some images that is not background; its id is `name/z,y,x`, where it begins, or `name/y,x`.

    Tiles are read when asked for, at the resolution of the file, so nothing is kept on disk. What a tile lacks where it
    reaches over the end of its image is mirrored. Tiles of one file share a
    group. A tile's digest is that of its place and of its file, which is known by shape, type, bytes and the contents
    of 32 tiles: to digest all of a terabyte would be to read it. A change elsewhere that keeps the size of the files is
    not noticed.
    """

    is_decoded: ClassVar[bool] = False
    is_sampled: ClassVar[bool] = True

    def __init__(self, name: str, images: Sequence[TiledImage], background: Any) -> None:
        self.images = tuple(images)
        dims = {len(one.image.shape) - 1: one.name for one in images}
        if len(dims) > 1:
            raise InputError(f"{dims[2]} is a 2D image and {dims[3]} a volume: pretrain on each by itself")
        count = sum(math.prod(one.grid) for one in images)
        check_fits(count * PER_TILE, f"a list of the {count} tiles of {name}", "give a larger --stride")
        found = [_tiles(one, background) for one in images]
        self.image_of: npt.NDArray[np.int64] = np.repeat(np.arange(len(images)), [len(cells) for cells, _ in found])
        """The number of the image of every tile."""
        self.cells: npt.NDArray[np.int64] = np.concatenate([cells for cells, _ in found])
        """The place of every tile in the grid of its image."""
        if not len(self.cells):
            raise InputError(f"all {count} tiles of {name} are background: --background=keep takes them all")
        names = [one.name for one in images]
        assigned, below = splits_from_folders(names)
        labels = labels_from_folders(below)
        super().__init__(
            name=name,
            spatial_dims=next(iter(dims)),
            ids=[self._id(position) for position in range(len(self.cells))],
            labels=labels and [labels[number] for number in self.image_of],
            paths=[self.images[number].path for number in self.image_of],
            size=images[0].tile,
        )
        self.groups = tuple(names[number] for number in self.image_of)
        self.assigned = assigned and tuple(assigned[number] for number in self.image_of)
        self.notes = tuple(_notes(self, count, [content for _, content in found if content is not None]))
        self._digests: dict[int, str] = {}

    def by_file(self) -> TilesSource:
        """A copy whose samples are the files, to be asked for their ids, labels and groups alone."""
        files = copy.copy(self)
        files.ids = tuple(one.name for one in self.images)
        firsts = [int(np.argmax(self.image_of == number)) for number in range(len(self.images))]
        files.labels = self.labels and tuple(self.labels[first] for first in firsts)
        files.groups = files.ids
        return files

    def where(self, position: int) -> str:
        return f"tile {self.ids[position].rpartition('/')[2]} of {self.paths[position]}"

    def _id(self, position: int) -> str:
        one = self.images[self.image_of[position]]
        return f"{one.name}/{','.join(map(str, one.region(self.cells[position])[0]))}"

    def _read(self, position: int) -> Sample:
        one = self.images[self.image_of[position]]
        array = one.image.read(*one.region(self.cells[position]))
        if min(array.shape[1:]) < one.tile:
            array = np.pad(array, [(0, 0), *((0, one.tile - n) for n in array.shape[1:])], mode="symmetric")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError("it holds NaN or infinite values")
        return Sample(array, is_colour=one.image.is_colour, names=one.image.names)

    def _bytes_needed(self, position: int) -> int:
        one = self.images[self.image_of[position]]
        return Header((one.image.channels, *(one.tile,) * self.spatial_dims), one.image.dtype).working_bytes

    def digests(
        self, positions: Sequence[int], memory: DigestMemory, workers: int = 2, progress: Counted = uncounted
    ) -> list[str]:
        """A digest of every tile from that of its file."""
        for number in sorted({int(self.image_of[position]) for position in positions} - self._digests.keys()):
            try:
                self._digests[number] = self.images[number].digest()
            except Exception as error:  # decoders raise anything
                raise InputError(f"cannot read {self.images[number].path}: {one_line(error)}") from error
        return [self._digest(position, memory) for position in positions]

    def _digest(self, position: int, memory: DigestMemory) -> str:
        number = int(self.image_of[position])
        start, stop = self.images[number].region(self.cells[position])
        return content_digest(f"{self._digests[number]} {start} {stop}".encode())

    def _identity(self) -> str:
        about = [(one.image.shape, one.image.dtype.str, one.nbytes, one.tile, one.stride) for one in self.images]
        return f"tiles of {about}"


def _tiles(one: TiledImage, background: Any) -> tuple[npt.NDArray[np.int64], Content | None]:
    """The places in the grid of an image whose tiles are samples, and what tells them from background."""
    cells = np.stack(np.unravel_index(np.arange(math.prod(one.grid)), one.grid), axis=1)
    if background == "keep":
        return cells, None
    try:
        with quiet_readers():
            content = find_content(one.image, one.tile, background)
    except MemoryError:
        raise
    except Exception as error:  # decoders raise anything
        raise InputError(f"cannot read {one.path}: {one_line(error)}") from error
    shape = one.image.shape[1:]
    return cells[[content.has_content(*one.region(cell), shape) for cell in cells.tolist()]], content


def _notes(source: TilesSource, count: int, contents: Sequence[Content]) -> list[str]:
    tile, stride = source.images[0].tile, source.images[0].stride
    edges = "×".join([str(tile)] * source.spatial_dims)
    overlap = f", {stride} apart" if stride != tile else ""
    notes = [f"{len(source):,} of {count:,} tiles of {edges}{overlap} are samples"]
    if contents:
        sides = " or ".join(sorted({content.side for content in contents}))
        notes[0] += (
            f"; {count - len(source):,} are background ({sides}): less than {FOREGROUND:.0%} of the tile lies on the "
            "other side of Otsu's threshold, or it is constant (--background)"
        )
    steps = {(one.image.steps, one.image.unit) for one in source.images}
    if len(steps) == 1 and (unit := source.images[0].image.unit):
        notes.append(
            f"tiles keep the stored resolution: {' × '.join(f'{s:g}' for s in source.images[0].image.steps)} {unit}"
        )
    return [*notes, *sorted({note for one in source.images for note in one.image.notes})]


def open_tiles(data: Any, config: DataConfig) -> TilesSource:
    """The tiles of a file, of an array in a file (`file.h5:/path`), or of all files in a folder."""
    assert config.tiles is not None
    if not isinstance(data, (str, os.PathLike)):
        raise InputError(
            f"--tiles is for files, got a {type(data).__name__}: save it as .npy or .zarr and give the path"
        )
    path, key = path_and_key(os.fspath(data))
    found = _find(path, config)
    images = []
    for name, sample in found.items():
        if sample.format.open_lazy is None:
            known = ", ".join(suffix for suffix, one in FORMATS.items() if one.open_lazy)
            raise InputError(
                f"{sample.path} cannot be read by tiles; files that can be end with {known}. Convert it to OME-Zarr; "
                "`icone pretrain --crop` takes random crops of samples of every type"
            )
        sample.format.check_installed()
        try:
            image = sample.format.open_lazy(sample.path, config.axes, key)
        except Exception as error:  # decoders raise anything
            raise InputError(f"cannot read {sample.path}: {one_line(error)}") from error
        nbytes = sum(one.stat().st_size for one in sample.files)
        images.append(TiledImage(name, sample.path, image, nbytes, config.tiles, config.stride or config.tiles))
    return TilesSource(path.resolve().name, images, config.background)


def _find(path: Path, config: DataConfig) -> dict[str, FoundSample]:
    """The images at a path, by name."""
    if not path.is_dir():
        if config.include or config.exclude:
            raise InputError(f"--include and --exclude are for folders, and {path} is none: leave them out")
        return {path.name: find_sample(path)}
    found = find_samples(path, Patterns(config.include, config.exclude)).samples
    if not found:
        raise InputError(f"no images or volumes in {path}")
    return dict(sorted(found.items()))
