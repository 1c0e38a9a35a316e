"""`icone paper show`: tables in the terminal, figures and numbers as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from icone.experiments.catalogue import Experiment, find_experiments
from icone.experiments.drawing import save_figure
from icone.experiments.frames import collect
from icone.experiments.options import Options, options_from_json
from icone.experiments.presentations import Scene
from icone.experiments.results import read_results
from icone.experiments.store import Store
from icone.runs import replacing


def show(
    names: Sequence[str],
    options: Options,
    store: Store,
    out: Path,
    console: Console,
    measurements: Sequence[Path] = (),
) -> list[Path]:
    """Print the tables of the named experiments; write them (CSV, Parquet), every run and all figures (PDF, PNG).

    Without options of its own an experiment is shown as it was last run in this store.
    """
    experiments = find_experiments(names)
    table = store.results() if any(experiment.runs for experiment in experiments) else read_results(store.results_file)
    written: list[Path] = []
    for experiment in experiments:
        console.rule(f"{experiment.name}: {experiment.reproduces}")
        chosen = chosen_options(experiment, options, store)
        cells = experiment.grid(chosen)
        results = collect(cells, table)
        if experiment.runs and (results.runs.empty or (results.runs["status"] == "missing").all()):
            text = f"no run of it has finished in {store.folder}: icone paper run {experiment.name}"
            console.print(text, markup=False)
            continue
        presentation = experiment.present(Scene(experiment.name, results, store, measurements))
        if experiment.runs and (other := _not_the_papers(chosen)):
            console.print(f"not the paper's setting: {other}", highlight=False, soft_wrap=True, markup=False)
        folder = out / experiment.name
        for shown in presentation.tables:
            console.print(shown.rendered())
            written += shown.save(folder)
        for name, figure in presentation.figures.items():
            written += save_figure(figure, folder, name)
        if experiment.runs:
            written += _save_runs(results.runs, folder)
        console.print(f"written to {folder}", highlight=False, markup=False)
    return written


def chosen_options(experiment: Experiment, options: Options, store: Store) -> Options:
    """What the user asks for now, or else what the experiment was last run with here."""
    kept = store.remembered(experiment.name)
    return options if kept is None or options.changed().keys() - {"smoke"} else options_from_json(kept)


def _not_the_papers(options: Options) -> str:
    """The options that make a comparison with the printed numbers one of different things."""
    changed = {name: value for name, value in options.changed().items() if name not in ("data_root", "labels")}
    return ", ".join(f"{name} {' '.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in changed.items())


def _save_runs(runs: pd.DataFrame, folder: Path) -> list[Path]:
    """One row per run that has ended, with all its figures."""
    written = [folder / "runs.csv", folder / "runs.parquet"]
    runs = runs[runs["status"] != "missing"]
    plain = runs.astype({"variant": str}) if "variant" in runs else runs
    with replacing(written[0]) as temporary:
        plain.to_csv(temporary, index=False)
    with replacing(written[1]) as temporary:
        plain.to_parquet(temporary, index=False)
    return written
