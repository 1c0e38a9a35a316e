"""Half of the classes thinned by a ratio k: accuracy on all classes and on the minority."""

from __future__ import annotations

import math

import pandas as pd

from icone.paper.accuracy_figures import imbalance_figure
from icone.paper.experiments.base import BOTH, Experiment, Presentation, Scene
from icone.paper.grids import BATCH_SIZES, batch_sizes, chosen_methods, few_datasets, make_cell, seeds, with_few_seeds
from icone.paper.options import Options
from icone.paper.spec import Cell
from icone.paper.tables import metric_table

RATIOS = (1, 2, 5, 10, 20, 50)
"""Ratios k; the paper's are readable in a picture only."""


def _grid(options: Options) -> list[Cell]:
    """All 2D and 3D sets at the largest batch."""
    options = with_few_seeds(options)
    largest = max(batch_sizes(options, BATCH_SIZES))
    return [
        make_cell(options, data, method, largest, seed, {"k": k}, imbalance=None if k == 1 else float(k))
        for dims in (2, 3)
        for data in few_datasets(options, dims)
        for method in chosen_methods(options)
        for k in options.ratios or ((1, 3) if options.smoke else RATIOS)
        for seed in seeds(options)
    ]


def _present(scene: Scene) -> Presentation:
    """At k = 1 the minority is the half of the classes that larger ratios thin out."""
    runs = scene.runs
    before = runs.get("minority_unthinned", math.nan)
    runs = runs.assign(
        minority=runs.get("minority", pd.Series(math.nan, index=runs.index)).where(runs["k"] > 1, before)
    )
    minority = metric_table(
        runs, name="minority", title="minority classes (%)", row="method", keys=["k"], metric="minority"
    )
    drawn = imbalance_figure(runs)
    return Presentation([scene.table(name="overall", keys=["k"]), minority], {scene.name: drawn})


IMBALANCE = Experiment(name="imbalance", labels=("fig:imbalance",), needs=BOTH, grid=_grid, present=_present)
