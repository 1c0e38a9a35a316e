"""What a person sees while a sweep runs: done, running, waiting, undefined, failed, time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from icone.paper.engines.events import Event
from icone.paper.execute import LOG
from icone.paper.spec import RunSpec
from icone.paper.time_limit import TRUST
from icone.terminal import say
from icone.training.progress import format_seconds

SHOWN = 8
PLAIN_SECONDS = 30.0


class LiveView:
    """A live panel on a terminal; elsewhere a line for every failure, and one with the counts now and then."""

    def __init__(
        self, console: Console, total: int, before: dict[str, int], runs: Path, expected: Mapping[str, float]
    ) -> None:
        """`before` counts the runs that had ended before, by status; `runs` is the folder of their logs.

        `expected` holds the estimated seconds of every run to come, by its key: runs differ a thousandfold.
        """
        self.console, self.total, self.runs, self.expected = console, total, runs, dict(expected)
        self.work = 0.0
        """Estimated seconds of what has ended here."""
        self.counts = {**before, "unfinished": 0}
        self.unfinished: list[str] = []
        """Why runs have no outcome."""
        self.running: dict[str, tuple[RunSpec, float]] = {}
        self.began = self.spoke = time.monotonic()
        self.live = Live(console=console, get_renderable=self._panel, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        else:
            self._say(self.summary())
        return self

    def __exit__(self, *exception: object) -> None:
        if self.console.is_terminal:
            self.live.stop()
        self._say(self.summary())

    def observe(self, event: Event) -> None:
        """Called by the engine for every change."""
        key = event.spec.key
        if event.kind == "started":
            self.running[key] = (event.spec, time.monotonic())
            return
        self.running.pop(key, None)
        if event.kind != "waiting":
            self.work += self.expected.pop(key, 0.0)
        if event.outcome is not None:
            self.counts[event.outcome.status] += 1
            if event.outcome.status == "failed":
                self._say(f"failed: {describe(event.spec)}: {event.outcome.reason} ({log_of(self.runs / key)})")
        elif event.kind == "unfinished":
            self.counts["unfinished"] += 1
            self.unfinished.append(event.reason)
            self._say(f"unfinished: {describe(event.spec)}: {event.reason} ({log_of(self.runs / key)})")
        if not self.console.is_terminal and time.monotonic() - self.spoke > PLAIN_SECONDS:
            self._say(self.summary())

    def summary(self) -> str:
        """One line: counts and time left."""
        over = sum(self.counts.values())
        parts = [f"{over}/{self.total} runs", *(f"{n} {name}" for name, n in self.counts.items() if n)]
        if self.running:
            parts.append(f"{len(self.running)} running")
        if over < self.total:
            parts.append(f"about {format_seconds(self.seconds_left())} left")
        return ", ".join(parts)

    def seconds_left(self) -> float:
        """What was expected of the runs to come, corrected by how wrong that was so far.

        Of the runs that go on now, the part that they should have behind them counts as done.
        """
        left, passed = sum(self.expected.values()), time.monotonic() - self.began
        going = sum(
            min(self.expected.get(key, 0), time.monotonic() - since) for key, (_, since) in self.running.items()
        )
        if not self.work:
            return max(left - going, 0.0)
        return (passed + TRUST) / (self.work + going + TRUST) * (left - going)

    def _panel(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for spec, since in list(self.running.values())[:SHOWN]:
            table.add_row("▸", describe(spec), format_seconds(time.monotonic() - since))
        if len(self.running) > SHOWN:
            table.add_row("", f"and {len(self.running) - SHOWN} more", "")
        bar = ProgressBar(total=max(self.total, 1), completed=sum(self.counts.values()), width=60)
        return Group(Text(self.summary()), bar, table)

    def _say(self, text: str) -> None:
        self.spoke = time.monotonic()
        say(self.console, text)


def log_of(folder: Path) -> str:
    """Where to read what happened to a run."""
    return f"see {folder / LOG}"


def describe(spec: RunSpec) -> str:
    """A run in a few words.

    >>> from icone.config import PretrainConfig
    >>> describe(RunSpec(config=PretrainConfig(source="medmnist:bloodmnist@224", subset=500, batch_size=4, seed=2)))
    'icone on bloodmnist@224 of 500, batch 4, seed 2'
    """
    c = spec.config
    of = f" of {c.subset}" if c.subset else ""
    extra = f" {' '.join(c.options)}" if c.options else ""
    k = f", k {c.imbalance:g}" if c.imbalance else ""
    name = c.source.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    return f"{c.method}{extra} on {name}{of}, batch {c.batch_size}{k}, seed {c.seed}"
