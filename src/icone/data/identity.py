"""The identity of samples by their content: an anchor belongs to a sample, so changed data must be noticed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from icone.files import read_sealed, write_sealed

SHOWN = 5
DIGEST_VERSION = 2
"""Digests of another version cannot be compared with those of this one; version 1 looked at 16 KB at both ends."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a further change of a file would show in its times, on file systems with coarse ones too."""


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

    @property
    def keeps_content(self) -> bool:
        """Whether an instance is still there as it was, perhaps under another name."""
        return len(self.rows) > len(self.gained) + len(self.changed)

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

    An instance with the same id and content is itself. What is left is matched by content, one to one and in order
    where several have the same; then by id, which is a changed content.

    >>> change = compare_instances(["a", "b"], {"a": "1", "b": "2"}, ["a", "c", "d"], {"a": "1", "c": "2", "d": "3"})
    >>> str(change), change.rows
    ('gained 1: d; renamed 1: b -> c', [0, 1, None])
    """
    old_rows = {name: row for row, name in enumerate(old_ids)}
    former = {name: name for name in new_ids if name in old_rows and _agree(name, old_digests, new_digests)}
    waiting: dict[str, deque[str]] = defaultdict(deque)
    for name in old_ids:
        if name not in former and name in old_digests:
            waiting[old_digests[name]].append(name)
    for name in new_ids:
        if name not in former and waiting.get(new_digests.get(name, "")):
            former[name] = waiting[new_digests[name]].popleft()
    renamed = [(former[name], name) for name in new_ids if former.get(name, name) != name]
    taken = set(former.values())
    changed = [name for name in new_ids if name not in former and name in old_rows and name not in taken]
    former |= {name: name for name in changed}
    taken.update(changed)
    return InstanceChange(
        gained=[name for name in new_ids if name not in former],
        lost=[name for name in old_ids if name not in taken],
        renamed=renamed,
        changed=changed,
        rows=[old_rows[former[name]] if name in former else None for name in new_ids],
    )


def _agree(name: str, old: dict[str, str], new: dict[str, str]) -> bool:
    """Whether nothing says that a content has changed."""
    return name not in old or name not in new or old[name] == new[name]


class DigestMemory:
    """Digests of contents that have been read before, in a file of the cache folder for every source.

    A digest is found under the size and the times that its file had, so that of a changed file is never found. The
    file holds a digest of itself and is replaced as a whole: what is damaged is passed over, and of two processes
    that write at once, one is remembered. Without a folder nothing is.
    """

    def __init__(self, folder: Path | None = None, source: str = "") -> None:
        name = content_digest(f"{DIGEST_VERSION} {source}".encode("utf-8", "surrogateescape"))
        self._file = None if folder is None else folder / "digests" / name
        self._known: dict[str, tuple[str, str]] = {}
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):
                self._known = read_sealed(self._file)
        self._is_changed = False

    def find(self, name: str, stamp: str) -> str | None:
        """The digest of a content with this name, if it still has the stamp."""
        before, digest = self._known.get(name, ("", ""))
        return digest if before == stamp else None

    def keep(self, name: str, stamp: str, digest: str) -> None:
        self._known[name] = (stamp, digest)
        self._is_changed = True

    def of_file(self, path: Path) -> str:
        """The digest of a file's whole content."""
        name, times = os.path.abspath(path), _times(path)
        stamp = " ".join(map(str, times))
        digest = self.find(name, stamp)
        if digest is None:
            digest = _hash_file(path)
            if _is_settled(times):
                self.keep(name, stamp, digest)
        return digest

    def save(self) -> None:
        """Keep what was learned for other processes."""
        if self._file is None or not self._is_changed:
            return
        with contextlib.suppress(OSError):  # the cache has said what it cannot
            write_sealed(self._file, self._known)


def content_digest(*parts: bytes | memoryview) -> str:
    """A digest of parts of a content: 32 hexadecimal digits.

    >>> content_digest(b"a", b"b") == content_digest(b"ab")
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


_PROCESS = DigestMemory()


def file_digest(path: Path) -> str:
    """A digest of a file's whole content; remembered within the process while its size and times stay the same."""
    return _PROCESS.of_file(path)


def stamp_files(paths: Sequence[Path]) -> str | None:
    """What changes when one of these files does; None as long as a change might not show."""
    times = [_times(path) for path in paths]
    return content_digest(repr(times).encode()) if all(map(_is_settled, times)) else None


def _hash_file(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def _times(path: Path) -> tuple[int, int, int]:
    """Size, time of the last change, and of the last change of its inode, which cannot be set back."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _is_settled(times: tuple[int, ...]) -> bool:
    return time.time_ns() - max(times[1:]) > SETTLED


def _listing(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{word} {len(names)}: {', '.join(names[:SHOWN])}{more}"
