"""Arrays that are kept on disk between runs: written whole or not at all, checked when they are read.

A folder is a cache if it carries the tag that the cache writes into it. In any other folder nothing is deleted, and
nothing is kept unless it is empty; and of a cache only files under names that the cache makes are ever deleted.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from icone.data.formats.base import Array
from icone.data.formats.npy import CheckedRows, write_rows
from icone.data.memory import GB
from icone.errors import InputError, one_line
from icone.files import TEMPORARY, read_sealed, replace_file, write_sealed
from icone.terminal import counted, say
from icone.validation import user_path

Say = Callable[[str], None]

TAG = "CACHEDIR.TAG"
SIGNATURE = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This folder is a cache of icone: it may be deleted whole, and `icone cache` deletes its entries.\n"
)
"""The first line is the one by which backup programs know a cache; the second makes it ours."""
KEY = re.compile(r"[0-9a-f]{32}")
"""Names of entries, and of files in the folder `digests` (`icone.data.identity.DigestMemory`)."""
PRIVATE = 0o600
"""Samples may be patients: what is kept is for its owner alone. The tag is for all who use the folder."""
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


class Entry(NamedTuple):
    """What the folder says about one kept array."""

    key: str
    about: dict[str, Any]
    nbytes: int
    used: float
    """When it was last used, in seconds since the epoch."""


class Cache:
    """A folder of kept arrays, two files each: KEY.npy and KEY.json, which is written last and makes it valid.

    Whatever the disk refuses is said, and the work goes on without the cache. Two processes may write the same
    entry at once: each writes a file of its own and moves it to its name. An entry that another process removes
    stays readable for those who have opened it. Entries that another user keeps to themselves are passed over.
    """

    def __init__(self, folder: Path, say: Say) -> None:
        """Refuse a folder that holds something else, before anything is read, kept or deleted there."""
        self.folder = folder
        self.say = say
        self._is_refused = False
        self._foreign: set[str] = set()
        """Keys of entries that belong to others and cannot be read."""
        if not self._may_use():
            raise InputError(
                f"{folder} is not a cache of icone, and it is not empty: nothing is kept or deleted there. "
                "Name an empty or a new folder with --cache=DIR"
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
        whole = {path.name for entry in self.entries() for path in self._files_of(entry.key)}
        return all(name in whole or TEMPORARY.fullmatch(name) for name in names)

    def _is_tagged(self) -> bool:
        try:
            return (self.folder / TAG).read_bytes() == SIGNATURE
        except OSError:
            return False

    def open(self, key: str) -> CheckedRows | None:
        """The array kept under a key; None if there is none, or if it is damaged, which is said."""
        try:
            rows = self._load(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            self._foreign.add(key)
            self.say(f"the cache holds these samples, but for another user, and they are not kept twice ({error})")
            return None
        except (ValueError, OSError) as error:
            self.say(f"what the cache holds cannot be used and is made anew ({one_line(error)})")
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # a folder that can only be read serves as well
            os.utime(self._files_of(key)[0])
        return rows

    def write(
        self, key: str, rows: Iterable[Array], shape: tuple[int, ...], dtype: str, about: dict[str, Any]
    ) -> CheckedRows | None:
        """Keep rows that form an array of this shape, then open it; None, and the reason is said, where it cannot."""
        assert KEY.fullmatch(key)
        if self._is_refused or key in self._foreign:
            return None
        description, data = self._files_of(key)
        try:
            if not self._is_tagged():
                with replace_file(self.folder / TAG, 0o644) as temporary:
                    temporary.write_bytes(SIGNATURE)
            if not self._free_space(math.prod(shape) * np.dtype(dtype).itemsize):
                return None
            with replace_file(data, PRIVATE) as temporary:
                checksums = write_rows(temporary, rows, shape, np.dtype(dtype))
            write_sealed(description, {**about, "shape": shape, "dtype": dtype, "checksums": checksums}, PRIVATE)
        except OSError as error:
            self._is_refused = True
            self.say(
                f"the prepared samples cannot be kept in {self.folder} ({one_line(error)}), so the next start "
                "prepares them again; choose another folder with --cache=DIR, or none with --cache=off"
            )
            return None
        return self.open(key)

    def entries(self) -> list[Entry]:
        """What is kept, the longest unused first."""
        found = []
        for path in self._own_files(".json"):
            with contextlib.suppress(OSError, ValueError):  # another process may be removing it; or it is not ours
                nbytes = sum(file.stat().st_size for file in self._files_of(path.stem))
                found.append(Entry(path.stem, _read_about(path), nbytes, path.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def is_intact(self, key: str) -> bool:
        """Whether an entry, read whole, is what was written."""
        try:
            rows = self._load(key)
        except (ValueError, OSError):
            return False
        return not any(rows.read(np.array([row]))[1] for row in range(len(rows)))

    def remove(self, key: str) -> None:
        """Delete an entry; its description first, without which the rest does not count."""
        for path in self._files_of(key):
            with contextlib.suppress(OSError):  # gone already, or not ours to delete: it is damaged or unused anyway
                path.unlink()

    def unreadable(self) -> int:
        """How many entries another user keeps to themselves."""
        return sum(not os.access(path, os.R_OK) and path.exists() for path in self._own_files(".json"))

    def clear(self) -> int:
        """Delete all that is kept, and what killed processes have left; returns how many files would not go."""
        left = 0
        digests = [path for path in (self.folder / "digests").glob("*") if KEY.fullmatch(path.name)]
        for path in [*self._own_files(".json", ".npy", ".tmp"), *digests]:
            try:
                path.unlink(missing_ok=True)
            except OSError:  # of another user
                left += 1
        return left

    def _own_files(self, *suffixes: str) -> list[Path]:
        """Files under names that the cache makes."""
        try:
            paths = [self.folder / name for name in sorted(os.listdir(self.folder))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        named = [p for p in paths if TEMPORARY.fullmatch(p.name) or (KEY.fullmatch(p.stem) and p.suffix != ".tmp")]
        return [path for path in named if path.suffix in suffixes]

    def _files_of(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.json", self.folder / f"{key}.npy"

    def _load(self, key: str) -> CheckedRows:
        description, data = self._files_of(key)
        return CheckedRows(data, _read_about(description))

    def _free_space(self, needed: int) -> bool:
        """Delete the longest unused until the new entry fits into half of what the disk has free for the cache."""
        for path in self._own_files(".tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()
        entries = self.entries()
        taken = sum(entry.nbytes for entry in entries)
        limit = (shutil.disk_usage(self.folder).free + taken) // 2
        if needed > limit:
            self.say(
                f"the prepared samples take {needed / GB:.1f} GB, but the cache in {self.folder} may grow to "
                f"{limit / GB:.1f} GB, half of the free disk, so they are not kept; choose another with --cache=DIR"
            )
            return False
        for entry in entries:
            if taken + needed <= limit:
                break
            self.remove(entry.key)
            taken -= entry.nbytes
        return True


def _read_about(path: Path) -> dict[str, Any]:
    """The description of an entry; a `ValueError` where it describes no array."""
    about = read_sealed(path)
    try:
        shape, dtype, has_names = about["shape"], np.dtype(about["dtype"]), {"kind", "source"} <= about.keys()
        is_sound = has_names and all(type(n) is int and n >= 0 for n in shape) and not dtype.hasobject
        if is_sound and len(about["checksums"]) == shape[0]:
            return dict(about)
    except (TypeError, KeyError, IndexError):
        pass
    raise ValueError(f"{path} does not describe an array")


def upkeep(setting: str, console: Console, *, check: bool = False, clear: bool = False) -> None:
    """`icone cache`: show what is kept; with `check` read all and delete what is damaged, with `clear` delete all."""
    tell = partial(say, console)
    folder = cache_folder(setting)
    if folder is None:
        raise InputError("no folder is kept with --cache=off; name one, or leave it out for the user's own")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name the folder that was given as --cache")
    cache = Cache(folder, tell)
    entries = cache.entries()
    total = sum(entry.nbytes for entry in entries) / GB
    if not entries:
        tell(f"{folder} keeps nothing")
    elif not clear:
        console.print(_table(entries))
        tell(f"{folder} keeps {total:.2f} GB; icone cache --clear deletes it")
    for entry in entries if check else ():
        if not cache.is_intact(entry.key):
            cache.remove(entry.key)
            tell(f"{entry.key} was damaged and is deleted; the next run makes it anew")
    if clear:
        left = cache.clear()
        tell(f"deleted {total:.2f} GB in {folder}")
        if left:
            tell(f"note: {counted(left, 'file')} of another user could not be deleted")
    if hidden := cache.unreadable():
        tell(f"note: entries of another user, which cannot be read, are passed over: {hidden}")


def _table(entries: list[Entry]) -> Table:
    table = Table("source", "kept", "samples", "shape", "MB", "last used", "name")
    for key, about, nbytes, used in reversed(entries):
        count, *shape = about["shape"]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(used))
        size = "×".join(map(str, shape))
        table.add_row(about["source"], about["kind"], str(count), size, f"{nbytes / 1e6:.1f}", when, key)
    return table
