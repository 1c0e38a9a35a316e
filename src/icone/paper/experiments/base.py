"""What an experiment is: the runs it needs, and how their results become tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from icone.evaluation.metrics import find_metric
from icone.paper.accuracy_figures import three_metrics_figure
from icone.paper.frames import Results
from icone.paper.options import Options
from icone.paper.spec import Cell
from icone.paper.store import Store
from icone.paper.tables import PICTURE_ONLY, PaperTable, metric_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTH = "2D and 3D sets"
TWO = "7 2D sets, 224 px"
THREE = "6 3D sets, 64³"
NOT_SHOWN = "not in the paper's figure"
NOT_PRINTED = "not in the paper"


@dataclass(frozen=True)
class Scene:
    """What a presentation can look at."""

    name: str
    results: Results
    store: Store
    options: Options = field(default_factory=Options)

    @property
    def runs(self) -> pd.DataFrame:
        return self.results.runs

    def table(
        self,
        metric: str = "linear_probe",
        *,
        keys: list[str],
        row: str = "method",
        name: str | None = None,
        printed: str | None = None,
        absent: str = PICTURE_ONLY,
        average: bool = False,
    ) -> PaperTable:
        """Means of a metric for every `row` and combination of `keys`; the accuracy is named after the experiment."""
        name = name or (self.name if metric == "linear_probe" else metric)
        return metric_table(
            self.runs, name=name, title=find_metric(metric).heading, row=row, keys=keys, metric=metric,
            printed=printed, absent=absent, average=average,
        )  # fmt: skip


@dataclass(frozen=True)
class Presentation:
    """What an experiment shows."""

    tables: list[PaperTable]
    figures: dict[str, Figure] = field(default_factory=dict)


def show_metrics(scene: Scene) -> Presentation:
    """How an experiment of one's own is shown: linear probe, kNN-5 and RankMe of every variant and method."""
    runs = scene.runs
    names = [f"{m}, {v}" if v else m for m, v in zip(runs["method"], runs["variant"], strict=True)]
    runs = runs.assign(method=names)
    scene = dataclasses.replace(scene, results=Results(runs, scene.results.trace))
    tables = [
        scene.table(metric, name=metric, keys=["dataset", "batch_size"], absent=NOT_PRINTED)
        for metric in ("linear_probe", "knn_5", "rankme")
    ]
    return Presentation(tables, {scene.name: three_metrics_figure(runs)})


def no_runs(options: Options) -> list[Cell]:
    """The grid of an experiment whose tables need no runs."""
    return []


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper, or one of ours."""

    name: str
    labels: tuple[str, ...] = ()
    """LaTeX labels of what it reproduces; none where the paper has nothing like it."""
    needs: str = "nothing"
    """The data that it needs, in words."""
    grid: Callable[[Options], list[Cell]] = no_runs
    """Its runs."""
    present: Callable[[Scene], Presentation] = show_metrics
    """Its tables and figures; without it, those of the usual metrics."""

    def cells(self, options: Options) -> list[Cell]:
        """Its runs with these options, of which some are for this experiment alone."""
        return self.grid(options.of(self.name))

    @property
    def reproduces(self) -> str:
        """For people to read."""
        return ", ".join(self.labels) or "not in the paper"

    @property
    def runs(self) -> bool:
        """Whether it needs runs at all."""
        return self.grid is not no_runs
