"""The synthetic study (appendix F): what each term of the objective does to points on a circle."""

from __future__ import annotations

from typing import Any

import pandas as pd

from icone.config import PretrainConfig
from icone.evaluation.metrics import METRICS
from icone.paper import synthetic_figures
from icone.paper.experiments.base import Experiment, Presentation, Scene
from icone.paper.frames import mean_over_seeds
from icone.paper.grids import given
from icone.paper.options import Options
from icone.paper.spec import Cell, RunSpec
from icone.paper.tables import beside_paper, reasons

VARIANTS: dict[str, tuple[str, ...]] = {
    "Full IConE": (),
    "No L_div": ("diversity_weight=0",),
    "No L_vi": ("anchor_weight=0",),
    "No L_vv": ("view_weight=0",),
}


def _grid(options: Options) -> list[Cell]:
    """Adam (AdamW without decay), 1e-3 throughout, batch 128, 4 views, float32; anchors start unit; as printed."""
    epochs = given(options.epochs, 12 if options.smoke else 300)
    trace = tuple(sorted({0, 5, 25, *range(0, epochs, 20), epochs - 1} & set(range(epochs))))
    source = "synthetic:gaussians@x200" if options.smoke else "synthetic:gaussians"
    shared: dict[str, Any] = {
        "source": source, "encoder": "mlp", "features": 2, "views": 4, "batch_size": 128, "epochs": epochs,
        "lr": given(options.lr, 1e-3), "weight_decay": 0.0, "recipe": "paper",
        "schedule": "constant", "precision": "fp32",
    }  # fmt: skip
    return [
        Cell(
            RunSpec(
                config=PretrainConfig(**shared, options=("init_unit=true", *extra), seed=seed),
                test_fraction=0.3,
                geometry_instances=0,
                trace=trace,
            ),
            {"variant": title, "seed": seed, "dataset": "gaussians", "dims": 0},
        )
        for title, extra in VARIANTS.items()
        for seed in range(given(options.seeds, 2 if options.smoke else 20))
    ]


def _present(scene: Scene) -> Presentation:
    """The four variants: final metrics and the paper's, pictures of the first seed, curves over all."""
    runs, trace = scene.results
    measured = ("knn_5", "linear_probe", "class_alignment", "uniformity", "silhouette")
    means = pd.concat([mean_over_seeds(runs, ["variant"], metric).assign(metric=metric) for metric in measured])
    means[["mean", "sd"]] = means[["mean", "sd"]].mul(means["metric"].map(lambda name: METRICS[name].scale), axis=0)
    means = means.rename(columns={"variant": "row", "mean": "ours"})
    table = beside_paper(means, name="synthetic", title=f"after training, {runs['seed'].nunique()} seeds",
                         keys=["metric"], printed="synthetic", notes=reasons(runs), digits=2)  # fmt: skip
    return Presentation(
        [table],
        {
            "representations": synthetic_figures.representations_figure(runs, scene.store),
            "evolution": synthetic_figures.evolution_figure(runs, scene.store),
            "accuracy": synthetic_figures.curves_figure(trace, ("knn_5", "linear_probe")),
            "alignment-uniformity": synthetic_figures.curves_figure(trace, ("class_alignment", "uniformity")),
            "seeds": synthetic_figures.distribution_figure(runs),
        },
    )


SYNTHETIC = Experiment(
    name="synthetic",
    labels=("fig:toy_representations", "fig:toy_evolution", "fig:toy_accuracy", "fig:toy_alignment_uniformity",
            "tab:toy_results", "tab:ablation_variants"),
    grid=_grid,
    present=_present,
)  # fmt: skip
