"""IConE with other diversity terms, objectives, views, initial scales and numbers of samples."""

from __future__ import annotations

import dataclasses
from typing import Any

from icone.paper.accuracy_figures import heatmap_figure, three_metrics_figure
from icone.paper.experiments.base import BOTH, NOT_PRINTED, TWO, Experiment, Presentation, Scene
from icone.paper.grids import batch_sizes, few_datasets, method_grid, variant_grid, with_few_seeds
from icone.paper.options import Options
from icone.paper.spec import Cell
from icone.paper.tables import metric_table

DIVERSITY_TERMS: dict[str, tuple[str, ...]] = {
    "IConE (default)": (),
    "IConE-VCReg": ("diversity=variance_covariance",),
    "IConE-SIGReg": ("diversity=sigreg",),
}
PRINTED_VARIANTS: dict[str, tuple[str, ...]] = {
    "as printed": (),
    "per anchor": ("normalisation=anchor",),
    "VCReg": ("diversity=variance_covariance",),
    "SIGReg": ("diversity=sigreg",),
    "no diversity": ("diversity_weight=0",),
    "frozen anchors": ("freeze_anchors=true",),
}
"""What could keep the printed objective from collapsing at small batches."""
SAMPLES = (500, 1000, 2000, 5000)
VIEW_COUNTS = (2, 4, 8, 12)
INIT_SCALES = (0.02, 0.05, 0.10, 0.20, 0.50)


def _diversity_terms(options: Options) -> list[Cell]:
    """IConE with each diversity term, and as printed where the recipe is another."""
    variants: dict[str, dict[str, Any]] = {title: {"extra": extra} for title, extra in DIVERSITY_TERMS.items()}
    if options.recipe != "paper":
        variants["IConE as printed"] = {"recipe": "paper"}
    return [c for dims in (2, 3) for c in variant_grid(options, few_datasets(options, dims), variants.items())]


def _show_diversity_terms(scene: Scene) -> Presentation:
    """Top-1 accuracy, as the caption has it; balanced accuracy, as all other tables have, besides."""
    keys = ["dims", "batch_size"]
    printed = metric_table(scene.runs, name=scene.name, title="top-1 accuracy of the linear probe (%)", row="variant",
                           keys=keys, metric="linear_accuracy", scale=100, printed="regulariser")  # fmt: skip
    return Presentation([printed, scene.table(name="balanced", row="variant", keys=keys, absent=NOT_PRINTED)])


REGULARISER = Experiment(
    name="regulariser", labels=("tab:main_ablation_regularizer",), needs=BOTH, grid=_diversity_terms,
    present=_show_diversity_terms,
)  # fmt: skip


def _printed_objective(options: Options) -> list[Cell]:
    """The printed objective with other ways to keep anchors apart or none, and the default recipe; 3D alone."""
    if not options.datasets and not options.smoke:
        options = dataclasses.replace(options, datasets=("adrenalmnist3d",))
    variants: dict[str, dict[str, Any]] = {
        title: {"extra": extra, "recipe": "paper"} for title, extra in PRINTED_VARIANTS.items()
    }
    variants["default recipe"] = {"recipe": "icone"}
    return variant_grid(options, few_datasets(options, 3), variants.items(), batch_sizes(options, (1, 4, 16, 64)))


def _show_printed_objective(scene: Scene) -> Presentation:
    """The variants of the objective against batch size; RankMe alone would take noise for structure."""
    tables = [
        scene.table(metric, name=metric, row="variant", keys=["dataset", "batch_size"], absent=NOT_PRINTED)
        for metric in ("linear_probe", "knn_5", "rankme", "recognition")
    ]
    drawn = scene.runs.assign(method=scene.runs["variant"])
    return Presentation(tables, {scene.name: three_metrics_figure(drawn)})


COLLAPSE = Experiment(name="collapse", needs="adrenalmnist3d", grid=_printed_objective, present=_show_printed_objective)


def _samples(options: Options) -> list[Cell]:
    options = with_few_seeds(options)
    each = [dataclasses.replace(options, subset=n) for n in ((30, 60) if options.smoke else SAMPLES)]
    return [cell for o in each for cell in method_grid(o, 2, sets=few_datasets(o, 2), more={"n": o.subset})]


def _show_samples(scene: Scene) -> Presentation:
    return Presentation([scene.table(keys=["n", "batch_size"])], {scene.name: heatmap_figure(scene.runs)})


DATASET_SIZE = Experiment(
    name="dataset-size", labels=("fig:heatmap_batch_dataset",), needs=TWO, grid=_samples, present=_show_samples
)


def _view_counts(options: Options) -> list[Cell]:
    return variant_grid(options, few_datasets(options, 2), [(count, {"views": count}) for count in VIEW_COUNTS])


def _init_scales(options: Options) -> list[Cell]:
    return variant_grid(options, few_datasets(options, 2), [(s, {"extra": (f"init_std={s}",)}) for s in INIT_SCALES])


def _show_average(scene: Scene) -> Presentation:
    """Every variant against batch size, with its average, as printed."""
    return Presentation([scene.table(row="variant", keys=["batch_size"], printed=scene.name, average=True)])


VIEWS = Experiment(name="views", labels=("tab:ablation_views",), needs=TWO, grid=_view_counts, present=_show_average)
INIT_SCALE = Experiment(
    name="init-scale", labels=("tab:ablation_init",), needs=TWO, grid=_init_scales, present=_show_average
)
