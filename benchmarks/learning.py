"""Short runs on generated volumes, on equal terms: what the comparisons of methods, and their tests, share."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console

from icone.api.evaluate import evaluate
from icone.api.pretrain import pretrain
from icone.errors import InputError
from icone.files import replacing
from icone.methods import METHODS

METRICS = ("linear_probe", "knn_5", "rankme")
Metrics = dict[str, float]
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is the same for all: data, encoder, optimizer, schedule, epochs; views and probes are the defaults.

    GroupNorm and few features, because BatchNorm would make every method depend on the batch through its encoder,
    and with more features than instances all anchors can be orthogonal whatever the images show.
    """

    source: str = "synthetic:shapes@24x500"
    test_fraction: float = 0.52
    encoder: str = "resnet10_3d"
    width: float = 0.125
    norm: str = "group"
    features: int = 64
    epochs: int = 8
    lr: float = 1e-3
    labels: Path | None = None
    size: int | None = None


@dataclass(frozen=True)
class Entry:
    """A method as it enters a comparison."""

    name: str
    method: str
    batch_size: int
    options: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """Metrics of one run, balanced accuracies in percent, or why it is undefined."""

    entry: Entry
    trained: Metrics = field(default_factory=dict)
    untrained: Metrics = field(default_factory=dict)
    seconds: float = 0.0
    """Processor time of training and evaluation."""
    undefined: str = ""

    def __str__(self) -> str:
        result = self.undefined or f"{self.untrained['linear_probe']:.1f} → {self.trained['linear_probe']:.1f}"
        return f"{self.entry.name}, B = {self.entry.batch_size}, seed {self.entry.seed}: {result}"

    def gain(self, metric: str = "linear_probe") -> float:
        return self.trained[metric] - self.untrained[metric]


def settings_of(terms: Terms, entry: Entry) -> dict[str, Any]:
    """The terms, but for data and encoder of a method that cannot use those of all (`Method.learning`)."""
    return {**vars(terms), **METHODS[entry.method].learning.terms}


def measure(terms: Terms, entry: Entry) -> Outcome:
    """Pretrain and evaluate one entry, in a temporary folder, with one thread."""
    torch.set_num_threads(1)
    console = Console(file=io.StringIO())
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        try:
            pretrain(
                **settings_of(terms, entry), method=entry.method, options=entry.options, batch_size=entry.batch_size,
                seed=entry.seed, probe_every=0, device="cpu", out=run, console=console,
            )  # fmt: skip
        except InputError as error:
            return Outcome(entry, undefined=str(error))
        result = evaluate(run, untrained=True, geometry_instances=0, device="cpu", console=console)
    seconds = round(time.process_time() - began, 1)
    return Outcome(entry, _metrics(result["trained"]), _metrics(result["untrained"]), seconds)


def measure_all(
    terms: Terms,
    entries: Sequence[Entry],
    *,
    workers: int = 1,
    known: Mapping[Entry, Outcome] | None = None,
    each: Callable[[str, Sequence[Outcome]], None] = lambda news, outcomes: None,
) -> dict[Entry, Outcome]:
    """The outcomes of the entries: those that are known, the others run in as many processes as there are workers.

    `each` is told after every run what came of it, and all outcomes so far.
    """
    outcomes = {entry: outcome for entry, outcome in (known or {}).items() if entry in entries}
    missing = [entry for entry in entries if entry not in outcomes]
    calls = [partial(measure, terms, entry) for entry in missing]
    for done, outcome in enumerate(in_processes(calls, workers), 1):
        outcomes[outcome.entry] = outcome
        each(f"{done}/{len(missing)} {outcome}", list(outcomes.values()))
    return outcomes


def in_processes(calls: Iterable[Callable[[], Result]], workers: int) -> Iterator[Result]:
    """What the calls return, in the order in which they end. An error is raised at once, and what waits is left."""
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        for future in as_completed([pool.submit(call) for call in calls]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def saved_outcomes(file: Path, terms: Terms) -> dict[Entry, Outcome]:
    """The runs of a file that a `Record` wrote, by entry; a file of other terms is refused."""
    saved = json.loads(file.read_text())
    if saved["terms"] != _plain(terms):
        raise InputError(f"{file} holds runs on other terms: {saved['terms']}")
    outcomes = {}
    for run in saved["runs"]:
        entry = Entry(**{**run["entry"], "options": tuple(run["entry"]["options"])})
        outcomes[entry] = Outcome(**{**run, "entry": entry})
    return outcomes


def _plain(terms: Terms) -> dict[str, Any]:
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in vars(terms).items()}
    return {key: value for key, value in plain.items() if value is not None}


def _metrics(measured: dict[str, Any]) -> Metrics:
    values = (measured[name] for name in METRICS)
    accuracies = [100 * v["balanced_accuracy"] if isinstance(v, dict) else v for v in values]
    return {name: round(value, 3) for name, value in zip(METRICS, accuracies, strict=True)}


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation (over n − 1); of one value that value alone.

    >>> spread([1.0, 2.0, 3.0]), spread([1.0])
    ('2.0±1.0', '1.0')
    """
    deviation = f"±{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up on a terminal too.

    >>> print(markdown(["a", "long"], [["1", "2"]]))
    | a | long |
    | - | ---- |
    | 1 | 2    |
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


class Record:
    """The files of a comparison: `NAME-DATE.json` with every run so far, and at the end `NAME-DATE.md` for people."""

    def __init__(self, folder: Path, name: str, terms: Terms) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        packages = ("icone", "torch", "numpy", "scikit-learn")
        self.facts = {
            "date": datetime.now(UTC).date().isoformat(),
            "hardware": f"{os.cpu_count()} CPU cores, one thread per run",
            "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
            "terms": _plain(terms),
        }
        self.name = name
        self.target = folder / f"{name}-{self.facts['date']}"

    def runs(self, outcomes: Sequence[Outcome]) -> None:
        """Written after every run, so that a comparison can be continued after an interruption."""
        content = {**self.facts, "runs": [asdict(outcome) for outcome in outcomes]}
        with replacing(self.target.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n")

    def tables(self, text: str, outcomes: Sequence[Outcome]) -> None:
        minutes = sum(outcome.seconds for outcome in outcomes) / 60
        facts = {**self.facts, "processor time": f"{minutes:.0f} minutes for {len(outcomes)} runs"}
        told = "\n".join(f"- {key}: {_words(value)}" for key, value in facts.items())
        self.target.with_suffix(".md").write_text(f"# {self.name}\n\n{told}\n\n{text}")


def _words(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def measure_and_tell(
    terms: Terms,
    entries: Sequence[Entry],
    tell: Callable[[Mapping[Entry, Outcome]], str],
    *,
    name: str,
    workers: int,
    reuse: Path | None,
    out: Path | None,
) -> None:
    """Run a comparison from the command line: progress, then the text that `tell` makes of the outcomes, then files."""
    console = Console(soft_wrap=True, highlight=False)
    record = Record(out, name, terms) if out else None

    def each(news: str, outcomes: Sequence[Outcome]) -> None:
        console.print(news, markup=False)
        if record:
            record.runs(outcomes)

    known = saved_outcomes(reuse, terms) if reuse else None
    found = measure_all(terms, entries, workers=workers, known=known, each=each)
    text = tell(found)
    console.print(text, markup=False)
    if record:
        record.runs(list(found.values()))
        record.tables(text, list(found.values()))
