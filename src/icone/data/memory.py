"""How much main memory is free, and how threads that decode large samples share it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from icone.errors import InputError

GB = 1e9
SMALL = 2**24
"""Bytes below which a sample is decoded without asking: to ask costs 0.1 ms, and so little always fits."""
_ROOT = Path("/")


def free_bytes() -> int:
    """Bytes that this process can still take: what the system has, and what its container or job allows."""
    meminfo = _ROOT / "proc/meminfo"
    if not meminfo.exists():  # not Linux: all there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = _fields(meminfo)["MemAvailable:"] * 1024
    return max(0, min([available, *_left_by_cgroups()]))


def _left_by_cgroups() -> Iterator[int]:
    """What every control group around this process leaves: its limit less its use without the page cache.

    Containers, SLURM and systemd limit memory by these groups. They are nested, and each limit of the path counts.
    Version 2 is one tree; version 1 has a tree of its own for memory. Within a container the path may begin above
    what is mounted: such groups are passed over, and the mounted one is the container's.
    """
    try:
        lines = (_ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # a kernel without control groups
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            mount = "sys/fs/cgroup/memory"
        else:
            continue
        inner = PurePosixPath("/", path)
        for group in (inner, *inner.parents):
            left = _left(_ROOT / mount / str(group).lstrip("/"), *names)
            if left is not None:
                yield left


def _left(group: Path, limit: str, use: str, cache: str) -> int | None:
    try:
        most = (group / limit).read_text().strip()
        if most == "max":
            return None
        used = int((group / use).read_text()) - _fields(group / "memory.stat").get(cache, 0)
    except OSError:  # not mounted here, or without a limit, as the outermost group
        return None
    return int(most) - used


def _fields(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines())}


class PeakMemory:
    """The most memory that this process had at a time, beyond what it had when this was made.

    Linux can be asked to forget earlier peaks; elsewhere all since the process began count. Memory that earlier work
    has freed and the C library has kept is given back first: it would be used again, and not be counted.
    """

    def __init__(self) -> None:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
            ctypes.CDLL(None).malloc_trim(0)
        with contextlib.suppress(OSError):  # a container may refuse it
            (_ROOT / "proc/self/clear_refs").write_text("5")
        self._before = self._now("VmRSS:")

    def bytes(self) -> int:
        return max(0, self._now("VmHWM:") - self._before)

    @staticmethod
    def _now(field: str) -> int:
        status = _ROOT / "proc/self/status"
        if not status.exists():  # not Linux
            import resource

            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return most if sys.platform == "darwin" else most * 1024
        found = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(found.split()[1]) * 1024


def check_fits(needed: int, what: str, way_out: str) -> None:
    """Refuse to load what would not fit."""
    free = free_bytes()
    if needed > free:
        raise InputError(f"{what} needs {needed / GB:.1f} GB of memory but {free / GB:.1f} GB are free; {way_out}")


class MemoryGate:
    """Lets threads decode at once as many samples as fit into memory: fewer than there are workers, if need be."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held = 0
        self._most = 0

    @contextlib.contextmanager
    def hold(self, needed: int, what: str, limit: float = math.inf) -> Iterator[None]:
        """Hold this many bytes, once they are free; refuse what does not fit although nothing else is held.

        Above `limit` bytes one sample is decoded at a time.

        What others hold counts as not yet taken from what is free, so the threads are fewer rather than too many.
        What fitted once is not refused later: the C library may have kept the memory for this process.
        """
        if needed <= SMALL:
            yield
            return
        with self._changed:
            while (self._held and self._held + needed > limit) or (
                needed > (free := free_bytes()) - self._held and (self._held or needed > self._most)
            ):
                if not self._held:
                    raise InputError(
                        f"{what} takes about {needed / GB:.1f} GB of memory to decode, but {free / GB:.1f} GB are "
                        "free; free some, keep less in memory with --memory-gb, or cut the file into smaller ones"
                    )
                self._changed.wait()
            self._held += needed
            self._most = max(self._most, self._held)
        try:
            yield
        finally:
            with self._changed:
                self._held -= needed
                self._changed.notify_all()


DECODING = MemoryGate()
"""The one of this process."""
