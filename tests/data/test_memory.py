"""What memory is free: limits of containers and jobs, and threads that share what is left."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from icone.config import PretrainConfig
from icone.data import load_data, memory, open_source
from icone.data.threads import read_ahead
from icone.errors import InputError

MEMINFO = {"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 800 kB\n"}
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


def v2(group: str, limit: str, used: int, cache: int = 0) -> dict[str, str]:
    return {
        f"{V2}{group}/memory.max": f"{limit}\n",
        f"{V2}{group}/memory.current": f"{used}\n",
        f"{V2}{group}/memory.stat": f"anon 7\nfile 999\ninactive_file {cache}\n",
    }


def v1(group: str, limit: int, used: int, cache: int = 0) -> dict[str, str]:
    return {
        f"{V1}{group}/memory.limit_in_bytes": f"{limit}\n",
        f"{V1}{group}/memory.usage_in_bytes": f"{used}\n",
        f"{V1}{group}/memory.stat": f"inactive_file 1\ntotal_inactive_file {cache}\n",
    }


@pytest.mark.parametrize(
    ("groups", "tree", "free"),
    [
        (None, {}, 819200),
        ("0::/\n", {}, 819200),
        ("0::/\n", v2("", "5000", 3000, 1000), 3000),
        ("0::/a/b\n", v2("/a/b", "max", 10) | v2("/a", "9000", 4000) | v2("", "max", 10), 5000),
        ("0::/a/b\n", v2("/a/b", "7000", 1000) | v2("/a", "9000", 4000), 5000),
        ("0::/a/b\n", v2("/a/b", "3000", 1000) | v2("/a", "9000", 4000), 2000),
        ("0::/a\n", v2("/a", "3000", 4000), 0),
        ("0::/../gone\n", v2("", "5000", 1000), 4000),
        ("4:memory:/job\n0::/\n", v1("/job", 6000, 4000, 500) | v1("", 2**63 - 4096, 9000), 2500),
        ("9:cpu,memory:/u/job\n1:cpu:/x\n", v1("/u", 4000, 3000) | v1("/u/job", 2**63 - 4096, 9), 1000),
        ("4:memory:/docker/0f\n", v1("", 6000, 4000), 2000),
        ("4:cpu:/a:b\n0::/a:b\n", v2("/a:b", "5000", 1000), 4000),
    ],
    ids=[
        "no groups", "no limits", "container", "limit above", "both, outer smaller", "both, inner smaller",
        "used up", "group outside", "v1", "v1 above", "v1 container", "colon",
    ],
)  # fmt: skip
def test_every_limit_around_the_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str | None, tree: dict[str, str], free: int
) -> None:
    files = MEMINFO | tree | ({} if groups is None else {"proc/self/cgroup": groups})
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_ROOT", tmp_path)
    assert memory.free_bytes() == free


def test_free_memory_is_a_sensible_number() -> None:
    assert 10**7 < memory.free_bytes() < 10**14


@pytest.mark.parametrize(
    ("fits", "allowed", "at_once"), [(1, 9, 1), (2, 9, 2), (3, 9, 3), (9, 9, 4), (9, 2, 2), (9, 0.5, 1)]
)
def test_fewer_threads_decode_at_once_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, fits: int, allowed: float, at_once: int
) -> None:
    need = 2 * memory.SMALL
    monkeypatch.setattr(memory, "free_bytes", lambda: fits * need)
    gate, lock = memory.MemoryGate(), threading.Lock()
    together = threading.Barrier(at_once, timeout=5)
    running, most = 0, 0

    def decode(name: str) -> None:
        nonlocal running, most
        with gate.hold(need, name, limit=allowed * need):
            with lock:
                running += 1
                most = max(most, running)
            together.wait()
            with lock:
                running -= 1

    list(read_ahead(decode, "abcdefghijkl", workers=4, ahead=8))
    assert most == at_once


def test_what_does_not_fit_alone_is_refused_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 8 * memory.SMALL
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    gate = memory.MemoryGate()
    message = r"x\.nii takes about 0\.2 GB of memory .* 0\.1 GB are free.*memory_gb="
    with pytest.raises(InputError, match=message), gate.hold(10 * memory.SMALL, "x.nii"):
        pass
    with pytest.raises(ZeroDivisionError), gate.hold(6 * memory.SMALL, "y.nii"):
        raise ZeroDivisionError
    free = 0  # the C library has kept what was freed, and gives it out again
    with gate.hold(6 * memory.SMALL, "y.nii"):
        pass
    with gate.hold(memory.SMALL, "small"):
        pass


def test_a_sample_too_large_for_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for name, edge in (("a", 8), ("b", 8), ("large", 48)):
        np.save(tmp_path / f"{name}.npy", rng.integers(0, 255, (edge, edge, edge), dtype=np.uint8))
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**6)
    settings = {"source": str(tmp_path), "size": 8, "cache": "off"}
    with pytest.raises(InputError, match=r"large\.npy takes about .* GB of memory .*memory_gb=.*skip_unreadable=True"):
        load_data(PretrainConfig(**settings))  # type: ignore[arg-type]
    data = load_data(PretrainConfig(**settings, skip_unreadable=True))  # type: ignore[arg-type]
    assert data.train.ids == ("a.npy", "b.npy")


def test_an_estimate_is_close_to_what_preparing_takes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((600, 600, 4), np.int16))
    source = open_source(str(tmp_path), PretrainConfig(source=""))
    assert source._bytes_needed(0) == 600 * 600 * 4 * (2 + 16)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the C library keeps what was freed")
def test_memory_that_was_freed_before_counts_when_it_is_used_again() -> None:
    """Blocks below the size that the C library maps by itself stay with the process until it is asked for them."""
    size, number = 64_000, 2_000

    def work() -> list[np.ndarray]:
        return [np.ones(size, np.uint8) for _ in range(number)]

    held = work()
    anchor = np.ones(64_000, np.uint8)  # behind the others, so that the heap cannot shrink by itself
    del held
    peak = memory.PeakMemory()
    held = work()
    assert peak.bytes() > 0.8 * size * number
    del held, anchor
