"""What is kept on disk about one source: what inspection found, and the prepared samples.

Nothing is read from the source here: whoever finds nothing kept reads it, and hands over what to keep.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icone.data.cache import Cache, Say
from icone.data.formats.base import Array, package_version
from icone.data.formats.npy import CheckedRows
from icone.data.formats.registry import software_of
from icone.data.identity import content_digest
from icone.data.inspection import Facts
from icone.data.prepare import Preparation
from icone.data.sources.base import Source
from icone.data.splits import Integers
from icone.errors import InputError


class SourceCache:
    """Facts and prepared samples of one source, as its files are now.

    The key of an entry is a digest of all that it depends on: name, size and times of every file, how the source was
    told to read them, our code, the formats of the files and the packages that decode them, the positions and the
    preparation. The files are looked at before they are read, so a file that has changed, even while it was read, gives
    another key, and what was kept is not found again.
    """

    def __init__(self, source: Source, folder: Path, say: Say) -> None:
        self._cache = Cache(folder, say)
        self._name = source.name
        files = source.files()
        stamps = [(os.path.abspath(path), *_stamp(path)) for path in files]
        kind = type(source).__name__
        about = [kind, source.fingerprint(), source.reading]
        self._state = _digest([*about, stamps, software_of(files), _own_software()])

    def facts(self, positions: Sequence[int]) -> dict[int, Facts]:
        """What is known about the samples at these positions; nothing about those that could not be used."""
        rows = self._cache.open(self._facts_key(positions))
        if rows is None:
            return {}
        values, damaged = rows.read(np.arange(len(rows)))
        if damaged:
            self._cache.say("what the cache holds is damaged: the samples are looked at again")
            return {}
        kinds = [
            tuple(tuple(part) if isinstance(part, list) else part for part in kind) for kind in rows.about["kinds"]
        ]
        found = {}
        for (position, number, low, high), row in zip(rows.about["facts"], values, strict=True):
            shape, dtype, spacing, is_colour, kept, names, notes = kinds[number]
            some, ends = row[: math.prod(kept)].reshape(kept), (tuple(low), tuple(high))
            found[position] = Facts(position, shape, dtype, spacing, is_colour, *ends, some, names, notes)
        return found

    def keep_facts(self, positions: Sequence[int], facts: Sequence[Facts]) -> None:
        """Keep what an inspection of these positions found."""
        kinds: dict[Any, int] = {}
        plain = []
        for fact in facts:
            kind = (fact.shape, fact.dtype, fact.spacing, fact.is_colour, fact.values.shape, fact.names, fact.notes)
            plain.append([fact.position, kinds.setdefault(kind, len(kinds)), fact.low, fact.high])
        width = max(fact.values.size for fact in facts)  # samples may differ in their channels
        rows = (fact.values.ravel() for fact in facts)
        rows = (row if len(row) == width else np.pad(row, (0, width - len(row))) for row in rows)
        about = {"kind": "facts", "source": self._name, "kinds": list(kinds), "facts": plain}
        self._cache.write(self._facts_key(positions), rows, (len(facts), width), "float32", about)

    def samples(
        self, positions: Integers, preparation: Preparation, prepared: Iterable[Array]
    ) -> PreparedSamples | None:
        """The prepared samples at ascending positions; None where they cannot be kept.

        Where they are not kept yet, `prepared` gives them, one after another; else it is not even begun.
        """
        key = _digest([self._state, "samples", positions.tolist(), preparation.to_json()])
        rows = self._cache.open(key)
        if rows is None:
            shape = (len(positions), preparation.channels, *preparation.size)
            about = {"kind": "samples", "source": self._name}
            rows = self._cache.write(key, prepared, shape, preparation.dtype, about)
        return None if rows is None else PreparedSamples(self._cache, key, rows, positions)

    def chunks(
        self,
        positions: Integers,
        preparation: Preparation,
        shape: tuple[int, ...],
        dtype: str,
        chunks: Iterable[Array],
    ) -> tuple[CheckedRows, Callable[[], None]] | None:
        """The chunks of samples that keep their resolution, and what to call where one is damaged.

        The size of the crops is no part of the key, because chunks do not depend on it.
        """
        plain = {name: value for name, value in preparation.to_json().items() if name != "size"}
        key = _digest([self._state, "chunks", positions.tolist(), plain, shape])
        about = {"kind": "chunks", "source": self._name}
        rows = self._cache.open(key) or self._cache.write(key, chunks, shape, dtype, about)

        def damage() -> None:
            self._cache.remove(key)
            raise InputError(
                "what the cache holds of the samples is damaged, and is deleted: start again, with --resume where "
                "the run had begun, and it is made anew"
            )

        return None if rows is None else (rows, damage)

    def _facts_key(self, positions: Sequence[int]) -> str:
        return _digest([self._state, "facts", list(positions)])


class PreparedSamples:
    """Prepared samples on disk, found by their position in the source."""

    def __init__(self, cache: Cache, key: str, rows: CheckedRows, positions: Integers) -> None:
        self._cache, self._key, self._rows, self._positions = cache, key, rows, positions
        self._is_removed = False

    def read(self, positions: Integers) -> tuple[Tensor, list[int]]:
        """The samples at the given positions, and which of these are damaged.

        At the first damage the entry is removed, so that the next start makes it anew; the others stay readable.
        """
        copy, damaged = self._rows.read(np.searchsorted(self._positions, positions))
        if damaged and not self._is_removed:
            self._is_removed = True
            self._cache.say(
                "the cache is damaged: such samples are prepared from their files, and the next start makes it anew"
            )
            self._cache.remove(self._key)
        return torch.from_numpy(copy), damaged


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file's content; the time of the last change of its inode cannot be set back."""
    try:
        stat = path.stat()
    except OSError:  # it vanished, or a link leads nowhere: reading it names it
        return ()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


@cache
def _own_software() -> str:
    """A digest of what turns decoded files into samples: the code of `icone.data`, torch, NumPy, the instructions."""
    code = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.rglob("*.py"))]
    versions = [package_version(name) for name in ("torch", "numpy")]
    return _digest([code, versions, torch.backends.cpu.get_cpu_capability()])


def _digest(content: Any) -> str:
    return content_digest(json.dumps(content).encode())
