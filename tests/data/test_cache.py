"""Arrays on disk: whole or not at all, whatever dies or runs beside; damage is noticed; the disk may refuse."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from icone.data.cache import ABANDONED, SIGNATURE, TAG, Cache, cache_folder

ROWS = np.random.default_rng(0).integers(0, 256, (6, 3, 40, 40), dtype=np.uint8)
K, EARLIER = "0" * 32, "e" * 32
FORKS = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Heard(list[str]):
    """Collects what is said."""


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def cache(tmp_path: Path, heard: Heard) -> Cache:
    return Cache(tmp_path / "cache", heard.append)


def keep(cache: Cache, key: str = K, rows: Any = ROWS) -> Any:
    return cache.write(key, iter(rows), ROWS.shape, "uint8", {"kind": "samples", "source": "some"})


def contents(cache: Cache, key: str = K) -> npt.NDArray[Any]:
    rows = cache.open(key)
    assert rows is not None
    array, damaged = rows.read(np.arange(len(rows)))
    assert damaged == []
    return array


def files(cache: Cache) -> list[str]:
    """What lies in the folder beside its tag."""
    return sorted(path.name for path in cache.folder.iterdir() if path.name != TAG)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_folder_of_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert cache_folder("auto") == Path("/some/where/icone")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("auto") == Path.home() / ".cache" / "icone"
    assert cache_folder("~/kept") == Path.home() / "kept"
    assert cache_folder("off") is None


def test_what_is_kept_is_an_ordinary_npy(cache: Cache, heard: Heard) -> None:
    assert cache.open(K) is None
    assert keep(cache) is not None
    np.testing.assert_array_equal(np.load(cache.folder / f"{K}.npy"), ROWS)
    np.testing.assert_array_equal(contents(cache), ROWS)
    assert files(cache) == [f"{K}.json", f"{K}.npy"]
    assert heard == []


@pytest.mark.parametrize("at", [0, 90, 128, 128 + 4800 * 3 + 7, -1])
def test_every_damaged_byte_is_noticed(cache: Cache, heard: Heard, at: int) -> None:
    keep(cache)
    flip(cache.folder / f"{K}.npy", at)
    rows = cache.open(K)
    if rows is None:  # the header: the whole entry goes
        assert at in (0, 90)
        assert "made anew" in heard[0]
        assert files(cache) == []
    else:
        row = (at - 128) // 4800 if at > 0 else 5
        assert rows.read(np.array([2, row]))[1] == [1]
        assert rows.read(np.array([row]))[1] == [0]  # not only the first time
        assert not cache.is_intact(K)


def test_a_damaged_description_and_a_short_file(cache: Cache, heard: Heard) -> None:
    keep(cache)
    flip(cache.folder / f"{K}.json", 60)
    assert cache.open(K) is None
    keep(cache)
    os.truncate(cache.folder / f"{K}.npy", 128 + 4800 * 5)
    assert cache.open(K) is None
    assert len(heard) == 2
    np.save(cache.folder / f"{K}.npy", ROWS[:5])
    assert keep(cache) is not None
    np.testing.assert_array_equal(contents(cache), ROWS)


def test_a_row_is_checked_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = keep(cache)
    rows.read(np.array([1, 4]))
    monkeypatch.setattr("zlib.crc32", lambda data: pytest.fail("checked again"))
    rows.read(np.array([1, 4]))


def test_killed_while_writing(cache: Cache) -> None:
    def endless() -> Iterator[npt.NDArray[Any]]:
        yield from ROWS[:5]
        time.sleep(60)

    keep(cache, EARLIER)
    process = FORKS.Process(target=keep, args=(cache, K, endless()))
    process.start()
    deadline = time.monotonic() + 20
    while not any(path.stat().st_size > 0 for path in cache.folder.glob("*.tmp")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    assert cache.open(K) is None
    np.testing.assert_array_equal(contents(cache, EARLIER), ROWS)
    (left,) = cache.folder.glob("*.tmp")
    keep(cache)
    assert left.exists()  # it might still be written to
    os.utime(left, (0, time.time() - ABANDONED - 1))
    keep(cache)
    assert not left.exists()
    np.testing.assert_array_equal(contents(cache), ROWS)


def test_an_error_leaves_nothing_behind(cache: Cache) -> None:
    def failing() -> Iterator[npt.NDArray[Any]]:
        yield ROWS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep(cache, K, failing())
    assert files(cache) == []


def test_two_writers_and_a_reader(cache: Cache, heard: Heard) -> None:
    def write(times: int) -> None:
        for _ in range(times):
            assert keep(cache) is not None

    keep(cache)
    writers = [FORKS.Process(target=write, args=(40,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        np.testing.assert_array_equal(contents(cache), ROWS)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert heard == []


def test_removed_by_another_while_it_is_read(cache: Cache) -> None:
    rows = keep(cache)
    cache.clear()
    assert cache.open(K) is None
    np.testing.assert_array_equal(rows.read(np.arange(6))[0], ROWS)


def test_a_disk_that_fills_up(cache: Cache, heard: Heard) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # no file may grow beyond: a real failing write
    try:
        assert keep(cache) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(heard) == 1
    assert "cannot be kept" in heard[0]
    assert "--cache off" in heard[0]
    assert files(cache) == []
    assert keep(cache) is None  # said once, not tried again
    assert len(heard) == 1


def test_no_space_for_the_last_bytes(cache: Cache, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert keep(cache) is None
    assert "No space left on device" in heard[0]
    assert files(cache) == []


def test_a_file_in_the_place_of_the_folder(tmp_path: Path, heard: Heard) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert keep(Cache(tmp_path / "cache", heard.append)) is None
    assert len(heard) == 1


def test_the_longest_unused_go_first(cache: Cache, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [letter * 32 for letter in "abcde"]
    for age, key in enumerate(keys[:3]):
        keep(cache, key)
        os.utime(cache.folder / f"{key}.json", (0, time.time() - 100 * (3 - age)))
    cache.open(keys[0])  # used now
    assert [entry.key for entry in cache.entries()] == [keys[i] for i in (1, 2, 0)]
    size = cache.entries()[0].nbytes
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * size))  # limit: (3 + 3) / 2 entries
    keep(cache, keys[3])
    assert [entry.key for entry in cache.entries()] == [keys[i] for i in (2, 0, 3)]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    for entry in cache.entries()[1:]:
        cache.remove(entry.key)
    assert keep(cache, keys[4]) is None
    assert "half of the free disk" in heard[0]
    assert [entry.key for entry in cache.entries()] == [keys[2]]
