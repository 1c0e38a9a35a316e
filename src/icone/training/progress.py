"""What a person sees while a run trains: a live display on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import Progress, TaskID

from icone.terminal import counted, in_notebook, say
from icone.training.bar_line import BarLine, Details
from icone.training.live_score import live_score


class Display(ABC):
    """Follows a run; `fit` calls it, at most a few times a second."""

    @abstractmethod
    def start(self, done: int, total: int, epochs: int) -> None:
        """Training begins, or continues after `done` of `total` steps."""

    @abstractmethod
    def refresh(self, done: int, epoch: int, terms: dict[str, float], instances_per_second: float) -> None:
        """Some steps later: means of the terms in this epoch so far."""

    @abstractmethod
    def end_epoch(self, row: dict[str, Any]) -> None:
        """An epoch is over; `row` is its line of the history."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """Something that a person should know now."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something that a person may want to know."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal as it was."""


CLOCKS = ("lr", "seconds", "instances_per_second", "probe_seconds", "waiting")
"""Entries of a row that are no terms."""
MEASURED = ("geometry", "probe")
"""Entries of a row that are dictionaries: what the live probe measured."""
SPEED_SECONDS = 300.0
"""Steps of this long tell the time left: a step of a large volume may take half a minute."""


class LiveLines(Progress):
    """rich's progress display, which knows the time left, drawn as one `BarLine` for every task and `Details` below.

    The task's fields: `texts` of the first line, before and after the time left, and `details`.
    """

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            left = "" if task.time_remaining is None else f"{format_seconds(task.time_remaining)} left"
            first, last = task.fields["texts"]
            yield BarLine(task.description, [first, left, last], task.completed, task.total or 1)
            yield Details(task.fields["details"])


class RichDisplay(Display):
    """Two lines: epoch, bar, loss, time left and speed; then steps, terms, waiting, RankMe and probes.

    The first has room for all of it in 80 columns (`BarLine`); RankMe is the last of the measurements with all of them
    as a sparkline.
    """

    def __init__(self, console: Console) -> None:
        self.progress = LiveLines(console=console, speed_estimate_period=SPEED_SECONDS)
        self.ranks: list[float] = []
        self.step: list[str] = []
        self.waits = ""
        self.measured: list[str] = []

    def start(self, done: int, total: int, epochs: int) -> None:
        self.total, self.epochs = total, epochs
        self._add_task(done)
        self.progress.start()

    def _add_task(self, done: int) -> None:
        details = [f"step {done:,}/{self.total:,}"]
        self.task = self.progress.add_task(
            f"epoch –/{self.epochs}", total=self.total, completed=done, texts=("", ""), details=details
        )

    def refresh(self, done: int, epoch: int, terms: dict[str, float], instances_per_second: float) -> None:
        shown = {name: format_terms({name: value}) for name, value in terms.items()}
        loss = shown.pop("loss", "")
        self.step = [f"step {done:,}/{self.total:,}", *shown.values()]
        self.progress.update(
            self.task,
            description=f"epoch {epoch + 1}/{self.epochs}",
            completed=done,
            texts=(loss, f"{instances_per_second:.1f} samples/s"),
            details=[*self.step, self.waits, *self.measured],
        )

    def end_epoch(self, row: dict[str, Any]) -> None:
        self.waits = format_waiting(row).strip()
        if "geometry" in row:
            self.ranks.append(row["geometry"]["rankme"])
            rank = f"RankMe {sparkline(self.ranks)} {format_rank(row['geometry'])}"
            self.measured = [rank, format_probe(row).strip()]
        self.progress.update(self.task, details=[*self.step, self.waits, *self.measured])

    def warn(self, text: str) -> None:
        self.progress.console.print(f"warning: {text}", style="yellow", highlight=False, soft_wrap=True, markup=False)

    def note(self, text: str) -> None:
        say(self.progress.console, f"note: {text}")

    def close(self) -> None:
        self.progress.stop()


class NotebookDisplay(RichDisplay):
    """The lines of a terminal below a cell of a notebook, where they are replaced in place as text."""

    WIDTH = 100

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._output: Any = None

    def start(self, done: int, total: int, epochs: int) -> None:
        from IPython.display import display

        self.total, self.epochs = total, epochs
        self._add_task(done)
        self._output = display(self._shown(), raw=True, display_id=True)

    def refresh(self, done: int, epoch: int, terms: dict[str, float], instances_per_second: float) -> None:
        super().refresh(done, epoch, terms, instances_per_second)
        self._output.update(self._shown(), raw=True)

    def end_epoch(self, row: dict[str, Any]) -> None:
        super().end_epoch(row)
        self._output.update(self._shown(), raw=True)

    def close(self) -> None:
        pass  # the last lines stay

    def _shown(self) -> dict[str, str]:
        page = Console(file=io.StringIO(), width=self.WIDTH, color_system=None, force_jupyter=False)
        with page.capture() as text:
            page.print(*self.progress.get_renderables(), sep="", end="")
        return {"text/plain": text.get().rstrip()}


class PlainDisplay(Display):
    """A line at the end of an epoch, and one a minute during long epochs; for logs and pipes.

    `name` stands before the lines of a run that trains beside others.
    """

    def __init__(self, console: Console, seconds: float = 60.0, name: str = "") -> None:
        self.console = console
        self.seconds = seconds
        self.prefix = f"{name}: " if name else ""
        self.spoke = time.monotonic()

    def start(self, done: int, total: int, epochs: int) -> None:
        self.total, self.epochs = total, epochs
        self.began = self.warm = time.monotonic(), done
        self._say(f"training: {counted(total - done, 'step')} to go" + (f" ({done} done before)" if done else ""))

    def refresh(self, done: int, epoch: int, terms: dict[str, float], instances_per_second: float) -> None:
        self.done = done
        if time.monotonic() - self.spoke > self.seconds:
            self._line(epoch, terms, instances_per_second)
        if self.warm is self.began:  # the first steps take longer than all others
            self.warm = time.monotonic(), done

    def end_epoch(self, row: dict[str, Any]) -> None:
        terms = {name: value for name, value in row.items() if name not in ("epoch", *MEASURED, *CLOCKS)}
        rank = f"  RankMe {format_rank(row['geometry'])}{format_probe(row)}" if "geometry" in row else ""
        self._line(row["epoch"], terms, row["instances_per_second"], rank + format_waiting(row))

    def warn(self, text: str) -> None:
        self._say(f"warning: {text}")

    def note(self, text: str) -> None:
        self._say(f"note: {text}")

    def close(self) -> None:
        pass  # nothing is held

    def _line(self, epoch: int, terms: dict[str, float], instances_per_second: float, rank: str = "") -> None:
        began, before = self.warm if self.done > self.warm[1] else self.began
        left = (time.monotonic() - began) / max(self.done - before, 1) * (self.total - self.done)
        self._say(
            f"epoch {epoch + 1}/{self.epochs}  {format_terms(terms)}{rank}  {instances_per_second:.1f} samples/s  "
            f"{format_seconds(left)} left"
        )

    def _say(self, text: str) -> None:
        self.spoke = time.monotonic()
        say(self.console, self.prefix + text)


class ProgressBar:
    """Shows how far a count of samples has come: a bar with the time left on a terminal, else a line once in a while.

    It is called with (what is done, number done, total), as often as one likes: it looks at a clock first. The bar of
    one thing that is done gives way to that of the next, and the last is wiped out at the end.
    """

    def __init__(self, console: Console, seconds: float = 10.0) -> None:
        self._console = console
        self._bar = LiveLines(console=console, transient=True) if console.is_terminal else None
        self._pause = 0.1 if self._bar else seconds
        self._what = ""
        self._task: TaskID | None = None
        self._began = self._spoke = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._spoke = what, now, now
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(
                    what, total=total, completed=done, texts=(f"{done:,}/{total:,}", ""), details=()
                )
        elif now - self._spoke >= self._pause:
            self._spoke = now
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=done, total=total, texts=(f"{done:,}/{total:,}", ""))
            else:
                left = format_seconds((now - self._began) / max(done, 1) * (total - done))
                say(self._console, f"{what}: {done:,}/{total:,}, {left} left")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def choose_display(console: Console) -> Display:
    """A live line in a terminal and in a notebook, plain lines elsewhere."""
    if console.is_terminal:
        return RichDisplay(console)
    return NotebookDisplay(console) if in_notebook(console) else PlainDisplay(console)


def format_terms(terms: dict[str, float]) -> str:
    """
    >>> format_terms({"loss": 0.51234, "diversity": 0.001})
    'loss 0.512  diversity 0.001'
    """
    return "  ".join(f"{name} {value:.3f}" for name, value in terms.items())


def format_rank(geometry: dict[str, float]) -> str:
    """RankMe, the most that it could be, and that of the untrained encoder where it was measured.

    >>> format_rank({"rankme": 41.26, "rank_limit": 149.0})
    '41.3/149'
    >>> format_rank({"rankme": 41.26, "rank_limit": 149.0, "untrained_rankme": 60.0})
    '41.3/149 (untrained 60.0)'
    """
    before = f" (untrained {geometry['untrained_rankme']:.1f})" if "untrained_rankme" in geometry else ""
    return f"{geometry['rankme']:.1f}/{geometry['rank_limit']:.0f}{before}"


def format_probe(row: dict[str, Any]) -> str:
    """
    >>> format_probe({"probe": {"live_linear": 0.712, "untrained_live_linear": 0.6}}), format_probe({})
    ('  linear probe 71.2 % (untrained 60.0)', '')
    """
    found = live_score(row)
    if found is None:
        return ""
    name = found.probe if found.unit else f"{found.probe} {found.score}"
    return f"  {name} {found.now}{found.unit} (untrained {found.before})"


def format_waiting(row: dict[str, Any]) -> str:
    """
    >>> format_waiting({"waiting": 0.12}), format_waiting({"waiting": 0.001})
    ('  waits for data 12%', '')
    """
    return f"  waits for data {row['waiting']:.0%}" if row.get("waiting", 0) >= 0.01 else ""


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """The last values as bars of eight heights, the highest of them full.

    >>> sparkline([0.0, 1.0, 2.0, 4.0, 8.0])
    '▁▂▃▅█'
    """
    shown = values[-width:]
    top = max(shown, default=0.0) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * max(value, 0.0) / top))] for value in shown)


def format_step(seconds: float) -> str:
    """
    >>> format_step(0.0025), format_step(3.21)
    ('2.5 ms', '3.2 s')
    """
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_seconds(seconds: float) -> str:
    """
    >>> format_seconds(42), format_seconds(3700)
    ('42 s', '1 h 02 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
