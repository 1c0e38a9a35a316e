"""`icone.paper.run_experiment` and `show_experiment`: experiments from Python, those of the paper and one's own."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from icone.api.build import pick_device
from icone.paper.engines.local import LocalEngine
from icone.paper.execute import ExecutionSettings, device_name
from icone.paper.experiments import EXPERIMENTS, register_experiment
from icone.paper.experiments.base import Experiment
from icone.paper.options import Options
from icone.paper.show import show
from icone.paper.store import Store
from icone.paper.sweep import Tally, sweep


def run_experiment(
    experiment: Experiment | str,
    *,
    store: str | Path = "runs/paper",
    options: Options | None = None,
    device: str = "auto",
    workers: int = 1,
    retry_failed: bool = False,
    max_minutes: float | None = None,
    console: Console | None = None,
) -> Tally:
    """Run what is missing of an experiment in a store, on this machine; the same call again redoes nothing.

    After `max_minutes` the states of what is running are saved, and `Tally.postponed` counts what is left: the same
    call goes on. In a script this belongs under `if __name__ == "__main__":`, because worker processes import the
    script.
    """
    place = Store(store).create()
    found = pick_device(device)
    together = 5 if found.type == "cuda" else 1
    engine = LocalEngine(place, ExecutionSettings(device=device), workers, together)
    console = console or Console()
    name = _known(experiment)
    return sweep(
        [name], options or Options(), place, engine, console, retry_failed, device=device_name(found),
        together=together, max_minutes=max_minutes,
    )  # fmt: skip


def show_experiment(
    experiment: Experiment | str,
    *,
    store: str | Path = "runs/paper",
    options: Options | None = None,
    out: str | Path | None = None,
    console: Console | None = None,
) -> list[Path]:
    """Print the tables of an experiment and write them with its figures to `out` (default: figures/ in the store)."""
    place = Store(store)
    folder = place.folder / "figures" if out is None else Path(out)
    return show([_known(experiment)], options or Options(), place, folder, console or Console())


def _known(experiment: Experiment | str) -> str:
    if isinstance(experiment, Experiment):
        if EXPERIMENTS.get(experiment.name) is not experiment:
            register_experiment(experiment)
        return experiment.name
    return experiment
