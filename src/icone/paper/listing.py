"""`icone paper list`: every table and figure, what it needs, its runs, and an estimate of the hours left."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import torch

from icone.errors import InputError, one_line
from icone.paper.estimate import CPU, Estimator, is_undefined, step_times, table_hardware
from icone.paper.experiments import EXPERIMENTS
from icone.paper.experiments.base import Experiment
from icone.paper.listing_cache import KEPT, KeptExperiment, keep
from icone.paper.listing_table import STORED, Estimate, Line, Listing, to_plain
from icone.paper.options import Options
from icone.paper.show import remembered_options
from icone.paper.spec import Cell
from icone.paper.store import Store
from icone.terminal import counted
from icone.training.progress import format_seconds


def experiment_lines(options: Options, store: Store, together: int = 5) -> Listing:
    """The state of all experiments in a store, which keeps it; `together` seeds train side by side on a GPU."""
    results = store.results() if store.outcomes.is_dir() else None
    statuses = {} if results is None else _statuses(results)
    device = likely_device(results)
    estimator = Estimator(results, device, together)
    described: list[tuple[str, str, str, dict[str, Cell]]] = []
    everything: dict[str, Cell] = {}
    for experiment in EXPERIMENTS.values():
        cells = _cells(experiment, remembered_options(experiment, options, store), estimator.on_gpu)
        everything.update(cells)
        described.append((experiment.name, experiment.reproduces, experiment.needs, cells))
    described.append(("total", "", "", everything))
    *lines, total = [_line(*one, statuses, estimator) for one in described]
    listing = Listing(lines, total, device, table_hardware(device))
    if results is not None and store.is_writable:
        last = store.last_records()
        ended = {f"{record.name}.json": statuses[key] for key, record in last.items() if key in statuses}
        try:
            keep(options, store.folder, listing, (_kept(*one, statuses, estimator) for one in described), ended)
        except OSError as error:
            store.note(f"{store.folder / KEPT} could not be written ({one_line(error)}): the next list takes as long")
    return listing


def _cells(experiment: Experiment, options: Options, on_gpu: bool) -> dict[str, Cell]:
    """The runs of an experiment; a list for a GPU leaves out what stands in for them on a machine without one."""
    try:
        return {
            cell.spec.key: cell
            for cell in experiment.cells(options)
            if options.smoke or not (on_gpu and cell.spec.cost.startswith(CPU))
        }
    except InputError:  # a data set that this experiment cannot use
        return {}


def _line(
    name: str, labels: str, needs: str, cells: dict[str, Cell], statuses: dict[str, str], estimator: Estimator
) -> Line:
    found = [statuses.get(key, "undefined" if is_undefined(cell) else None) for key, cell in cells.items()]
    left = [cell for cell, status in zip(cells.values(), found, strict=True) if status is None]
    done, undefined, failed = (found.count(status) for status in ("done", "undefined", "failed"))
    return Line(name, labels, needs, len(cells), done, undefined, failed, estimator.total(left))


def _kept(
    name: str, labels: str, needs: str, cells: dict[str, Cell], statuses: dict[str, str], estimator: Estimator
) -> KeptExperiment:
    expected = estimator.each(cell for key, cell in cells.items() if key not in statuses)
    undefined = [key for key, cell in cells.items() if is_undefined(cell)]
    rounded = {key: [round(seconds, 1), int(known)] for key, (seconds, known) in expected.items()}
    return KeptExperiment(name, labels, needs, list(cells), undefined, rounded)


def likely_device(results: pd.DataFrame | None) -> str:
    """The device that estimates are for: that of most runs of the store, the GPU here, or that of the table."""
    if results is not None and len(results):
        devices = results[results["status"] == "done"].drop_duplicates("run")["device"].astype(str)
        known = devices[devices != ""].mode()
        if len(known):
            return str(known.iloc[0])
    return torch.cuda.get_device_name() if torch.cuda.is_available() else str(step_times()["hardware"])


def estimate_line(left: Estimate, device: str) -> str:
    """What a sweep will take, and how well that is known."""
    basis = (
        f"{left.measured} of {counted(left.runs, 'run')} by runs of this store, the others by a table measured on "
        f"{table_hardware(device)}"
        if left.modelled
        else "by runs of this store"
    )
    return f"{counted(left.runs, 'run')} to do, about {format_seconds(left.seconds)} of one {device} ({basis})"


def _statuses(results: pd.DataFrame) -> dict[str, str]:
    runs = results.drop_duplicates("run")
    return dict(zip(runs["run"].astype(str), runs["status"].astype(str), strict=True))


def text_of_all() -> str:
    """The content of listing.json: the list without a store, where the table of step times was measured."""
    nothing = Store("a store that does not exist")
    listing = experiment_lines(Options(), nothing)._replace(device=str(step_times()["hardware"]))
    return json.dumps(to_plain(listing), indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name(STORED).write_text(text_of_all(), encoding="utf-8")
