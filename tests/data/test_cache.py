"""Arrays on disk: whole or not at all, whatever dies or runs beside; damage is noticed; the disk may refuse."""

from __future__ import annotations

import errno
import hashlib
import json
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
from icone.data.identity import DigestMemory
from icone.errors import InputError

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
    with pytest.raises(InputError, match="is empty"):
        cache_folder("")
    with pytest.raises(InputError, match="no such user"):
        cache_folder("~nosuchuser/kept")


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


@pytest.mark.parametrize("size", [0, 5, 10, 127, 128, 4928, -1])
def test_a_file_cut_short_is_damaged_and_made_anew(cache: Cache, heard: Heard, size: int) -> None:
    keep(cache)
    data = cache.folder / f"{K}.npy"
    os.truncate(data, size % data.stat().st_size)
    assert not cache.is_intact(K)
    assert cache.open(K) is None
    assert "made anew" in heard[0]
    assert files(cache) == []
    keep(cache)
    np.testing.assert_array_equal(contents(cache), ROWS)


def test_a_file_cut_short_while_it_is_read(cache: Cache) -> None:
    rows = keep(cache)
    rows.read(np.arange(6))
    os.truncate(cache.folder / f"{K}.npy", 128 + 4800 * 2 + 9)
    copy, damaged = rows.read(np.arange(6))
    assert damaged == [2, 3, 4, 5]
    np.testing.assert_array_equal(copy[:2], ROWS[:2])


@pytest.mark.parametrize(
    "about",
    [
        b"[]", b"17", b"{", b"{}", b"\xff",
        *(
            json.dumps({"kind": "samples", "source": "s", "shape": shape, "dtype": dtype, "checksums": sums}).encode()
            for shape, dtype, sums in [
                ([], "uint8", []), ([6, 3, 40, 40], "O", [0] * 6), ([6, "x"], "f9", None), ([10**18, 9], "u1", [0]),
                ({"6": 3}, "uint8", [0]), ([6, 3, 40, 40], "uint8", [0] * 5),
            ]
        ),
    ],
)  # fmt: skip
def test_a_description_that_makes_no_sense_is_damaged(cache: Cache, heard: Heard, about: bytes) -> None:
    keep(cache)
    seal = hashlib.blake2b(about, digest_size=16).hexdigest().encode()  # anybody can write one
    (cache.folder / f"{K}.json").write_bytes(seal + b"\n" + about)
    assert not cache.is_intact(K)
    cache.entries()
    assert cache.open(K) is None
    assert "made anew" in heard[0]


STRANGERS = ["notes.json", "mine.npy", "x.tmp", "report.csv", f"{K}.txt", f"{K[:-1]}.npy", f"x{K}.json", f"{K}.tmp"]


@pytest.mark.parametrize("name", STRANGERS)
def test_a_folder_with_files_of_its_user_is_no_cache(tmp_path: Path, heard: Heard, name: str) -> None:
    (tmp_path / name).write_text("dear")
    os.utime(tmp_path / name, (0, 0))
    with pytest.raises(InputError, match="is not a cache of icone"):
        Cache(tmp_path, heard.append)
    (tmp_path / TAG).write_bytes(SIGNATURE.splitlines(keepends=True)[0])  # the cache of another program
    with pytest.raises(InputError, match="is not a cache of icone"):
        Cache(tmp_path, heard.append)
    assert (tmp_path / name).read_text() == "dear"


@pytest.mark.parametrize("name", STRANGERS)
def test_files_of_its_user_in_a_cache_are_left_alone(cache: Cache, name: str) -> None:
    keep(cache)
    (cache.folder / name).write_text("dear")
    os.utime(cache.folder / name, (0, 0))
    again = Cache(cache.folder, print)
    assert keep(again, EARLIER) is not None
    assert again.clear() == 0
    assert files(cache) == [name]
    assert keep(again) is not None  # it still is a cache


def test_an_old_cache_without_a_tag_is_adopted_if_all_of_it_is_sealed(cache: Cache, heard: Heard) -> None:
    keep(cache)
    keep(cache, EARLIER)
    (cache.folder / TAG).unlink()
    again = Cache(cache.folder, heard.append)
    np.testing.assert_array_equal(contents(again), ROWS)
    keep(again)
    assert (cache.folder / TAG).read_bytes() == SIGNATURE
    (cache.folder / TAG).unlink()
    flip(cache.folder / f"{EARLIER}.json", 60)
    with pytest.raises(InputError, match="is not a cache"):
        Cache(cache.folder, heard.append)


def test_the_users_own_cache_folder_may_hold_more(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "icone" / "links").mkdir(parents=True)
    own = Cache(tmp_path / "icone", heard.append)
    assert keep(own) is not None
    own.clear()
    assert files(own) == ["links"]


def test_entries_of_another_user_are_passed_over(cache: Cache, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(cache)
    real = Path.read_bytes

    def hidden(path: Path) -> bytes:
        if path.name == f"{K}.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    failing = (pytest.fail("prepared") for _ in ROWS)

    def not_mine(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", hidden)
        patch.setattr(Path, "unlink", not_mine)
        assert cache.open(K) is None
        assert "another user" in heard[0]
        assert cache.write(K, failing, ROWS.shape, "uint8", {}) is None  # its rows are not even prepared
        assert cache.entries() == []
        assert cache.clear() == 2
    np.testing.assert_array_equal(contents(Cache(cache.folder, print)), ROWS)


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
    assert "--cache=off" in heard[0]
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


def test_clear_deletes_remembered_digests_and_nothing_else(cache: Cache) -> None:
    keep(cache)
    memory = DigestMemory(cache.folder, "a source")
    memory.keep("a", "stamp", "digest")
    memory.save()
    (own,) = (cache.folder / "digests").iterdir()
    (cache.folder / "digests" / "notes.txt").write_text("mine")
    cache.clear()
    assert not own.exists()
    assert (cache.folder / "digests" / "notes.txt").exists()
