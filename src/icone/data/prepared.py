"""What is kept on disk about one source: what inspection found, and the prepared samples."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icone.config import DataConfig
from icone.data.cache import Cache, Rows, Say
from icone.data.formats.registry import quiet_readers
from icone.data.inspection import Facts, Inspection, Progress, inspect_source
from icone.data.prepare import Preparation
from icone.data.sources.base import Array, Source
from icone.data.splits import Integers
from icone.data.threads import read_ahead

DECODERS = ("torch", "numpy", "pillow", "nibabel", "tifffile", "pydicom", "zarr")


class SourceCache:
    """Facts and prepared samples of one source, as its files are now.

    The key of an entry is a digest of all that it depends on: name, size and times of every file, our code, the
    versions of the decoders, the positions and the preparation. The files are looked at before they are read, so
    a file that has changed, even while it was read, gives another key, and what was kept is not found again.
    """

    def __init__(self, source: Source, folder: Path, say: Say) -> None:
        self._source = source
        self._cache = Cache(folder, say)
        self._say = say
        self._state = _state(source)

    def inspect(
        self, source: Source, config: DataConfig, workers: int, progress: Progress | None, positions: Sequence[int]
    ) -> Inspection:
        """What `inspect_source` finds, from the cache where it is known; what could not be used is read again."""
        key = self._key("facts", list(positions))
        known = self._facts(key)
        inspection = inspect_source(source, config, workers, progress, positions, known)
        if len(inspection.facts) > len(known):
            facts = inspection.facts
            plain = [[*f[:-1], f.values.shape] for f in facts]
            width = max(f.values.size for f in facts)  # samples may differ in their channels
            rows = (np.pad(f.values.ravel(), (0, width - f.values.size)) for f in facts)
            self._cache.write(key, rows, (len(facts), width), "float32", self._about("facts", facts=plain))
        return inspection

    def samples(
        self, positions: Integers, preparation: Preparation, workers: int, progress: Progress | None
    ) -> PreparedSamples | None:
        """The prepared samples at ascending positions, prepared now if they are not kept; None where they cannot be."""
        key = self._key("samples", positions.tolist(), preparation.to_json())
        rows = self._cache.open(key)
        if rows is None:
            shape = (len(positions), preparation.channels, *preparation.size)
            prepared = self._prepare(positions, preparation, workers, progress)
            rows = self._cache.write(key, prepared, shape, preparation.dtype, self._about("samples"))
        return None if rows is None else PreparedSamples(rows, positions, lambda: self._drop(key))

    def _prepare(
        self, positions: Integers, preparation: Preparation, workers: int, progress: Progress | None
    ) -> Iterator[Array]:
        def prepare(position: int) -> Array:
            with self._source.room(position):
                return preparation(self._source.read(position)).numpy()

        with quiet_readers():
            for done, row in enumerate(read_ahead(prepare, positions.tolist(), workers, ahead=4 * workers), start=1):
                yield row
                if progress is not None:
                    progress(done, len(positions))

    def _facts(self, key: str) -> dict[int, Facts]:
        rows = self._cache.open(key)
        if rows is None:
            return {}
        values, damaged = rows.read(np.arange(len(rows)))
        if damaged:
            self._say("what the cache holds is damaged: the samples are looked at again")
            return {}
        found = (_fact(plain, row) for plain, row in zip(rows.about["facts"], values, strict=True))
        return {fact.position: fact for fact in found}

    def _drop(self, key: str) -> None:
        self._say("the cache is damaged: such samples are prepared from their files, and the next start makes it anew")
        self._cache.remove(key)

    def _key(self, *parts: Any) -> str:
        return _digest([self._state, *parts])

    def _about(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "source": self._source.name, **more}


class PreparedSamples:
    """Prepared samples on disk, found by their position in the source."""

    def __init__(self, rows: Rows, positions: Integers, drop: Callable[[], None]) -> None:
        self._rows = rows
        self._positions = positions
        self._drop = drop
        self._is_dropped = False

    def read(self, positions: Integers, prepare: Callable[[int], Tensor]) -> Tensor:
        """The samples at the given positions; a damaged one is made by `prepare`."""
        copy, damaged = self._rows.read(np.searchsorted(self._positions, positions))
        samples = torch.from_numpy(copy)
        for place in damaged:
            samples[place] = prepare(int(positions[place]))
        if damaged and not self._is_dropped:
            self._is_dropped = True
            self._drop()
        return samples


def _fact(plain: list[Any], row: Array) -> Facts:
    """What `inspect` has written about one sample."""
    position, shape, dtype, spacing, is_colour, low, high, kept = plain
    values = row[: math.prod(kept)].reshape(kept)
    return Facts(position, tuple(shape), dtype, spacing and tuple(spacing), is_colour, tuple(low), tuple(high), values)


def _state(source: Source) -> str:
    """A digest of what reading this source gives, short of reading it."""
    files = [(os.path.abspath(path), *_stamp(path)) for path in source.files()]
    return _digest([type(source).__name__, source.fingerprint(), files, _software()])


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file's content; the time of the last change of its inode cannot be set back."""
    try:
        stat = path.stat()
    except OSError:  # it vanished, or a link leads nowhere: reading it names it
        return ()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


@cache
def _software() -> str:
    """A digest of what turns files into samples: the code of this room, the decoders, the instruction set."""
    code = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]
    return _digest([code, [_version(name) for name in DECODERS], torch.backends.cpu.get_cpu_capability()])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()
