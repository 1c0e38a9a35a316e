"""An experiment as data: a grid of one's own gets store, tables and figures."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import icone.paper
from icone.errors import InputError
from icone.paper import Experiment, Grid, Options
from icone.paper.engines.events import Event, Observe, Task
from icone.paper.experiments import EXPERIMENTS
from icone.paper.outcome import Outcome
from icone.paper.store import Store

STUDY = Experiment(
    name="rates",
    grid=Grid(
        datasets=("synthetic:cells@32x60",), methods=("icone", "simclr"), batch_sizes=(2, 4), seeds=2,
        settings={"epochs": 3}, vary={"lr": (1e-4, 1e-3), "hidden": (32,)},
    ),
)  # fmt: skip


def test_a_grid_is_every_combination() -> None:
    cells = STUDY.cells(Options())
    assert len({cell.spec.key for cell in cells}) == len(cells) == 2 * 2 * 2 * 2
    assert {(c.spec.config.lr, c.spec.config.options, c.spec.config.epochs) for c in cells} == {
        (1e-4, ("hidden=32",), 3), (1e-3, ("hidden=32",), 3),
    }  # fmt: skip
    fewer = STUDY.cells(Options(methods=("icone",), batch_sizes=(4,), per=("rates.seeds=1",)))
    assert len(fewer) == 2  # the command line goes before the grid


@pytest.mark.parametrize(
    ("given", "way_out"),
    [
        ({"vary": {"batch_size": (1, 4)}}, r"vary of a Grid names batch_size: give batch_sizes="),
        ({"settings": {"method": "simclr"}}, r"settings of a Grid names method: give methods="),
        ({"vary": {"seed": (0, 1)}}, "seeds="),
        ({"vary": {"source": ("a", "b")}}, "datasets="),
        ({"settings": {"options": ("hidden=32",)}}, "each option by its own name"),
    ],
)
def test_what_a_grid_has_arguments_for_is_refused_elsewhere(given: dict[str, Any], way_out: str) -> None:
    with pytest.raises(InputError, match=way_out):
        Grid(datasets=("synthetic:cells@32x60",), **given)


def test_it_runs_and_shows_like_those_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        """Stands in for worker processes: the accuracy is the batch size in %."""

        def __init__(self, store: Store, *_: object) -> None:
            self.store = store

        def learn(self, *_: object) -> None:
            pass

        def run(self, tasks: list[Task], observe: Observe, limit: object) -> None:
            for task in tasks:
                value = task.spec.config.batch_size / 100
                outcome = Outcome(status="done", metrics=dict.fromkeys(("linear_probe", "knn_5", "rankme"), value))
                self.store.record(task.spec, outcome)
                observe(Event("finished", task.spec, outcome))

    monkeypatch.setattr("icone.paper.python.LocalEngine", Here)
    console = Console(file=io.StringIO(), width=160)
    try:
        tally = icone.paper.run_experiment(STUDY, store=tmp_path, device="cpu", console=console)
        assert (tally.done, tally.executed) == (16, 16)
        assert icone.paper.run_experiment(STUDY, store=tmp_path, device="cpu", console=console).executed == 0
        written = icone.paper.show_experiment(STUDY, store=tmp_path, console=console)
    finally:
        EXPERIMENTS.pop("rates")
    assert {"linear_probe.csv", "knn_5.csv", "rankme.csv", "rates.png", "runs.csv"} <= {path.name for path in written}
    table = pd.read_csv(tmp_path / "figures" / "rates" / "linear_probe.csv")
    assert set(table["row"]) == {f"{m}, lr {lr}, hidden 32" for m in ("IConE", "SimCLR") for lr in (0.0001, 0.001)}
    assert (table["ours"] - table["batch_size"]).abs().max() < 1e-9
