"""What `icone paper list` prints, without PyTorch and pandas, so that it answers at once.

Without a store and without options the list is always the same. It is stored in listing.json: `python -m
icone.paper.listing` writes the file, and a test compares it with the experiments as they are.
"""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from icone.paper.options import Options

STORED = "listing.json"


class Estimate(NamedTuple):
    """Seconds of a device, and how many of the runs behind them resemble runs that the store has measured."""

    seconds: float
    measured: int
    runs: int

    @property
    def modelled(self) -> bool:
        """Whether a part is by the table alone."""
        return self.measured < self.runs


class Line(NamedTuple):
    """The state of one experiment."""

    name: str
    labels: str
    needs: str
    wanted: int
    done: int
    undefined: int
    """Runs that cannot exist, executed or not."""
    failed: int
    left: Estimate
    """Of the runs that have not ended."""


class Listing(NamedTuple):
    """All experiments; `total` counts what several of them share once."""

    lines: list[Line]
    total: Line
    device: str
    table_hardware: str
    """Where the step times were measured that estimates go by."""


def stored_listing(options: Options, outcomes: Path) -> Listing | None:
    """The list without a store, on a machine with a GPU; None where options, a store or a program may change it."""
    if options.changed() or outcomes.is_dir() or "icone.paper.experiments" in sys.modules:
        return None  # who has imported the experiments may have registered one, and need not wait for them
    plain = json.loads((resources.files("icone.paper") / STORED).read_text(encoding="utf-8"))
    return Listing([_line(one) for one in plain["lines"]], _line(plain["total"]), *plain["hardware"])


def to_plain(listing: Listing) -> dict[str, object]:
    """What listing.json holds."""
    hardware = [listing.device, listing.table_hardware]
    return {"hardware": hardware, "lines": [_plain(line) for line in listing.lines], "total": _plain(listing.total)}


def _plain(line: Line) -> dict[str, object]:
    return line._asdict() | {"left": line.left._replace(seconds=round(line.left.seconds))._asdict()}


def _line(plain: dict[str, object]) -> Line:
    left = plain["left"]
    assert isinstance(left, dict)
    return Line(**plain | {"left": Estimate(**left)})  # type: ignore[arg-type]


def listing_table(listing: Listing) -> Table:
    caption = (
        f"hours left on one {listing.device}; ~: a part is by a table of step times measured on "
        f"{listing.table_hardware}, the rest by the runs of this store. A run that several experiments share "
        "is in each line and in the total once; undefined runs take no time."
    )
    table = Table(caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("experiment", no_wrap=True)
    table.add_column("table or figure, needs", overflow="fold")
    for name in ("runs", "done", "undef.", "failed", "hours left"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in listing.lines:
        table.add_row(*_row(line))
    table.add_section()
    table.add_row(*_row(listing.total), style="bold")
    return table


def _row(line: Line) -> list[str | Text]:
    counts = [str(n) if line.wanted else "" for n in (line.wanted, line.done, line.undefined, line.failed)]
    about = Text(line.labels.replace(", ", "\n") + "\n").append(line.needs, style="dim") if line.labels else ""
    return [line.name, about, *counts, _hours(line.left) if line.wanted else ""]


def _hours(left: Estimate) -> str:
    return f"{'~' if left.modelled else ''}{left.seconds / 3600:.1f}"
