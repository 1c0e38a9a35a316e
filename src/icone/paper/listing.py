"""`icone paper list`: every table and figure, what it needs, its runs, and an estimate of the hours left."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import torch
from rich import box
from rich.table import Table
from rich.text import Text

from icone.errors import InputError
from icone.paper.estimate import Estimate, Estimator, is_undefined, step_times, table_hardware
from icone.paper.experiments import EXPERIMENTS
from icone.paper.experiments.base import Experiment
from icone.paper.options import Options
from icone.paper.show import remembered_options
from icone.paper.spec import Cell
from icone.paper.store import Store
from icone.training.progress import format_seconds


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


def experiment_lines(options: Options, store: Store, together: int = 5) -> Listing:
    """The state of all experiments in a store; `together` seeds train side by side on a GPU."""
    results = store.results() if store.outcomes.is_dir() else None
    statuses = {} if results is None else _statuses(results)
    device = likely_device(results)
    estimator = Estimator(results, device, together)
    lines, everything = [], {}
    for experiment in EXPERIMENTS.values():
        cells = _cells(experiment, remembered_options(experiment, options, store))
        everything.update(cells)
        lines.append(_line(experiment.name, experiment.reproduces, experiment.needs, cells, statuses, estimator))
    return Listing(lines, _line("total", "", "", everything, statuses, estimator), device)


def _cells(experiment: Experiment, options: Options) -> dict[str, Cell]:
    try:
        return {cell.spec.key: cell for cell in experiment.cells(options)}
    except InputError:  # a data set that this experiment cannot use
        return {}


def _line(
    name: str, labels: str, needs: str, cells: dict[str, Cell], statuses: dict[str, str], estimator: Estimator
) -> Line:
    found = [statuses.get(key, "undefined" if is_undefined(cell) else None) for key, cell in cells.items()]
    left = [cell for cell, status in zip(cells.values(), found, strict=True) if status is None]
    done, undefined, failed = (found.count(status) for status in ("done", "undefined", "failed"))
    return Line(name, labels, needs, len(cells), done, undefined, failed, estimator.total(left))


def likely_device(results: pd.DataFrame | None) -> str:
    """The device that estimates are for: that of most runs of the store, the GPU here, or that of the table."""
    if results is not None and len(results):
        devices = results[results["status"] == "done"].drop_duplicates("run")["device"].astype(str)
        known = devices[devices != ""].mode()
        if len(known):
            return str(known.iloc[0])
    return torch.cuda.get_device_name() if torch.cuda.is_available() else str(step_times()["hardware"])


def listing_table(listing: Listing) -> Table:
    caption = (
        f"hours left on one {listing.device}; ~: a part is by a table of step times measured on "
        f"{table_hardware(listing.device)}, the rest by the runs of this store. A run that several experiments share "
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


def estimate_line(left: Estimate, device: str) -> str:
    """What a sweep will take, and how well that is known."""
    basis = (
        f"{left.measured} of {left.runs} runs by runs of this store, the others by a table measured on "
        f"{table_hardware(device)}"
        if left.modelled
        else "by runs of this store"
    )
    return f"{left.runs} runs to do, about {format_seconds(left.seconds)} of one {device} ({basis})"


def _statuses(results: pd.DataFrame) -> dict[str, str]:
    runs = results.drop_duplicates("run")
    return dict(zip(runs["run"].astype(str), runs["status"].astype(str), strict=True))
