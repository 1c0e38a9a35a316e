"""Jobs in several processes, within a limit of time, and the JSON lines that they leave: for long measurements."""

from __future__ import annotations

import json
import multiprocessing
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

Row = dict[str, Any]
Job = TypeVar("Job")
Options = TypeVar("Options")


@dataclass(frozen=True)
class Limits:
    """How many processes work side by side, and for how long."""

    workers: int
    seconds: float
    """Begin nothing after this time, and cut off what still runs."""


def read(file: Path) -> list[Row]:
    """The measurements of a file of JSON lines; none where there is no such file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append(file: Path, rows: Iterable[Row]) -> None:
    """Add measurements to a file of JSON lines."""
    with file.open("a") as opened:
        opened.writelines(json.dumps(row) + "\n" for row in rows)


def finished_jobs(
    work: Callable[[Job, Options], list[Row]],
    jobs: Sequence[Job],
    options: Options,
    limits: Limits,
    console: Console,
    follow: Callable[[Job], Iterable[Job]] = lambda job: (),
) -> Iterator[tuple[Job, list[Row]]]:
    """Every job with its measurements, in the order in which they end; `follow` names what begins after a job.

    A job that fails is named, and the others go on. What still runs when the time is over is ended.
    """
    began = time.monotonic()
    finished: queue.SimpleQueue[tuple[Job, list[Row] | BaseException]] = queue.SimpleQueue()
    with multiprocessing.get_context("spawn").Pool(limits.workers) as pool:  # leaving ends what still runs

        def start(job: Job) -> None:
            pool.apply_async(
                work, (job, options), callback=lambda rows: finished.put((job, rows)),
                error_callback=lambda error: finished.put((job, error)),
            )  # fmt: skip

        for job in jobs:
            start(job)
        waiting = len(jobs)
        while waiting and (left := limits.seconds - (time.monotonic() - began)) > 0:
            try:
                job, found = finished.get(timeout=left)
            except queue.Empty:
                break
            waiting -= 1
            if isinstance(found, BaseException):
                console.print(f"{job}: {type(found).__name__}: {found}", markup=False)
                continue
            told = ", ".join(f"{row['row']} {row['score']:.1f}" for row in found)
            console.print(f"{time.monotonic() - began:.0f} s: {job}: {told}", markup=False)
            yield job, found
            for one in follow(job):
                start(one)
                waiting += 1
        if waiting:
            console.print(f"{limits.seconds:.0f} s are over, {waiting} jobs are left: the same command goes on")
