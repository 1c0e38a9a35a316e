"""Running experiments: which runs are missing, who executes them, what a person sees meanwhile."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console

from icone.config import PretrainConfig
from icone.data import open_source
from icone.errors import InputError, InterruptedRun
from icone.paper.engines.events import Event, SweepEngine, Task
from icone.paper.estimate import CPU, Estimator
from icone.paper.execute import TRAINING
from icone.paper.experiments import find_experiments
from icone.paper.experiments.base import Experiment
from icone.paper.listing import estimate_line, likely_device
from icone.paper.live_view import LiveView, log_of
from icone.paper.options import Options
from icone.paper.outcome import SweepHalted
from icone.paper.spec import MADE_UP, Cell, RunSpec
from icone.paper.store import Store
from icone.paper.time_limit import TimeLimit
from icone.process import sigterm_interrupts
from icone.terminal import counted

WORTH_A_TRIAL = 600.0
"""Seconds from which a sweep is worth a trial of a tenth first."""


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
    """Why runs failed, are unfinished or were left out: a line for each reason, the most frequent first."""
    left_out: int = 0
    """Runs whose data is not there."""
    postponed: int = 0
    """Runs that did not end, or did not begin, before the time limit; the same command goes on with them."""


class Plan(NamedTuple):
    """What a sweep has to do."""

    cells: dict[str, Cell]
    tasks: list[Task]
    """The runs to execute."""
    before: dict[str, int]
    """How many of the others are done, undefined and failed."""
    unusable: Unusable
    left_out: int
    """Runs whose data is not there."""

    @property
    def specs(self) -> dict[str, RunSpec]:
        return {key: cell.spec for key, cell in self.cells.items()}


def sweep(
    names: Sequence[str],
    options: Options,
    store: Store,
    engine: SweepEngine,
    console: Console,
    retry_failed: bool = False,
    data_is_here: bool = True,
    device: str | None = None,
    together: int = 1,
    max_minutes: float | None = None,
) -> Tally:
    """Run what is missing of the named experiments (`all`: every one) in a store that may know some already.

    Where the data is on this machine, every set is opened once before the first run; the runs of a set that cannot be
    used are left out. `device` is the name of what will execute them, `together` at a time, for the estimate. After
    `max_minutes` the states of what is running are saved, and the rest is postponed.
    """
    limit = TimeLimit(max_minutes)
    plan = plan_sweep(names, options, store, console, retry_failed, data_is_here, device)
    store.create()
    for experiment in find_experiments(names):
        store.remember(experiment.name, options.to_json())
    specs, tasks, before = plan.specs, plan.tasks, plan.before
    for key, peak in store.peaks().items():
        if key in specs:
            engine.learn(specs[key], peak)
    expected = announce(plan, names, options, store, console, device, together, max_minutes)
    limit.expected.update(expected)
    total = len(tasks) + sum(before.values())
    with sigterm_interrupts(), LiveView(console, total, before, store.folder / "runs", expected) as view:

        def observe(event: Event) -> None:
            limit.learn(event)
            view.observe(event)

        try:
            engine.run(tasks, observe, limit)
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
    lost = [
        f"unfinished ({counted(number, 'run')}): {reason}" for reason, number in Counter(view.unfinished).most_common()
    ]
    problems = [*_failures(specs, store), *lost, *plan.unusable.sentences(plan.left_out, options)]
    postponed = total - sum(view.counts.values())
    return Tally(**view.counts, executed=len(tasks) - postponed, problems=problems, left_out=plan.left_out,
                 postponed=postponed)  # fmt: skip


def plan_sweep(
    names: Sequence[str],
    options: Options,
    store: Store,
    console: Console,
    retry_failed: bool = False,
    data_is_here: bool = True,
    device: str | None = None,
) -> Plan:
    """Find out what is missing and can be run; what is left out is said. Nothing is written."""
    cells: dict[str, Cell] = {}
    for experiment in find_experiments(names):
        for cell in _cells_of(experiment, options, console, strict="all" not in names):
            cells.setdefault(cell.spec.key, cell)
    tasks, before = _missing({key: cell.spec for key, cell in cells.items()}, store, retry_failed)
    unusable = _unusable_sources([task.spec.config for task in tasks]) if data_is_here else Unusable([], [])
    if device == CPU:
        tasks = [task for task in tasks if task.spec.cost.partition(" ")[0] in ("", CPU)]
        if not tasks and not any(before.values()):
            raise InputError("memory and time of a GPU can be measured on a GPU only; --smoke shows what a CPU can")
    left_out = sum(task.spec.config.source in unusable.sources for task in tasks)
    tasks = [task for task in tasks if task.spec.config.source not in unusable.sources]
    if left_out and not tasks:
        raise InputError(". ".join(unusable.sentences(left_out, options)))
    for sentence in unusable.sentences(left_out, options):
        _say(console, sentence)
    return Plan(cells, tasks, before, unusable, left_out)


def announce(
    plan: Plan,
    names: Sequence[str],
    options: Options,
    store: Store,
    console: Console,
    device: str | None,
    together: int,
    max_minutes: float | None = None,
) -> dict[str, float]:
    """Say how long the runs will take, and how to do a tenth of it; the seconds of every run, by its key."""
    cells = [plan.cells[task.spec.key] for task in plan.tasks]
    results = store.results() if store.outcomes.is_dir() else None
    estimator = Estimator(results, device or likely_device(results), together)
    left = estimator.total(cells)
    if left.runs:
        _say(console, estimate_line(left, estimator.device))
        if max_minutes is not None and (calls := math.ceil(left.seconds / (60 * max_minutes))) > 1:
            _say(console, f"that is about {calls} calls of {max_minutes:g} minutes: the same command goes on each time")
        trained = [cell.spec.config.epochs for cell in cells if not cell.spec.cost]
        if left.seconds > WORTH_A_TRIAL and trained and (tenth := round(max(trained, key=trained.count) / 10)):
            words = ["icone", "paper", "run", *names, *dataclasses.replace(options, epochs=tenth).words()]
            _say(console, f"a tenth of it, with a tenth of the epochs: {shlex.join(words)}")
    return {key: seconds for key, (seconds, _) in estimator.each(cells).items()}


def _failures(specs: dict[str, RunSpec], store: Store) -> list[str]:
    """Every reason why runs failed, how often, and where the first of them wrote its log."""
    runs = store.results().drop_duplicates("run")
    failed = runs[runs["run"].isin(specs) & (runs["status"] == "failed")]
    by_reason: dict[str, list[str]] = {}
    for key, reason in zip(failed["run"].astype(str), failed["reason"].astype(str), strict=True):
        by_reason.setdefault(reason, []).append(key)
    return [
        f"failed ({counted(len(keys), 'run')}): {reason} ({log_of(store.run_folder(keys[0]))})"
        for reason, keys in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    ]


def _cells_of(experiment: Experiment, options: Options, console: Console, strict: bool) -> list[Cell]:
    try:
        cells = experiment.cells(options)
    except InputError as error:
        if strict:
            raise
        _say(console, f"{experiment.name} is left out: {error}")
        return []
    if not cells and experiment.runs:
        text = f"{experiment.name} has nothing to run: it needs {experiment.needs}"
        if strict:
            raise InputError(text)
        _say(console, text)
    return cells


def _missing(specs: dict[str, RunSpec], store: Store, retry_failed: bool) -> tuple[list[Task], dict[str, int]]:
    """The runs to execute, and how many of the others are done, undefined and failed."""
    before = {"done": 0, "undefined": 0, "failed": 0}
    tasks = []
    last = store.last_records()
    statuses = store.statuses()
    for key, spec in specs.items():
        record, status = last.get(key), statuses.get(key)
        if status is None or (retry_failed and status == "failed"):
            after = 0 if record is None else record.attempt  # a damaged outcome is none
            begun = (store.run_folder(key) / TRAINING).is_dir()
            tasks.append(Task(spec, after, alone=bool(spec.cost), begun=begun))  # what is timed has the machine alone
        else:
            before[status] += 1
    return tasks, before


class Unusable(NamedTuple):
    """Data sets that cannot be opened."""

    sources: list[str]
    reasons: list[str]

    def sentences(self, runs: int, options: Options) -> list[str]:
        """What is left out and why, and the one command that fetches what can be fetched."""
        if not self.sources:
            return []
        said = [f"left out ({counted(runs, 'run')}), because data is not there: {'; '.join(self.reasons)}"]
        if named := [source for source in self.sources if source.startswith("medmnist:")]:
            root = ["--data-root", str(options.data_root)] if options.data_root else []
            said.append(f"the command that fetches all of it: {shlex.join(['icone', 'fetch', *named, *root])}")
        return [*said, "the sets you have can be chosen with --datasets"]


def _unusable_sources(configs: Sequence[PretrainConfig]) -> Unusable:
    """Open every data set once: one sentence instead of a thousand failed runs, and one download instead of several."""
    found = Unusable([], [])
    for config in {(c.source, c.data_root, c.labels): c for c in configs}.values():
        if config.source.startswith(MADE_UP):
            continue
        try:
            open_source(config.source, config).close()
        except InputError as error:
            found.sources.append(config.source)
            found.reasons.append(str(error))
    return found


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
