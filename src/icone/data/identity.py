"""The identity of samples by their content: an anchor belongs to a sample, so changed data must be noticed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SHOWN = 5


@dataclass(frozen=True)
class InstanceChange:
    """How the instances of a run differ from those found now; falsy when they do not differ.

    `rows[i]` is the old row of instance i now, or None; a renamed file keeps its row.
    """

    gained: list[str]
    lost: list[str]
    renamed: list[tuple[str, str]]
    changed: list[str]
    rows: list[int | None]

    def __bool__(self) -> bool:
        return bool(
            self.gained or self.lost or self.renamed or self.changed or self.rows != list(range(len(self.rows)))
        )

    def __str__(self) -> str:
        parts = [
            _listing("gained", self.gained),
            _listing("lost", self.lost),
            _listing("renamed", [f"{old} -> {new}" for old, new in self.renamed]),
            _listing("changed content", self.changed),
        ]
        return "; ".join(part for part in parts if part) or "the same files in another order"


def compare_instances(
    old_ids: Sequence[str], old_digests: dict[str, str], new_ids: Sequence[str], new_digests: dict[str, str]
) -> InstanceChange:
    """Find gained, lost, renamed and changed instances by id and digest.

    >>> change = compare_instances(["a", "b"], {"a": "1", "b": "2"}, ["a", "c", "d"], {"a": "1", "c": "2", "d": "3"})
    >>> str(change), change.rows
    ('gained 1: d; renamed 1: b -> c', [0, 1, None])
    """
    old_rows = {name: row for row, name in enumerate(old_ids)}
    lost = [name for name in old_ids if name not in set(new_ids)]
    gained = [name for name in new_ids if name not in old_rows]
    orphan = {old_digests[name]: name for name in lost if name in old_digests}
    former = {name: orphan.pop(new_digests[name]) for name in gained if new_digests.get(name) in orphan}
    return InstanceChange(
        gained=[name for name in gained if name not in former],
        lost=[name for name in lost if name not in former.values()],
        renamed=[(old, new) for new, old in former.items()],
        changed=[n for n in new_ids if n in old_digests and n in new_digests and old_digests[n] != new_digests[n]],
        rows=[old_rows.get(former.get(name, name)) for name in new_ids],
    )


def file_digest(path: Path) -> str:
    """A digest of a file's whole content; remembered within the process while its size and time stay the same."""
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _digest(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _listing(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{word} {len(names)}: {', '.join(names[:SHOWN])}{more}"
