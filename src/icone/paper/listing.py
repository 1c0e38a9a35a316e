"""`icone paper list`: every table and figure, what it needs, its runs, and an estimate of the hours left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from icone.errors import InputError
from icone.paper.experiments import EXPERIMENTS
from icone.paper.options import Options
from icone.paper.show import remembered_options
from icone.paper.spec import Cell
from icone.paper.store import Store

STEP_SECONDS = 0.024
"""The model where nothing like a run was measured: an eager step of ViT-S/16 with two views on an H200, the same from
batch 1 to 64 because it waits for kernel launches."""
HELD_OUT = 0.2
MODEL = (
    f"~: by a model of {1000 * STEP_SECONDS:.0f} ms per step; other numbers from the measured seconds of finished runs"
)


class Line(NamedTuple):
    """The state of one experiment."""

    name: str
    labels: str
    needs: str
    wanted: int
    done: int
    undefined: int
    failed: int
    hours_left: float
    modelled: bool
    """Whether a part of the estimate is by the model."""


def experiment_lines(options: Options, store: Store) -> list[Line]:
    """The state of all experiments in a store."""
    results = store.results() if store.outcomes.is_dir() else None
    statuses = {} if results is None else _statuses(results)
    per_epoch = _seconds_per_epoch(results)
    lines = []
    for experiment in EXPERIMENTS.values():
        try:
            cells = {c.spec.key: c for c in experiment.grid(remembered_options(experiment, options, store))}
        except InputError:  # a data set that this experiment cannot use
            cells = {}
        found = [statuses.get(key) for key in cells]
        left = [cell for key, cell in cells.items() if key not in statuses]
        estimates = [_seconds(cell, per_epoch) for cell in left]
        lines.append(
            Line(
                experiment.name, experiment.reproduces, experiment.needs, len(cells), found.count("done"),
                found.count("undefined"), found.count("failed"), sum(s for s, _ in estimates) / 3600,
                any(modelled for _, modelled in estimates),
            )
        )  # fmt: skip
    return lines


def listing_table(lines: Sequence[Line]) -> Table:
    table = Table(caption=MODEL, caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("experiment", no_wrap=True)
    table.add_column("table or figure, needs", overflow="fold")
    for name in ("runs", "done", "undef.", "failed", "GPU h left"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        hours = f"{'~' if line.modelled else ''}{line.hours_left:.1f}" if line.wanted else ""
        counts = [str(n) if line.wanted else "" for n in (line.wanted, line.done, line.undefined, line.failed)]
        about = Text(line.labels.replace(", ", "\n") + "\n").append(line.needs, style="dim")
        table.add_row(line.name, about, *counts, hours)
    return table


def _statuses(results: pd.DataFrame) -> dict[str, str]:
    runs = results.drop_duplicates("run")
    return dict(zip(runs["run"].astype(str), runs["status"].astype(str), strict=True))


SecondsPerEpoch = dict[tuple[object, ...], float]


def _seconds_per_epoch(results: pd.DataFrame | None) -> SecondsPerEpoch:
    """Seconds per epoch of finished runs, by source, subset, method, batch size and views; median over runs."""
    if results is None:
        return {}
    runs = results[results["status"] == "done"].drop_duplicates("run")
    keys = ["source", "subset", "method", "batch_size", "views", "encoder"]
    plain = runs.assign(per_epoch=runs["seconds"] / runs["epochs"]).astype(
        {"source": str, "method": str, "encoder": str}
    )
    medians = plain.groupby(keys, dropna=False)["per_epoch"].median()
    return {_key(*values): float(seconds) for values, seconds in medians.items()}  # type: ignore[misc]


def _key(*values: object) -> tuple[object, ...]:
    return tuple(None if pd.isna(value) else value for value in values)  # type: ignore[call-overload]


def _seconds(cell: Cell, per_epoch: SecondsPerEpoch) -> tuple[float, bool]:
    """Seconds that a run will take, and whether the model says so."""
    c = cell.spec.config
    measured = per_epoch.get(_key(c.source, c.subset, c.method, c.batch_size, c.views, c.encoder))
    if measured is not None:
        return measured * c.epochs, False
    samples = cell.labels.get("samples") or c.subset or 1750
    steps = math.ceil(samples * (1 - HELD_OUT) / c.batch_size)
    return c.epochs * steps * STEP_SECONDS, True
