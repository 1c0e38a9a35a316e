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
    begun: bool = False
    """An earlier sweep has left a state of it, from which it goes on."""


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


class Limit(Protocol):
    """What an engine asks before it starts a run (`icone.paper.time_limit.TimeLimit`)."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_worth_beginning(self) -> bool: ...

    def how_many(self, group: Sequence[Task], processes: int = 1) -> int: ...


class SweepEngine(Protocol):
    """Executes all tasks and returns; `KeyboardInterrupt` stops it with everything finished so far kept.

    `SweepHalted` ends it where a disk is full or the store cannot be written. At the limit it saves the states of what
    is running and returns; it returns earlier where nothing runs and nothing more may start.
    """

    def learn(self, spec: RunSpec, peak_bytes: int) -> None:
        """What a run of this shape took, from an earlier sweep."""

    def run(self, tasks: Sequence[Task], observe: Observe, limit: Limit) -> None: ...
