"""Running experiments: which runs are missing, who executes them, what a person sees meanwhile."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from rich.console import Console

from icone.config import PretrainConfig
from icone.data import open_source
from icone.errors import InputError, InterruptedRun
from icone.paper.engines.events import SweepEngine, Task
from icone.paper.experiments import find_experiments
from icone.paper.experiments.base import Experiment
from icone.paper.live_view import LiveView, log_of
from icone.paper.options import Options
from icone.paper.outcome import SweepHalted
from icone.paper.spec import RunSpec
from icone.paper.store import Store


@dataclass(frozen=True)
class Tally:
    """How the runs of a sweep stand in the end."""

    done: int
    undefined: int
    failed: int
    unfinished: int
    """Lost with their processes; the same command goes on with them."""
    executed: int
    """Of them, those that this sweep waited for; the others were there before."""
    problems: list[str]
    """Why runs failed or are unfinished: a line for each reason, the most frequent first."""


def sweep(
    names: Sequence[str],
    options: Options,
    store: Store,
    engine: SweepEngine,
    console: Console,
    retry_failed: bool = False,
    data_is_here: bool = True,
) -> Tally:
    """Run what is missing of the named experiments (`all`: every one) in a store that may know some already.

    Where the data is on this machine, every set is opened once before the first run.
    """
    specs: dict[str, RunSpec] = {}
    for experiment in find_experiments(names):
        for spec in _specs_of(experiment, options, console, strict="all" not in names):
            specs.setdefault(spec.key, spec)
    store.create()
    for experiment in find_experiments(names):
        store.remember(experiment.name, options.to_json())
    tasks, before = _missing(specs, store, retry_failed)
    if data_is_here:
        _check_sources([task.spec.config for task in tasks])
    for key, peak in store.peaks().items():
        if key in specs:
            engine.learn(specs[key], peak)
    with _signals(), LiveView(console, len(specs), before, store.folder / "runs") as view:
        try:
            engine.run(tasks, view.observe)
        except KeyboardInterrupt:
            raise InterruptedRun(
                f"the sweep was stopped; what is done is kept in {store.folder}, and the same command goes on"
            ) from None
        except SweepHalted as error:
            raise InputError(
                f"the sweep had to stop: {error}. What is done is kept in {store.folder}, no run counts as failed, "
                "and the same command goes on once that is mended"
            ) from error
        finally:
            if store.outcomes.is_dir():
                store.results()
    lost = [f"unfinished ({number} runs): {reason}" for reason, number in Counter(view.unfinished).most_common()]
    return Tally(**view.counts, executed=len(tasks), problems=[*_failures(specs, store), *lost])


def _failures(specs: dict[str, RunSpec], store: Store) -> list[str]:
    """Every reason why runs failed, how often, and where the first of them wrote its log."""
    runs = store.results().drop_duplicates("run")
    failed = runs[runs["run"].isin(specs) & (runs["status"] == "failed")]
    by_reason: dict[str, list[str]] = {}
    for key, reason in zip(failed["run"].astype(str), failed["reason"].astype(str), strict=True):
        by_reason.setdefault(reason, []).append(key)
    return [
        f"failed ({len(keys)} runs): {reason} ({log_of(store.run_folder(keys[0]))})"
        for reason, keys in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    ]


def _specs_of(experiment: Experiment, options: Options, console: Console, strict: bool) -> list[RunSpec]:
    try:
        specs = [cell.spec for cell in experiment.grid(options)]
    except InputError as error:
        if strict:
            raise
        console.print(f"{experiment.name} is left out: {error}", highlight=False, soft_wrap=True, markup=False)
        return []
    if not specs and experiment.runs:
        text = f"{experiment.name} has nothing to run: it needs {experiment.needs}"
        if strict:
            raise InputError(text)
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    return specs


def _missing(specs: dict[str, RunSpec], store: Store, retry_failed: bool) -> tuple[list[Task], dict[str, int]]:
    """The runs to execute, and how many of the others are done, undefined and failed."""
    before = {"done": 0, "undefined": 0, "failed": 0}
    tasks = []
    last = store.last_records()
    statuses = store.statuses()
    for key, spec in specs.items():
        record, status = last.get(key), statuses.get(key)
        if status is None or (retry_failed and status == "failed"):
            tasks.append(Task(spec, after=0 if record is None else record.attempt))  # a damaged outcome is none
        else:
            before[status] += 1
    return tasks, before


def _check_sources(configs: Sequence[PretrainConfig]) -> None:
    """Open every data set once: one sentence instead of a thousand failed runs, and one download instead of several."""
    for config in {(c.source, c.data_root, c.labels): c for c in configs}.values():
        try:
            open_source(config.source, config)
        except InputError as error:
            raise InputError(f"{error}. The sets you have can be chosen with --datasets") from error


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """A cluster's SIGTERM stops a sweep as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
