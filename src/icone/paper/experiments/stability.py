"""Every method at every batch size: the grid behind most of the paper, and all that is read from it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from icone.paper import accuracy_figures, geometry_figures
from icone.paper.datasets import datasets
from icone.paper.experiments.base import BOTH, NOT_SHOWN, THREE, TWO, Experiment, Presentation, Scene
from icone.paper.grids import few_datasets, method_grid, whole_grid, with_few_seeds
from icone.paper.options import Options
from icone.paper.spec import Cell
from icone.paper.tables import PaperTable, beside_paper, metric_table, reasons


def images(options: Options) -> list[Cell]:
    return whole_grid(options, 2)


def volumes(options: Options) -> list[Cell]:
    return whole_grid(options, 3)


def images_and_volumes(options: Options) -> list[Cell]:
    return whole_grid(options, 2, 3)


def show_stability(scene: Scene) -> Presentation:
    """Accuracy against batch size; beyond the paper's figure also kNN-5 and RankMe, which a probe does not see."""
    keys = ["dims", "batch_size"]
    drawn = {
        scene.name: accuracy_figures.stability_figure(scene.runs),
        f"{scene.name}-more": accuracy_figures.three_metrics_figure(scene.runs),
    }
    more = [scene.table(metric, keys=keys, absent=NOT_SHOWN) for metric in ("knn_5", "rankme")]
    return Presentation([scene.table(keys=keys), *more], drawn)


BATCH_SIZE_2D = Experiment(
    name="batch-size-2d", labels=("fig:main_results A",), needs=TWO, grid=images, present=show_stability
)
BATCH_SIZE_3D = Experiment(
    name="batch-size-3d", labels=("fig:main_results B",), needs=THREE, grid=volumes, present=show_stability
)


def _per_dataset(scene: Scene) -> Presentation:
    drawn = accuracy_figures.per_dataset_figure(scene.runs)
    return Presentation([scene.table(keys=["dataset", "batch_size"])], {scene.name: drawn})


PER_DATASET_2D = Experiment(
    name="per-dataset-2d", labels=("fig:per_dataset_2d",), needs=TWO, grid=images, present=_per_dataset
)
PER_DATASET_3D = Experiment(
    name="per-dataset-3d", labels=("fig:per_dataset_3d",), needs=THREE, grid=volumes, present=_per_dataset
)


def _few_sizes(options: Options) -> list[Cell]:
    options = with_few_seeds(options)
    options = dataclasses.replace(options, batch_sizes=options.batch_sizes or (4, 16, 64))
    return list(method_grid(options, 3, sets=few_datasets(options, 3)))


def _knn(scene: Scene) -> Presentation:
    """kNN-1/5/20 at three batch sizes."""
    long = pd.concat([scene.runs.assign(k=k, knn_5=scene.runs.get(f"knn_{k}")) for k in (1, 5, 20)])
    return Presentation([
        metric_table(long, name=scene.name, title="kNN balanced accuracy (%)", row="method", keys=["batch_size", "k"],
                     metric="knn_5", printed="knn-3d")
    ])  # fmt: skip


KNN_3D = Experiment(
    name="knn-3d", labels=("tab:knn3d_mean_balanced_accuracy",), needs=THREE, grid=_few_sizes, present=_knn
)


SENSITIVITY = ["drop", "pearson", "pearson_log2", "accuracy"]
COUNTS = ["seeds", "runs", "wanted"]
ONE_SIZE, CONSTANT = "one B", "constant"
"""In place of a drop or a correlation: runs at one batch size only; in place of a correlation: the same accuracy."""


def _sensitivity(scene: Scene) -> Presentation:
    """Drop from the largest to the smallest batch, and correlation with batch size."""
    found = (
        accuracy_figures.sensitivity(scene.runs)
        if "linear_probe" in scene.runs
        else pd.DataFrame(columns=["dims", "method", *SENSITIVITY, *COUNTS])
    )
    reason = np.where(found["runs"] == 0, "missing", np.where(found["drop"].isna(), ONE_SIZE, CONSTANT))
    long = found.assign(status=reason).melt(["dims", "method", "status", *COUNTS], SENSITIVITY, "metric", "ours")
    long = long.rename(columns={"method": "row"}).assign(sd=float("nan"))
    long["status"] = long["status"].where(long["ours"].isna(), "done")
    table = beside_paper(long, name=scene.name, title="drop (points), correlation with B and log2 B, accuracy (%)",
                         keys=["dims", "metric"], printed=None, notes=reasons(scene.runs), digits=2)  # fmt: skip
    return Presentation([table], {scene.name: accuracy_figures.sensitivity_figure(found)})


BATCH_SENSITIVITY = Experiment(
    name="batch-sensitivity", labels=("fig:batch_sensitivity",), needs=BOTH, grid=images_and_volumes,
    present=_sensitivity,
)  # fmt: skip


def _one_seed(options: Options) -> list[Cell]:
    """One seed on one set: the first of those asked for, OrganMNIST3D in the paper."""
    if not options.datasets and not options.smoke:
        options = dataclasses.replace(options, datasets=("organmnist3d",))
    options = dataclasses.replace(options, seeds=1)
    return list(method_grid(options, 3, sets=datasets(options, 3)[:1]))


def _umap(scene: Scene) -> Presentation:
    drawn = geometry_figures.map_figure(scene.runs, scene.store)
    return Presentation([scene.table(keys=["dataset", "batch_size"])], {scene.name: drawn})


UMAP = Experiment(name="umap", labels=("fig:umap_3d",), needs="organmnist3d", grid=_one_seed, present=_umap)


def _geometry_tables(scene: Scene, key: str) -> list[PaperTable]:
    return [scene.table(metric, keys=[key, "batch_size"]) for metric in geometry_figures.SHOWN]


def _geometry(scene: Scene) -> Presentation:
    drawn = geometry_figures.geometry_figure(scene.runs)
    return Presentation(_geometry_tables(scene, "dims"), {scene.name: drawn})


GEOMETRY = Experiment(
    name="geometry", labels=("fig:repr_metrics",), needs=BOTH, grid=images_and_volumes, present=_geometry
)


def _metrics(scene: Scene) -> Presentation:
    drawn = geometry_figures.metrics_figure(scene.runs)
    return Presentation(_geometry_tables(scene, "dataset"), {scene.name: drawn})


METRICS_2D = Experiment(name="metrics-2d", labels=("fig:repr_metrics_2d",), needs=TWO, grid=images, present=_metrics)
METRICS_3D = Experiment(name="metrics-3d", labels=("fig:repr_metrics_3d",), needs=THREE, grid=volumes, present=_metrics)
