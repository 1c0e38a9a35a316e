"""Executing runs: train, measure, keep what is light."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import resource
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from icone.api.build import pick_device
from icone.api.pretrain import pretrain, pretrain_many
from icone.config import PretrainConfig
from icone.cuda import free_gpu_memory
from icone.errors import NotEnoughMemory, UndefinedError, is_disk_full, is_out_of_memory, one_line, type_and_line
from icone.files import write_json
from icone.paper.contents import on_this_node
from icone.paper.cost import measure_cost
from icone.paper.measure import measure
from icone.paper.outcome import Outcome, SweepHalted
from icone.paper.spec import RunSpec
from icone.run import Run

TRAINING = "training"
"""The run folder of `icone.pretrain`, inside the folder of a run of the sweep."""
CLOCK = "clock.json"
"""When an execution began, and the seconds before it; gone with the outcome."""
LOG = "log.txt"
"""What a run said, and the traceback where it failed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecutionSettings:
    """How runs are executed; none of it is part of a run's name.

    Another device or number of threads adds up in another order and changes the last digits; with a precision of
    `auto`, a GPU also computes the encoder in bf16 and a CPU in float32. The results table names the device.
    """

    device: str = "auto"
    threads: int | None = None
    """Threads of the matrix products of PyTorch, NumPy and SciPy."""
    data_root: Path | None = None
    node_cache: Path | None = None
    """Copy data sets to this folder of the machine first."""
    processes: int = 1
    """Processes that run beside each other on the device."""
    keep_encoders: bool = False


class Job(NamedTuple):
    """A run, the folder it works in, and what is called with its end as soon as it is known."""

    spec: RunSpec
    folder: Path
    finish: Callable[[Outcome], None]


def execute(jobs: Sequence[Job], setting: ExecutionSettings) -> None:
    """Execute runs of one group: the same data and shape, other seeds. Each finishes on its own.

    On a GPU they train side by side, and each is charged its share of that time and memory; what that leaves
    unfinished, for whatever reason, is trained one by one.
    """
    if setting.threads is not None:
        use_threads(setting.threads)
    side_by_side = len(jobs) > 1 and _many_at_once(setting)
    earlier = {}
    for job in jobs:
        earlier[job.spec.key] = start_clock(job.folder, len(jobs) if side_by_side else 1)
        note_execution(job.folder)
    began = time.monotonic()
    taken = _train_side_by_side(jobs, setting) if side_by_side else 0
    seconds = time.monotonic() - began
    for job in jobs:
        sharing = len(jobs) if side_by_side and Run(job.folder / TRAINING).finished else 1
        outcome = _finish(job.spec, job.folder, setting)
        job.finish(
            dataclasses.replace(
                outcome,
                seconds=round(outcome.seconds + seconds / len(jobs) + earlier[job.spec.key], 3),
                train_seconds=round(outcome.train_seconds / sharing, 3),
                step_seconds=outcome.step_seconds / sharing,
                together=sharing,
                peak_bytes=max(outcome.peak_bytes, taken // len(jobs)),
            )
        )
        _tidy(job.folder, outcome, setting.keep_encoders)  # only now: what cannot be recorded must not be lost


def use_threads(threads: int) -> None:
    """Let the matrix products of this process use so many threads. Each library that computes them has its own pool.

    Where several processes measure with all cores each, their threads wait for one another. Beside two other sweeps on
    16 cores, short runs that trained for 3 to 5 s took 30 to 49 s in all, and 14 s with two threads for each process.
    """
    import scipy.linalg  # noqa: F401  # only a pool that is loaded can be limited
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)


def execute_one(spec: RunSpec, folder: Path, setting: ExecutionSettings) -> Outcome:
    """Train and measure one run in its folder, going on where an earlier process left it.

    Whatever goes wrong becomes the outcome, except a wish to stop (`KeyboardInterrupt`) and a full
    disk (`SweepHalted`).
    """
    with full_disk_halts():
        earlier = start_clock(folder)
        note_execution(folder)
        outcome = _finish(spec, folder, setting)
        _tidy(folder, outcome, setting.keep_encoders)
        return dataclasses.replace(outcome, seconds=round(outcome.seconds + earlier, 3))


@contextmanager
def full_disk_halts() -> Iterator[None]:
    """A full disk is no property of a run: the run stays as it was last saved, and the sweep has to stop."""
    try:
        yield
    except Exception as error:  # whatever it is, it is only looked at, and raised again
        if is_disk_full(error):
            what = one_line(error).partition(". ")[0]  # without the advice for a run of one's own
            raise SweepHalted(f"a disk of {platform.node()} is full ({what})") from error
        raise


def _many_at_once(setting: ExecutionSettings) -> bool:
    return pick_device(setting.device).type == "cuda"


def _train_side_by_side(jobs: Sequence[Job], setting: ExecutionSettings) -> int:
    """Train the runs of a group together, as far as that goes; the memory that all of them took."""
    with _log(jobs[0].folder) as console, _peak_memory(pick_device(setting.device)) as peak:
        try:
            pretrain_many(
                [_placed(job.spec, setting) for job in jobs],
                [_fresh_folder(job.folder).folder for job in jobs],
                resume=True,
                console=console,
            )
        except Exception as error:  # each run will meet it again on its own, and it becomes its outcome
            if is_disk_full(error):
                raise
            console.print_exception()
    return peak.bytes


def _finish(spec: RunSpec, folder: Path, setting: ExecutionSettings) -> Outcome:
    began = time.monotonic()
    device = pick_device(setting.device)
    with _log(folder) as console, _peak_memory(device) as peak:
        try:
            outcome = _train_and_measure(spec, folder, setting, console)
        except UndefinedError as undefined:
            outcome = Outcome(status="undefined", reason=str(undefined))
        except Exception as error:  # a failed run is a result: the reason goes into the table, the rest into the log
            if is_disk_full(error):
                raise
            too_large = isinstance(error, NotEnoughMemory) or is_out_of_memory(error)
            outcome = Outcome(status="failed", reason=_reason(error), out_of_memory=too_large)
            console.print_exception()
    return dataclasses.replace(
        outcome,
        seconds=round(time.monotonic() - began, 3),
        processes=setting.processes,
        peak_bytes=peak.bytes,
        device_bytes=torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        host=platform.node(),
        device=device_name(device),
    )


def start_clock(folder: Path, sharing: int = 1) -> float:
    """Start the clock of an execution; the seconds of earlier ones that came to no outcome.

    However a process ended, the last file that it wrote tells how long it worked. `sharing` runs share its time.
    """
    path, now, before = folder / CLOCK, time.time(), 0.0
    if path.is_file():
        clock = json.loads(path.read_text())
        last = max(file.stat().st_mtime for file in folder.rglob("*"))
        before = clock["before"] + max(0.0, last - clock["began"]) / clock["sharing"]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"began": now, "before": before, "sharing": sharing})
    return before


def note_execution(folder: Path) -> None:
    """Count an execution in the folder of its run, so that it can be told afterwards how often it was begun."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "executions").open("a") as file:
        file.write(f"{platform.node()} {os.getpid()}\n")


def _train_and_measure(spec: RunSpec, folder: Path, setting: ExecutionSettings, console: Console) -> Outcome:
    if spec.cost:
        return measure_cost(spec, pick_device(setting.device))
    config = _placed(spec, setting)
    run = _fresh_folder(folder)
    if not (run.exists() and run.finished):
        settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(PretrainConfig)}
        pretrain(**settings, out=run.folder, resume=run.exists(), console=console)
    return measure(run, spec, config, setting.device, console)


def _fresh_folder(folder: Path) -> Run:
    """The run folder of `icone.pretrain`, cleared where a process was killed before its first state."""
    run = Run(folder / TRAINING)
    if run.folder.exists() and not run.exists():
        shutil.rmtree(run.folder)
    return run


def _placed(spec: RunSpec, setting: ExecutionSettings) -> PretrainConfig:
    config = dataclasses.replace(
        spec.config,
        device=setting.device,
        data_root=setting.data_root or spec.config.data_root,
        snapshots=tuple(epoch + 1 for epoch in spec.trace),
        probe_every=0,  # the sweep measures at the end
        encoder="paper" if spec.config.encoder == "auto" else spec.config.encoder,
        warmup=_warmup(spec.config),
    )
    return on_this_node(config, setting.node_cache, spec.found_contents())


def _warmup(config: PretrainConfig) -> float | None:
    """The warm-up of a run: none where its configuration says nothing, so that its key means what it always did."""
    without = config.warmup is None and config.weights is None and config.recipe != "paper"
    return 0.0 if without else config.warmup


class _Peak:
    """Filled in when the measured block ends."""

    bytes: int = 0


@contextmanager
def _peak_memory(device: torch.device) -> Iterator[_Peak]:
    peak = _Peak()
    if device.type == "cuda":
        free_gpu_memory()
        torch.cuda.reset_peak_memory_stats(device)
    try:
        yield peak
    finally:
        if device.type == "cuda":
            peak.bytes = torch.cuda.max_memory_reserved(device)
        else:
            peak.bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def _log(folder: Path) -> Iterator[Console]:
    with (folder / LOG).open("a") as file:
        yield Console(file=file, width=160)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _reason(error: Exception) -> str:
    """One line for the table; the whole traceback is in the log of the run."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type_and_line(error)} ({Path(place.filename).name}:{place.lineno})"


def _tidy(folder: Path, outcome: Outcome, keep_encoder: bool) -> None:
    """Leave what pictures need, the encoder where it was asked for, and the log where there is something to read."""
    run = Run(folder / TRAINING)
    (folder / CLOCK).unlink(missing_ok=True)
    if outcome.status == "done":
        if keep_encoder:
            run.encoder_file.replace(folder / run.encoder_file.name)
        (folder / LOG).unlink(missing_ok=True)
    if outcome.status != "failed" or outcome.out_of_memory:
        shutil.rmtree(run.folder, ignore_errors=True)
