"""What the cache saves: the first and the second start on some data, and an epoch that is read from the disk.

    python benchmarks/reading.py scans/ medmnist.npz synthetic:cells

Every start is a process of its own; seconds count from the opened Python to prepared samples in memory, without
imports. Wall and processor time, medians over the repeats.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from icone.config import PretrainConfig
from icone.data import Loader, load_data

REPEATS = 3


def seconds(work: Callable[[], object]) -> list[float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return [time.perf_counter() - wall, time.process_time() - processor]


def start(source: str, cache: str) -> list[float]:
    """One start: load everything into memory."""
    return seconds(lambda: load_data(PretrainConfig(source=source, cache=cache)))


def epoch(source: str, cache: str) -> list[float]:
    """The second epoch at batch 1 of samples that are not held in memory."""
    loader = Loader(load_data(PretrainConfig(source=source, cache=cache, memory_gb=0.0)).train, 1, seed=0)
    read(loader, 0)
    return seconds(lambda: read(loader, 1))


def read(loader: Loader, number: int) -> None:
    loader.begin(number)
    for size in loader.sizes:
        loader.advance([size])
    loader.end()


MEASURED = {"start": start, "epoch": epoch}


def in_a_process(what: str, source: str, cache: str) -> list[float]:
    words = [sys.executable, __file__, "--only", what, "--cache", cache, source]
    times: list[float] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return times


def rows(source: str) -> Iterator[tuple[str, list[list[float]]]]:
    repeats: dict[str, list[list[float]]] = {}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            for name, what, cache in (
                ("start without cache", "start", "off"),
                ("first start", "start", folder),
                ("second start", "start", folder),
                ("epoch from files", "epoch", "off"),
                ("epoch from the cache", "epoch", folder),
            ):
                repeats.setdefault(name, []).append(in_a_process(what, source, cache))
    yield from repeats.items()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--only", choices=MEASURED, help="measure one thing in this process and print it")
    parser.add_argument("--cache", default="off")
    words = parser.parse_args()
    if words.only:
        print(json.dumps(MEASURED[words.only](words.sources[0], words.cache)))
        return
    table = Table("source", "what", "wall (s)", "processor (s)")
    for source in words.sources:
        for name, repeats in rows(source):
            wall, processor = (statistics.median(times) for times in zip(*repeats, strict=True))
            table.add_row(source, name, f"{wall:.2f}", f"{processor:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
