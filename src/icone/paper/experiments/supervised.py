"""The four supervised methods, and the untrained encoder."""

from __future__ import annotations

import dataclasses

from icone.methods.cross_entropy import CrossEntropy
from icone.paper.experiments.base import BOTH, NOT_PRINTED, Experiment, Presentation, Scene
from icone.paper.grids import chosen_methods, few_datasets, make_cell, seeds, with_few_seeds
from icone.paper.options import Options
from icone.paper.spec import Cell
from icone.paper.tables import metric_table


def _grid(options: Options) -> list[Cell]:
    """The untrained encoder is measured with cross-entropy at the largest batch."""
    options = with_few_seeds(options)
    sizes = options.batch_sizes or (1, 4, 8, 16, 32, 64)
    cells = [
        make_cell(options, data, method, size, seed)
        for dims in (2, 3)
        for data in few_datasets(options, dims)
        for method in chosen_methods(options, supervised=True)
        for size in sizes
        for seed in seeds(options)
    ]
    return [
        _with_untrained(c) if (c.labels["method"], c.labels["batch_size"]) == (CrossEntropy.title, max(sizes)) else c
        for c in cells
    ]


def _with_untrained(cell: Cell) -> Cell:
    return dataclasses.replace(cell, spec=dataclasses.replace(cell.spec, untrained=True))


def _present(scene: Scene) -> Presentation:
    """Four methods; the untrained encoder as a row of its own, because SupCon at batch 1 is undefined here."""
    table = scene.table(keys=["dims", "batch_size"], printed="supervised")
    if "untrained_linear_probe" not in scene.runs:
        return Presentation([table])
    measured = scene.runs.dropna(subset=["untrained_linear_probe"]).assign(method="untrained encoder", batch_size="any")
    untrained = metric_table(measured, name="untrained", title="untrained encoder (%)", row="method",
                             keys=["dims"], metric="untrained_linear_probe",
                             absent=NOT_PRINTED)  # fmt: skip
    return Presentation([table, untrained])


SUPERVISED = Experiment(name="supervised", labels=("tab:supervised",), needs=BOTH, grid=_grid, present=_present)
