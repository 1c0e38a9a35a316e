"""What an engine is asked to do, and what it tells while it works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from icone.paper.outcome import Outcome
from icone.paper.spec import RunSpec


class Task(NamedTuple):
    """A run to execute unless it has an outcome later than attempt `after`."""

    spec: RunSpec
    after: int = 0
    alone: bool = False
    """Nothing else may run beside it: it ran out of memory before, its process was killed, or it is timed."""
    processes: int = 1
    """Processes that worked on the device when it began, its own included."""


class Event(NamedTuple):
    """A change in the state of one run; `outcome` comes with "finished", `reason` with "unfinished".

    An unfinished run was lost with its process too often. That says nothing about the run: it has no outcome, and the
    next sweep goes on with it.
    """

    kind: Literal["started", "finished", "waiting", "unfinished"]
    spec: RunSpec
    outcome: Outcome | None = None
    reason: str = ""


Observe = Callable[[Event], None]


class SweepEngine(Protocol):
    """Executes all tasks and returns; `KeyboardInterrupt` stops it with everything finished so far kept.

    `SweepHalted` ends it where a disk is full or the store cannot be written.
    """

    def learn(self, spec: RunSpec, peak_bytes: int) -> None:
        """What a run of this shape took, from an earlier sweep."""

    def run(self, tasks: Sequence[Task], observe: Observe) -> None: ...
