"""Every table and figure of the paper by name, and ours: what it needs, its runs, and how results become pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from icone.errors import unknown_name
from icone.paper import grids
from icone.paper import presentations as show
from icone.paper.grids import Cell
from icone.paper.options import Options
from icone.paper.presentations import Presentation, Scene

BOTH = "2D and 3D sets"
TWO = "7 2D sets, 224 px"
THREE = "6 3D sets, 64³"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or one of ours."""

    name: str
    labels: tuple[str, ...]
    """LaTeX labels of what it reproduces; none where the paper has nothing like it."""
    needs: str
    grid: Callable[[Options], list[Cell]]
    present: Callable[[Scene], Presentation]

    @property
    def reproduces(self) -> str:
        """For people to read."""
        return ", ".join(self.labels) or "not in the paper"

    @property
    def runs(self) -> bool:
        """Whether it needs runs at all."""
        return self.grid is not grids.nothing


_ALL = [
    Experiment("batch-size-2d", ("fig:main_results A",), TWO, grids.stability_2d, show.stability),
    Experiment("batch-size-3d", ("fig:main_results B",), THREE, grids.stability_3d, show.stability),
    Experiment("knn-3d", ("tab:knn3d_mean_balanced_accuracy",), THREE, grids.knn_3d, show.knn),
    Experiment("batch-sensitivity", ("fig:batch_sensitivity",), BOTH, grids.stability, show.sensitivity),
    Experiment("umap", ("fig:umap_3d",), "organmnist3d", grids.umap_3d, show.umap),
    Experiment("geometry", ("fig:repr_metrics",), BOTH, grids.stability, show.geometry),
    Experiment("imbalance", ("fig:imbalance",), BOTH, grids.imbalance, show.imbalance),
    Experiment("supervised", ("tab:supervised",), BOTH, grids.supervised, show.supervised),
    Experiment("regulariser", ("tab:main_ablation_regularizer",), BOTH, grids.regularisers, show.regulariser),
    Experiment("collapse", (), "adrenalmnist3d", grids.collapse, show.collapse),
    Experiment("hyperparameters", ("tab:hyperparams",), "nothing", grids.nothing, show.hyperparameters),
    Experiment("per-dataset-2d", ("fig:per_dataset_2d",), TWO, grids.stability_2d, show.per_dataset),
    Experiment("per-dataset-3d", ("fig:per_dataset_3d",), THREE, grids.stability_3d, show.per_dataset),
    Experiment("dataset-size", ("fig:heatmap_batch_dataset",), TWO, grids.dataset_sizes, show.dataset_size),
    Experiment("views", ("tab:ablation_views",), TWO, grids.views, show.views),
    Experiment("init-scale", ("tab:ablation_init",), TWO, grids.init_scales, show.init_scale),
    Experiment(
        "memory",
        ("fig:supp_gpu_memory_sweep", "fig:supp_wallclock_sweep", "tab:icone_memory_scaling"),
        "--measurements FILE",
        grids.nothing,
        show.memory,
    ),
    Experiment("metrics-2d", ("fig:repr_metrics_2d",), TWO, grids.stability_2d, show.metrics),
    Experiment("metrics-3d", ("fig:repr_metrics_3d",), THREE, grids.stability_3d, show.metrics),
    Experiment(
        "natural-images",
        ("fig:imagenet_subset",),
        "--datasets FOLDER of 20 classes",
        grids.natural_images,
        show.stability,
    ),
    Experiment(
        "synthetic",
        ("fig:toy_representations", "fig:toy_evolution", "fig:toy_accuracy", "fig:toy_alignment_uniformity",
         "tab:toy_results", "tab:ablation_variants"),
        "nothing",
        grids.synthetic_study,
        show.synthetic,
    ),
]  # fmt: skip
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
NOT_A_RESULT = {"fig:IConE_vs_others": "a drawing of the idea", "alg:icone": "src/icone/methods/icone.py"}
"""What else the paper labels: nothing that runs could give."""


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name, in the order of the paper; `all` for every one."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise unknown_name("experiment", name, [*EXPERIMENTS, "all"])
    return [e for e in _ALL if "all" in names or e.name in names]
