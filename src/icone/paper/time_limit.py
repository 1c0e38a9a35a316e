"""A sweep that must end in time: what may still start, and when everything has to be saved.

A run whose estimate fits into the time that is left may start, and what was begun before goes first. Where nothing fits
and the device has room, the first run that waits is begun all the same: its state is saved at the limit, and the next
call goes on with it to the same result. A device that waits instead has lost the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from icone.paper.engines.events import Event, Task

TRUST = 60.0
"""Seconds for which estimates count as right before what runs took corrects them: the first run of a process also takes
the imports, which says nothing about the others."""
WORTH_BEGINNING = 30.0
"""Seconds that must be left to begin a run that will not end in them. Before the first step a process imports PyTorch
and reads the data, and the step is captured or compiled (2 or 35 s, `start_seconds` in step_times.json): with less time
there would hardly be anything to save."""


class TimeLimit:
    """The time that a sweep has, and the estimates of its runs; without minutes there is no limit."""

    def __init__(
        self,
        minutes: float | None = None,
        expected: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`expected` holds the estimated seconds of the device for every run, by its key; the clock starts now."""
        self.seconds = None if minutes is None else 60 * minutes
        self.expected = dict(expected or {})
        self.clock, self.began = clock, clock()
        self._estimated = self._taken = 0.0

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return float("inf") if self.seconds is None else self.seconds - (self.clock() - self.began)

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    def learn(self, event: Event) -> None:
        """Compare what a finished run took with its estimate: the others are wrong by the same factor."""
        if event.outcome is not None and event.outcome.status == "done" and event.spec.key in self.expected:
            self._estimated += self.expected[event.spec.key]
            self._taken += event.outcome.seconds / event.outcome.processes

    def need(self, tasks: Sequence[Task], processes: int = 1) -> float:
        """Seconds until these tasks have ended, as one group, where so many processes share the device."""
        factor = (self._taken + TRUST) / (self._estimated + TRUST)
        return factor * processes * sum(self.expected.get(task.spec.key, 0.0) for task in tasks)

    def how_many(self, group: Sequence[Task], processes: int = 1) -> int:
        """How many of the first tasks of a group may start now; what was begun before always may."""
        if self.seconds is None or any(task.begun for task in group):
            return len(group)
        return next((n for n in range(len(group), 0, -1) if self.need(group[:n], processes) <= self.left), 0)

    @property
    def is_worth_beginning(self) -> bool:
        """Whether a run that will not end in time may be begun, where nothing else is to be done."""
        return self.left >= WORTH_BEGINNING
