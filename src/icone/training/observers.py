"""What follows a run from outside: measurements, alarms and loggers share one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
"""A line of the history: numbers by name, and perhaps `geometry`, a dictionary of further numbers."""


class Observer:
    """Is told about every epoch; leaves weights, modes and random generators as they are.

    A subclass overrides what it needs: `measure` to add to the row of an epoch, `end_epoch` to react to it.
    """

    def start(self, history: Sequence[Row]) -> None:
        """Training begins, or continues after the epochs of `history`."""

    def measure(self, epoch: int) -> Row:
        """Entries for the row of the epoch that has just ended."""
        return {}

    def end_epoch(self, row: Row) -> None:
        """The row is complete and written; `CollapseError` stops the run, with its state saved."""

    def close(self) -> None:
        """Training is over, for whatever reason."""


def flatten(row: Row) -> dict[str, float]:
    """The numbers of a row by name, those of `geometry` as `geometry/name`.

    >>> flatten({"epoch": 3, "loss": 0.5, "geometry": {"rankme": 12.0}})
    {'loss': 0.5, 'geometry/rankme': 12.0}
    """
    flat = {name: value for name, value in row.items() if name not in ("epoch", "geometry")}
    return flat | {f"geometry/{name}": value for name, value in row.get("geometry", {}).items()}
