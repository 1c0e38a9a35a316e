"""How much main memory is free."""

from __future__ import annotations

import os
from pathlib import Path

from icone.errors import InputError

GB = 1e9
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """Bytes that this process can still take: what the system has, and what its container or job allows."""
    if not _MEMINFO.exists():  # not Linux: all there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = _fields(_MEMINFO)["MemAvailable:"] * 1024
    limit = _CGROUP / "memory.max"
    if not limit.exists() or limit.read_text().strip() == "max":
        return available
    caches = _fields(_CGROUP / "memory.stat")["file"]  # given up when memory is needed
    used = int((_CGROUP / "memory.current").read_text()) - caches
    return min(available, max(0, int(limit.read_text()) - used))


def _fields(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines())}


def check_fits(needed: int, what: str) -> None:
    """Refuse to load what would not fit."""
    free = free_bytes()
    if needed > free:
        raise InputError(
            f"{what} needs {needed / GB:.1f} GB of memory but {free / GB:.1f} GB are free; "
            "save it as .npy or .zarr, which are read piece by piece"
        )
