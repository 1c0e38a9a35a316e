"""The paper's experiments, and experiments of your own: runs as data, a store, engines, tables and figures.

>>> from icone.paper import Experiment, Grid, Options
>>> study = Experiment(name="rates", grid=Grid(datasets=("synthetic:cells@32x60",), vary={"lr": (1e-4, 1e-3)}, seeds=2))
>>> len(study.cells(Options()))
4

`run_experiment(study, store="runs/rates")` runs what is missing, `show_experiment(study, store="runs/rates")` gives the
tables and figures. `export_runs("runs/rates", "rates.zip")` writes the finished runs to one file, and
`import_runs("runs/all", ["rates.zip"])` takes them into another store.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icone.paper.experiments.base import Experiment, Presentation, Scene
    from icone.paper.grids import Grid
    from icone.paper.options import Options
    from icone.paper.paired import paired_difference
    from icone.paper.python import run_experiment, show_experiment
    from icone.paper.transfer import export_runs, import_runs

_PLACES = {
    "Experiment": "experiments.base", "Presentation": "experiments.base", "Scene": "experiments.base", "Grid": "grids",
    "Options": "options", "paired_difference": "paired", "run_experiment": "python", "show_experiment": "python",
    "export_runs": "transfer", "import_runs": "transfer",
}  # fmt: skip
"""Where names are; imported when they are asked for, because the command line starts with this package."""
__all__ = [
    "Experiment", "Grid", "Options", "Presentation", "Scene", "export_runs", "import_runs", "paired_difference",
    "run_experiment", "show_experiment",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
