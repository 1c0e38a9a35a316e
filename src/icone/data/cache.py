"""Arrays that are kept on disk between runs: written whole or not at all, checked when they are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt

from icone.data.memory import GB
from icone.data.source import Array, one_line

Say = Callable[[str], None]

ABANDONED = 3600.0
"""Seconds after which an unfinished file that nobody writes to any more counts as left by a killed process."""


def cache_folder(setting: str) -> Path | None:
    """The folder that `--cache` names: `auto` is the user's cache folder, `off` is none."""
    if setting == "off":
        return None
    if setting != "auto":
        return Path(setting).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icone"


class Damaged(Exception):
    """A kept array is not what was written."""


class Entry(NamedTuple):
    """What the folder says about one kept array."""

    key: str
    about: dict[str, Any]
    nbytes: int
    used: float
    """When it was last used, in seconds since the epoch."""


class Rows:
    """A kept array (N, …), mapped into memory; a row is checked against its checksum when it is first read."""

    def __init__(self, array: Array, about: dict[str, Any]) -> None:
        self.about = about
        self._array = np.asarray(array)
        self._checksums = about["checksums"]
        self._checked: npt.NDArray[np.bool_] = np.zeros(len(array), dtype=bool)

    def __len__(self) -> int:
        return len(self._array)

    def read(self, rows: npt.NDArray[np.int64]) -> tuple[Array, list[int]]:
        """A copy of the given rows, and which of its rows are damaged."""
        copy: Array = self._array[rows]
        damaged = []
        for place, row in enumerate(rows.tolist()):
            if not self._checked[row]:
                self._checked[row] = zlib.crc32(copy[place].data) == self._checksums[row]
            if not self._checked[row]:
                damaged.append(place)
        return copy, damaged


class Cache:
    """A folder of kept arrays, two files each: KEY.npy and KEY.json, which is written last and makes it valid.

    Whatever the disk refuses is said, and the work goes on without the cache. Two processes may write the same
    entry at once: each writes a file of its own and moves it into place. An entry that another process removes
    stays readable for those who have mapped it.
    """

    def __init__(self, folder: Path, say: Say) -> None:
        self.folder = folder
        self._say = say
        self._is_refused = False

    def open(self, key: str) -> Rows | None:
        """The array kept under a key; None if there is none, or if it is damaged, which is said."""
        try:
            rows = self._load(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (Damaged, OSError, ValueError) as error:
            self._say(f"what the cache holds cannot be used and is made anew ({one_line(error)})")
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # a folder that can only be read serves as well
            os.utime(self._description(key))
        return rows

    def write(
        self, key: str, rows: Iterable[Array], shape: tuple[int, ...], dtype: str, about: dict[str, Any]
    ) -> Rows | None:
        """Keep rows that form an array of this shape, then open it; None, and the reason is said, where it cannot."""
        if self._is_refused:
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._make_room(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize):
                return None
            with self._replacing(self._data(key)) as file:
                checksums = _write_rows(file, rows, shape, np.dtype(dtype))
            about = {**about, "shape": list(shape), "dtype": dtype, "checksums": checksums}
            with self._replacing(self._description(key)) as file:
                file.write(_sealed(about))
        except OSError as error:
            self._is_refused = True
            self._say(
                f"the prepared samples cannot be kept in {self.folder} ({one_line(error)}), so the next start "
                "prepares them again; choose another folder with --cache DIR, or none with --cache off"
            )
            return None
        return self.open(key)

    def entries(self) -> list[Entry]:
        """What is kept, the longest unused first."""
        found = []
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(OSError, Damaged):  # another process may be removing it
                nbytes = self._data(path.stem).stat().st_size + path.stat().st_size
                found.append(Entry(path.stem, _unsealed(path), nbytes, path.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def is_intact(self, key: str) -> bool:
        """Whether an entry, read whole, is what was written."""
        try:
            rows = self._load(key)
        except (Damaged, OSError, ValueError):
            return False
        return not any(rows.read(np.array([row]))[1] for row in range(len(rows)))

    def remove(self, key: str) -> None:
        """Delete an entry; its description first, without which the rest does not count."""
        for path in (self._description(key), self._data(key)):
            with contextlib.suppress(OSError):  # gone already, or not ours to delete: it is damaged or unused anyway
                path.unlink()

    def clear(self) -> None:
        """Delete all that is kept, and what killed processes have left."""
        for pattern in ("*.json", "*.npy", "*.tmp"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)

    def _data(self, key: str) -> Path:
        return self.folder / f"{key}.npy"

    def _description(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _load(self, key: str) -> Rows:
        about = _unsealed(self._description(key))
        array = np.load(self._data(key), mmap_mode="r", allow_pickle=False)
        if list(array.shape) != about["shape"] or array.dtype != about["dtype"]:
            raise Damaged(f"{self._data(key)} holds another array than was written")
        return Rows(array, about)

    def _make_room(self, needed: int) -> bool:
        """Delete the longest unused until the new entry fits into half of what the disk has free for the cache."""
        for path in self.folder.glob("*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()
        entries = self.entries()
        taken = sum(entry.nbytes for entry in entries)
        limit = (shutil.disk_usage(self.folder).free + taken) // 2
        if needed > limit:
            self._say(
                f"the prepared samples take {needed / GB:.1f} GB, but the cache in {self.folder} may grow to "
                f"{limit / GB:.1f} GB, half of the free disk, so they are not kept; choose another with --cache DIR"
            )
            return False
        for entry in entries:
            if taken + needed <= limit:
                break
            self.remove(entry.key)
            taken -= entry.nbytes
        return True

    @contextlib.contextmanager
    def _replacing(self, path: Path) -> Iterator[IO[bytes]]:
        """A new file that takes the place of `path` once it is complete and on the disk."""
        number, name = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=self.folder)
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def _write_rows(file: IO[bytes], rows: Iterable[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[int]:
    """Write an .npy piece by piece and return a checksum per row.

    Plain writes, because a full disk then is an error; under a mapped file it would kill the process.
    """
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    checksums = []
    for row in rows:
        assert row.shape == shape[1:]
        assert row.dtype == dtype
        content = np.ascontiguousarray(row).data
        file.write(content)
        checksums.append(zlib.crc32(content))
    assert len(checksums) == shape[0]
    return checksums


def _sealed(about: dict[str, Any]) -> bytes:
    """JSON under a line with its digest."""
    text = json.dumps(about).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode() + b"\n" + text


def _unsealed(path: Path) -> dict[str, Any]:
    digest, _, text = path.read_bytes().partition(b"\n")
    if hashlib.blake2b(text, digest_size=16).hexdigest().encode() != digest:
        raise Damaged(f"{path} is not what was written")
    about: dict[str, Any] = json.loads(text)
    return about
