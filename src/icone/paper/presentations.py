"""From the runs of an experiment to its tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from icone.config import PretrainConfig
from icone.encoders import DEFAULT_FEATURES
from icone.methods import method_options
from icone.nn.batchnorm import REFERENCE_SAMPLES
from icone.paper import accuracy_figures, geometry_figures, synthetic_figures
from icone.paper.frames import Results, mean_over_seeds
from icone.paper.memory_cost import memory_table, read_measurements, sweep_figure
from icone.paper.printed import read_printed
from icone.paper.store import Store
from icone.paper.tables import PERCENT, PaperTable, beside_paper, metric_table, reasons

NOT_SHOWN = "not in the paper's figure"
NOT_PRINTED = "not in the paper"


@dataclass(frozen=True)
class Scene:
    """What a presentation can look at."""

    name: str
    results: Results
    store: Store
    measurements: Sequence[Path] = ()

    @property
    def runs(self) -> pd.DataFrame:
        return self.results.runs


@dataclass(frozen=True)
class Presentation:
    """What an experiment shows."""

    tables: list[PaperTable]
    figures: dict[str, Figure] = field(default_factory=dict)


def stability(scene: Scene) -> Presentation:
    """Accuracy against batch size; beyond the paper's figure also kNN-5 and RankMe, which a probe does not see."""
    keys = ["dims", "batch_size"]
    more = [
        metric_table(scene.runs, name=metric, title=title, row="method", keys=keys, metric=metric, absent=NOT_SHOWN)
        for metric, title in {"knn_5": "kNN-5, balanced accuracy (%)", "rankme": "RankMe"}.items()
    ]
    drawn = {
        scene.name: accuracy_figures.stability_figure(scene.runs),
        f"{scene.name}-more": accuracy_figures.three_metrics_figure(scene.runs),
    }
    return Presentation([_accuracy(scene, keys=keys), *more], drawn)


def per_dataset(scene: Scene) -> Presentation:
    table = _accuracy(scene, keys=["dataset", "batch_size"])
    return Presentation([table], {scene.name: accuracy_figures.per_dataset_figure(scene.runs)})


def knn(scene: Scene) -> Presentation:
    """kNN-1/5/20 at three batch sizes."""
    long = pd.concat([scene.runs.assign(k=k, knn_5=scene.runs.get(f"knn_{k}")) for k in (1, 5, 20)])
    return Presentation([
        metric_table(long, name=scene.name, title="kNN balanced accuracy (%)", row="method", keys=["batch_size", "k"],
                     metric="knn_5", printed="knn-3d")
    ])  # fmt: skip


def sensitivity(scene: Scene) -> Presentation:
    """Drop from the largest to the smallest batch, and correlation with batch size."""
    found = (
        accuracy_figures.sensitivity(scene.runs)
        if "linear_probe" in scene.runs
        else pd.DataFrame(columns=["dims", "method", "drop", "pearson", "accuracy"])
    )
    long = found.melt(["dims", "method"], ["drop", "pearson", "accuracy"], "metric", "ours").rename(
        columns={"method": "row"}
    )
    seeds = scene.runs["seed"].nunique()
    long = long.assign(sd=float("nan"), seeds=seeds, runs=1, wanted=1, status="done")
    table = beside_paper(long, name=scene.name, title="drop (points), correlation with log2 B, mean accuracy (%)",
                         keys=["dims", "metric"], printed=None, notes=reasons(scene.runs), digits=2)  # fmt: skip
    return Presentation([table], {scene.name: accuracy_figures.sensitivity_figure(found)})


def umap(scene: Scene) -> Presentation:
    table = _accuracy(scene, keys=["dataset", "batch_size"])
    return Presentation([table], {scene.name: geometry_figures.map_figure(scene.runs, scene.store)})


def geometry(scene: Scene) -> Presentation:
    return Presentation(
        _geometry_tables(scene, ["dims", "batch_size"]), {scene.name: geometry_figures.geometry_figure(scene.runs)}
    )


def metrics(scene: Scene) -> Presentation:
    return Presentation(
        _geometry_tables(scene, ["dataset", "batch_size"]), {scene.name: geometry_figures.metrics_figure(scene.runs)}
    )


def imbalance(scene: Scene) -> Presentation:
    """Accuracy on all classes and on the minority against the imbalance ratio."""
    thinned = scene.runs[scene.runs["k"] > 1]
    tables = [
        metric_table(scene.runs, name="overall", title="balanced accuracy (%)", row="method", keys=["k"]),
        metric_table(
            thinned, name="minority", title="minority classes (%)", row="method", keys=["k"], metric="minority"
        ),
    ]
    return Presentation(tables, {scene.name: accuracy_figures.imbalance_figure(scene.runs)})


def supervised(scene: Scene) -> Presentation:
    """Four methods; the untrained encoder as a row of its own, because SupCon at batch 1 is undefined here."""
    table = _accuracy(scene, keys=["dims", "batch_size"], printed="supervised")
    if "untrained_linear_probe" not in scene.runs:
        return Presentation([table])
    measured = scene.runs.dropna(subset=["untrained_linear_probe"]).assign(method="untrained encoder", batch_size="any")
    untrained = metric_table(measured, name="untrained", title="untrained encoder (%)", row="method",
                             keys=["dims"], metric="untrained_linear_probe",
                             absent=NOT_PRINTED)  # fmt: skip
    return Presentation([table, untrained])


def regulariser(scene: Scene) -> Presentation:
    return Presentation([_accuracy(scene, row="variant", keys=["dims", "batch_size"], printed="regulariser")])


def collapse(scene: Scene) -> Presentation:
    """The variants of the objective against batch size; RankMe alone would take noise for structure."""
    titles = {
        "linear_probe": "linear probe (%)",
        "knn_5": "kNN-5 (%)",
        "rankme": "RankMe",
        "recognition": "views nearer to their own sample than to another (%)",
    }
    tables = [
        metric_table(scene.runs, name=metric, title=title, row="variant", keys=["dataset", "batch_size"],
                     metric=metric, absent=NOT_PRINTED)
        for metric, title in titles.items()
    ]  # fmt: skip
    drawn = scene.runs.assign(method=scene.runs["variant"])
    return Presentation(tables, {scene.name: accuracy_figures.three_metrics_figure(drawn)})


def dataset_size(scene: Scene) -> Presentation:
    table = _accuracy(scene, keys=["n", "batch_size"])
    return Presentation([table], {scene.name: accuracy_figures.heatmap_figure(scene.runs)})


def views(scene: Scene) -> Presentation:
    return Presentation([_accuracy(scene, row="variant", keys=["batch_size"], printed="views", average=True)])


def init_scale(scene: Scene) -> Presentation:
    return Presentation([_accuracy(scene, row="variant", keys=["batch_size"], printed="init-scale", average=True)])


def memory(scene: Scene) -> Presentation:
    """Peak memory and wall clock, from the benchmark."""
    measured = read_measurements(scene.measurements)
    return Presentation(
        [memory_table(measured)],
        {"memory": sweep_figure(measured, "peak_gb"), "wall-clock": sweep_figure(measured, "seconds_per_step")},
    )


def synthetic(scene: Scene) -> Presentation:
    """The four variants: final figures beside the paper's, pictures of the first seed, curves over all."""
    runs, trace = scene.results
    measured = ("knn_5", "linear_probe", "class_alignment", "uniformity", "silhouette")
    means = pd.concat([mean_over_seeds(runs, ["variant"], metric).assign(metric=metric) for metric in measured])
    percent = means["metric"].isin(PERCENT)
    means[["mean", "sd"]] = means[["mean", "sd"]].mul(percent.map({True: 100, False: 1}), axis=0)
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


def hyperparameters(scene: Scene) -> Presentation:
    """The settings of the paper beside the defaults of this package, which are not those of `--recipe paper`."""
    default, icone = PretrainConfig(source=""), method_options("icone")
    ours: dict[object, object] = {
        "optimizer": "AdamW",
        "learning rate": f"{default.lr} · √(B/{REFERENCE_SAMPLES})",
        "weight decay": default.weight_decay,
        "schedule": "cosine",
        "epochs": default.epochs,
        "views": default.views,
        "anchor initialisation": f"untrained embeddings, as long as N(0, {icone['init_std']})",
        **{("embedding dimension", dims): f"{DEFAULT_FEATURES[dims]}, anchors {icone['out']}" for dims in (2, 3)},
    }
    printed = read_printed("hyperparameters").values
    values = printed.assign(ours=[str(ours.get((row, dims), ours.get(row))) for row, dims in _pairs(printed)])
    values["paper"] = values["paper"].astype(str)
    values["difference"] = ["" if p == o else "differs" for p, o in zip(values["paper"], values["ours"], strict=True)]
    values = values.assign(sd=None, seeds=0, runs=0, wanted=0, status="done")
    return Presentation([PaperTable("hyperparameters", "settings", values, ["dims"], "tab:hyperparams", None)])


def _pairs(table: pd.DataFrame) -> Iterator[tuple[str, int]]:
    return zip(table["row"], table["dims"], strict=True)


def _accuracy(
    scene: Scene, *, row: str = "method", keys: list[str], printed: str | None = None, average: bool = False
) -> PaperTable:
    return metric_table(
        scene.runs, name=scene.name, title="linear probe, balanced accuracy (%)", row=row, keys=keys, printed=printed,
        average=average,
    )  # fmt: skip


def _geometry_tables(scene: Scene, keys: list[str]) -> list[PaperTable]:
    return [
        metric_table(scene.runs, name=metric, title=metric.replace("_", " "), row="method", keys=keys, metric=metric)
        for metric in geometry_figures.METRICS
    ]
