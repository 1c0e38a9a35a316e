"""`icone paper show`: tables in the terminal, figures and numbers as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from icone.errors import one_line
from icone.paper.experiments import BUILT_IN, find_experiments
from icone.paper.experiments.base import Experiment, Scene
from icone.paper.frames import collect
from icone.paper.options import Options, options_from_json
from icone.paper.results import read_results
from icone.paper.store import Store
from icone.paper.tables import save_frame
from icone.terminal import say

AS_PRINTED = Options(recipe="paper")
"""The options that give the runs of the paper: all others mean something else."""
NEUTRAL = {"data_root", "labels", "natural_images"}
"""Where the data lies, and who is in which class."""


def show(
    names: Sequence[str],
    options: Options,
    store: Store,
    out: Path | None,
    console: Console,
) -> list[Path]:
    """Print the tables of the named experiments; write them (CSV, Parquet), every run and all figures (PDF, PNG).

    Without options of its own an experiment is shown as it was last run in this store. `out` is the folder for the
    files; None writes none.
    """
    from icone.report.figures import save_figure  # here, because `icone paper list` draws nothing

    experiments = find_experiments(names)
    table = store.results() if any(experiment.runs for experiment in experiments) else read_results(store.results_file)
    written: list[Path] = []
    for experiment in experiments:
        console.rule(f"{experiment.name}: {experiment.reproduces}")
        chosen = remembered_options(experiment, options, store)
        cells = experiment.cells(chosen)
        results = collect(cells, table)
        if experiment.runs and (results.runs.empty or (results.runs["status"] == "missing").all()):
            command = f"icone paper run {experiment.name}" if experiment.name in BUILT_IN else "run_experiment runs it"
            text = f"no run of it has finished in {store.folder}: {command}"
            console.print(text, markup=False)
            continue
        presentation = experiment.present(Scene(experiment.name, results, store, chosen))
        if experiment.runs and experiment.labels:
            say(console, setting_line(experiment, chosen))
        for shown in presentation.tables:
            console.print(shown.rendered())
        if out is None:
            continue
        folder = out / experiment.name
        for shown in presentation.tables:
            written += shown.save(folder)
        for name, figure in presentation.figures.items():
            written += save_figure(figure, folder / name, dpi=200)
        if experiment.runs:
            runs = results.runs[
                results.runs["status"] != "missing"
            ]  # one row per run that has ended, with all its metrics
            written += save_frame(runs.astype({"variant": str}) if "variant" in runs else runs, folder, "runs")
        console.print(f"written to {folder}", highlight=False, markup=False)
    return written


def remembered_options(experiment: Experiment, options: Options, store: Store) -> Options:
    """What the user asks for now, or else what the experiment was last run with here."""
    kept = store.remembered(experiment.name)
    if kept is None or options.changed().keys() - {"smoke"}:
        return options
    try:
        return options_from_json(kept)
    except (TypeError, ValueError) as error:
        store.note(f"the options that {experiment.name} was last run with cannot be read ({one_line(error)})")
        return options


def setting_line(experiment: Experiment, options: Options) -> str:
    """Whether these are the runs that the paper describes, or what makes them others.

    An option counts where its value in the paper would give other runs. The default recipe is one: the paper's is
    `--recipe paper`.
    """
    keys = _keys(experiment, options)
    others = [
        _in_words(name, value)
        for name, value in vars(options).items()
        if name not in NEUTRAL
        and value != getattr(AS_PRINTED, name)
        and _keys(experiment, dataclasses.replace(options, **{name: getattr(AS_PRINTED, name)})) != keys
    ]
    if not others:
        return "the paper's setting, as far as the paper prints it"
    return f"not the paper's setting: {', '.join(others)}"


def _in_words(name: str, value: object) -> str:
    if name == "recipe":
        return f"recipe {value} (the default; --recipe=paper is the printed one)"
    return f"{name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"


def _keys(experiment: Experiment, options: Options) -> set[str]:
    return {cell.spec.key for cell in experiment.cells(options)}
