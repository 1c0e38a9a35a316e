"""Arrays that are kept on disk between runs: written whole or not at all, checked when they are read.

A folder is a cache if it carries the tag that the cache writes into it. In any other folder nothing is deleted, and
nothing is kept unless it is empty; and of a cache only files under names that the cache makes are ever deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
import tempfile
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt

from icone.data.memory import GB
from icone.data.sources.base import Array
from icone.errors import InputError, one_line
from icone.validation import user_path

Say = Callable[[str], None]

TAG = "CACHEDIR.TAG"
SIGNATURE = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This folder is a cache of icone: it may be deleted whole, and `icone cache` deletes its entries.\n"
)
"""The first line is the one by which backup programs know a cache; the second makes it ours."""
KEY = "[0-9a-f]{32}"
DIGEST_NAME = re.compile(r"[0-9a-f]{32}")
"""Files in the folder `digests` that remember contents (`icone.data.identity.DigestMemory`)."""
OWN_NAME = re.compile(rf"{KEY}\.(json|npy)|({KEY}|CACHEDIR)[a-z0-9_]{{8}}\.tmp")
"""Names that the cache makes."""

ABANDONED = 3600.0
"""Seconds after which an unfinished file that nobody writes to any more counts as left by a killed process."""


def cache_folder(setting: str) -> Path | None:
    """The folder that `--cache` names: `auto` is the user's cache folder, `off` is none."""
    if setting == "off":
        return None
    if not setting:
        raise InputError("--cache is empty: name a folder, or off")
    return _own_folder() if setting == "auto" else user_path(setting)


def _own_folder() -> Path:
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
    """A kept array (N, …) in an open file; a row is checked against its checksum when it is first read.

    Rows are read, not mapped: of a file that somebody cuts short, a mapping would kill the process.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        try:
            (count, *shape), dtype, checksums = about["shape"], np.dtype(about["dtype"]), about["checksums"]
            header, row_bytes = _header((count, *shape), dtype), math.prod(shape) * dtype.itemsize
            makes_sense = len(checksums) == count and not dtype.hasobject
        except (TypeError, ValueError):
            makes_sense = False
        if not makes_sense:
            raise Damaged(f"what is written about {path} makes no sense")
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        size = os.fstat(self._file).st_size
        if os.pread(self._file, len(header), 0) != header or size != len(header) + count * row_bytes:
            raise Damaged(f"{path} holds another array than was written")
        self.about, self._shape, self._dtype, self._checksums = about, tuple(shape), dtype, checksums
        self._start, self._row_bytes = len(header), row_bytes
        self._checked: npt.NDArray[np.bool_] = np.zeros(count, dtype=bool)

    def __len__(self) -> int:
        return len(self._checked)

    def read(self, rows: npt.NDArray[np.int64]) -> tuple[Array, list[int]]:
        """A copy of the given rows, and which of its rows are damaged."""
        copy: Array = np.empty((len(rows), self._row_bytes), np.uint8)
        damaged = []
        for place, row in enumerate(rows.tolist()):
            content = copy[place].data
            is_whole = _read_into(content, self._file, self._start + row * self._row_bytes)
            if not (self._checked[row] and is_whole):
                self._checked[row] = is_whole and zlib.crc32(content) == self._checksums[row]
            if not self._checked[row]:
                damaged.append(place)
        return copy.view(self._dtype).reshape(len(rows), *self._shape), damaged


class Cache:
    """A folder of kept arrays, two files each: KEY.npy and KEY.json, which is written last and makes it valid.

    Whatever the disk refuses is said, and the work goes on without the cache. Two processes may write the same
    entry at once: each writes a file of its own and moves it into place. An entry that another process removes
    stays readable for those who have opened it. Entries that another user keeps to themselves are passed over.
    """

    def __init__(self, folder: Path, say: Say) -> None:
        """Refuse a folder that holds something else, before anything is read, kept or deleted there."""
        self.folder = folder
        self._say = say
        self._is_refused = False
        self._foreign: set[str] = set()
        """Keys of entries that belong to others and cannot be read."""
        if not self._may_use():
            raise InputError(
                f"{folder} is not a cache of icone, and it is not empty: nothing is kept or deleted there. "
                "Name an empty or a new folder with --cache DIR"
            )

    def _may_use(self) -> bool:
        """Whether the folder is a cache, or could become one: it is missing, empty, or an old cache without a tag.

        A path that cannot be listed (a file, no permission) is left to the first write, which says why.
        """
        try:
            names = set(os.listdir(self.folder))
        except OSError:
            return True
        if self._is_tagged() or os.path.realpath(self.folder) == os.path.realpath(_own_folder()):
            return True
        whole = {f"{entry.key}{suffix}" for entry in self.entries() for suffix in (".json", ".npy")}
        return all(name in whole or (OWN_NAME.fullmatch(name) and name.endswith(".tmp")) for name in names)

    def _is_tagged(self) -> bool:
        try:
            return (self.folder / TAG).read_bytes() == SIGNATURE
        except OSError:
            return False

    def open(self, key: str) -> Rows | None:
        """The array kept under a key; None if there is none, or if it is damaged, which is said."""
        try:
            rows = self._load(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            self._foreign.add(key)
            self._say(f"the cache holds these samples, but for another user, and they are not kept twice ({error})")
            return None
        except (Damaged, OSError) as error:
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
        assert re.fullmatch(KEY, key)
        if self._is_refused or key in self._foreign:
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._is_tagged():
                with self._replacing(self.folder / TAG) as file:
                    os.fchmod(file.fileno(), 0o644)  # other users of the folder must see what it is
                    file.write(SIGNATURE)
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
        for path in self._own_files("json"):
            with contextlib.suppress(OSError, Damaged):  # another process may be removing it; or it is not ours to read
                nbytes = self._data(path.stem).stat().st_size + path.stat().st_size
                found.append(Entry(path.stem, _unsealed(path), nbytes, path.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def is_intact(self, key: str) -> bool:
        """Whether an entry, read whole, is what was written."""
        try:
            rows = self._load(key)
        except (Damaged, OSError):
            return False
        return not any(rows.read(np.array([row]))[1] for row in range(len(rows)))

    def remove(self, key: str) -> None:
        """Delete an entry; its description first, without which the rest does not count."""
        for path in (self._description(key), self._data(key)):
            with contextlib.suppress(OSError):  # gone already, or not ours to delete: it is damaged or unused anyway
                path.unlink()

    def unreadable(self) -> int:
        """How many entries another user keeps to themselves."""
        count = 0
        for path in self._own_files("json"):
            try:
                path.open("rb").close()
            except FileNotFoundError:
                continue
            except PermissionError:
                count += 1
        return count

    def clear(self) -> int:
        """Delete all that is kept, and what killed processes have left; returns how many files would not go."""
        left = 0
        digests = [path for path in (self.folder / "digests").glob("*") if DIGEST_NAME.fullmatch(path.name)]
        for path in [*self._own_files("json", "npy", "tmp"), *digests]:
            try:
                path.unlink(missing_ok=True)
            except OSError:  # of another user
                left += 1
        return left

    def _own_files(self, *suffixes: str) -> list[Path]:
        """Files under names that the cache makes."""
        try:
            names = sorted(os.listdir(self.folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.folder / n for n in names if OWN_NAME.fullmatch(n) and n.rpartition(".")[2] in suffixes]

    def _data(self, key: str) -> Path:
        return self.folder / f"{key}.npy"

    def _description(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _load(self, key: str) -> Rows:
        return Rows(self._data(key), _unsealed(self._description(key)))

    def _make_room(self, needed: int) -> bool:
        """Delete the longest unused until the new entry fits into half of what the disk has free for the cache."""
        for path in self._own_files("tmp"):
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
        number, name = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=self.folder)  # as OWN_NAME says
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of an .npy with such an array."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return file.getvalue()


def _read_into(buffer: memoryview, file: int, start: int) -> bool:
    """Fill a buffer from a file; False where the file ends before, or cannot be read."""
    done = 0
    try:
        while done < len(buffer) and (read := os.preadv(file, [buffer[done:]], start + done)):
            done += read
    except OSError:
        return False
    return done == len(buffer)


def _write_rows(file: IO[bytes], rows: Iterable[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[int]:
    """Write an .npy piece by piece and return a checksum per row.

    Plain writes, because a full disk then is an error; under a mapped file it would kill the process.
    """
    file.write(_header(shape, dtype))
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
    try:
        about: dict[str, Any] = json.loads(text)
        known = {name: about[name] for name in ("kind", "source", "shape", "dtype", "checksums")}
    except (ValueError, TypeError, KeyError):
        known = {}
    if not isinstance(known.get("shape"), list):
        raise Damaged(f"{path} does not describe an array")
    return about
