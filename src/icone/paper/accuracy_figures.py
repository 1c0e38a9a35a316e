"""The paper's figures of accuracy: stability, sensitivity, imbalance, heatmaps, one panel per data set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from icone.evaluation.metrics import METRICS
from icone.methods import METHODS
from icone.paper.drawing import draw_curves, limits, panels, say_empty, shared_legend, style_of
from icone.paper.frames import mean_over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def stability_figure(runs: pd.DataFrame, metric: str = "linear_probe") -> Figure:
    """Accuracy against batch size, a panel per dimension."""
    dimensions = sorted(set(runs["dims"]))
    with panels(1, len(dimensions), 4.2, 3.2) as (figure, axes):
        for axis, dims in zip(axes, dimensions, strict=True):
            _curves(axis, runs[runs["dims"] == dims], metric, f"{dims}D")
        shared_legend(figure, axes)
    return figure


def three_metrics_figure(runs: pd.DataFrame) -> Figure:
    """Linear probe, kNN-5 and RankMe against batch size, a row per dimension."""
    dimensions = sorted(set(runs["dims"]))
    metrics = ("linear_probe", "knn_5", "rankme")
    with panels(len(dimensions), len(metrics), 3.1, 2.8) as (figure, axes):
        each = [(dims, metric) for dims in dimensions for metric in metrics]
        for axis, (dims, metric) in zip(axes, each, strict=True):
            _curves(axis, runs[runs["dims"] == dims], metric, f"{METRICS[metric].short}, {dims}D")
        shared_legend(figure, axes)
    return figure


def per_dataset_figure(runs: pd.DataFrame, metric: str = "linear_probe") -> Figure:
    """Accuracy against batch size, a panel per data set."""
    names = list(dict.fromkeys(runs["dataset"]))
    columns = 2 if len(names) == 4 else min(3, len(names))
    with panels(math.ceil(len(names) / columns), columns, 3.1, 2.5) as (figure, axes):
        for axis, name in zip(axes, names, strict=False):
            _curves(axis, runs[runs["dataset"] == name], metric, name)
        for axis in axes[len(names) :]:
            axis.remove()
        shared_legend(figure, axes[: len(names)])
    return figure


def _curves(axis, runs: pd.DataFrame, metric: str, title: str) -> None:  # type: ignore[no-untyped-def]
    axis.set_title(title)
    draw_curves(axis, runs, metric)


def sensitivity(runs: pd.DataFrame, metric: str = "linear_probe") -> pd.DataFrame:
    """Per dimension and method: drop from the largest to the smallest defined batch, and Pearson's r with B and log2 B.

    Means over data sets and seeds come first. The smallest batch is the smallest at which the method is defined. A data
    set counts with the seeds that have all batch sizes: a mean over other data sets would be a drop of its own. `runs`
    of `wanted` do.
    """
    rows = []
    for (dims, method), group in runs.groupby(["dims", "method"], sort=False):
        if group[metric].isna().all():
            continue
        complete, wanted = _at_all_sizes(group, metric)
        means = mean_over_seeds(complete, ["batch_size"], metric).sort_values("batch_size")
        accuracy, size = 100 * means["mean"].to_numpy(dtype=float), means["batch_size"].to_numpy(dtype=float)
        steady = len(means) < 2 or np.ptp(accuracy) == 0
        rows.append(
            {
                "dims": dims, "method": method, "smallest": int(size[0]) if len(size) else 0,
                "largest": int(size[-1]) if len(size) else 0,
                "drop": accuracy[-1] - accuracy[0] if len(means) > 1 else math.nan,
                "pearson": math.nan if steady else float(np.corrcoef(size, accuracy)[0, 1]),
                "pearson_log2": math.nan if steady else float(np.corrcoef(np.log2(size), accuracy)[0, 1]),
                "accuracy": accuracy.mean() if len(means) else math.nan,
                "seeds": complete["seed"].nunique(), "runs": len(complete), "wanted": wanted,
            }
        )  # fmt: skip
    columns = ["dims", "method", "smallest", "largest", "drop", "pearson", "pearson_log2", "accuracy"]
    return pd.DataFrame(rows, columns=[*columns, "seeds", "runs", "wanted"])


def _at_all_sizes(runs: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, int]:
    """Of one method the runs of every data set and seed that have the metric at all batch sizes; how many can be.

    A batch size counts where the method is defined. A data set that is too small for one that others have never counts.
    """
    fewest = {method.title: method.min_batch_size for method in METHODS.values()}  # some may still have to be refused
    runs = runs[runs["batch_size"] >= runs["method"].map(fewest).fillna(1)]
    sizes = set(runs.loc[runs["status"] != "undefined", "batch_size"])
    pairs = [pair for _, pair in runs[runs["batch_size"].isin(sizes)].groupby(["dataset", "seed"], sort=False)]
    possible = [pair for pair in pairs if not (pair["status"] == "undefined").any()]
    complete = [pair for pair in possible if set(pair.loc[pair[metric].notna(), "batch_size"]) == sizes]
    return pd.concat(complete) if complete else runs.iloc[:0], sum(map(len, possible))


def sensitivity_figure(table: pd.DataFrame) -> Figure:
    """Left: drop from the largest to the smallest batch; right: correlation with batch size against accuracy."""
    table = table[table["runs"] > 0]
    dimensions = sorted(set(table["dims"]))
    with panels(max(1, len(dimensions)), 2, 4.0, 2.9) as (figure, axes):
        for i, dims in enumerate(dimensions):
            bars, plane = axes[2 * i : 2 * i + 2]
            part = table[table["dims"] == dims].sort_values("drop", ascending=False, na_position="first")
            colours = [style_of(name).colour for name in part["method"]]
            ends = zip(part["method"], part["largest"], part["smallest"], strict=True)
            spans = [f"{m} ({large} → {small})" if large > small else f"{m} (only {small})" for m, large, small in ends]
            bars.barh(spans, part["drop"].fillna(0), color=colours)
            bars.axvline(0, color="black", linewidth=0.6)
            bars.set(xlabel="drop of balanced accuracy (points)", title=f"{dims}D: largest to smallest batch")
            for name, x, y in zip(part["method"], part["pearson"], part["accuracy"], strict=True):
                style = style_of(name)
                plane.scatter([x], [y], color=style.colour, marker=style.marker, s=45, label=name, zorder=3)
            plane.set(xlim=(-1.1, 1.1), xlabel="correlation of accuracy with B", ylabel="mean balanced accuracy (%)")
            plane.set_xticks([-1, -0.5, 0, 0.5, 1])
            plane.axvline(0, color="#bbbbbb", linewidth=0.6)
        if not dimensions:
            for axis in axes:
                say_empty(axis)
        shared_legend(figure, axes[1::2])
    return figure


def imbalance_figure(runs: pd.DataFrame) -> Figure:
    """Accuracy on all classes and on the minority against the imbalance ratio."""
    with panels(1, 2, 4.2, 3.2) as (figure, axes):
        for axis, (metric, title) in zip(
            axes, {"linear_probe": "all classes", "minority": "minority classes"}.items(), strict=True
        ):
            axis.set_title(title)
            draw_curves(axis, runs, metric, x="k", label="imbalance ratio k")
        shared_legend(figure, axes)
    return figure


def heatmap_figure(runs: pd.DataFrame, metric: str = "linear_probe") -> Figure:
    """Methods × batch sizes, a panel per number of samples; one colour scale."""
    numbers = sorted(set(runs["n"]))
    means = mean_over_seeds(runs, ["n", "method", "batch_size"], metric).assign(mean=lambda t: 100 * t["mean"])
    sizes, methods = sorted(set(runs["batch_size"])), list(dict.fromkeys(runs["method"]))
    columns = min(2, len(numbers))
    height = 0.6 + 0.3 * len(methods)
    with panels(math.ceil(len(numbers) / columns), columns, 1.4 + 0.5 * len(sizes), height) as (figure, axes):
        found = means["mean"].dropna().to_numpy()
        low, high = limits(found, 0) if len(found) else (0.0, 100.0)
        for axis, n in zip(axes, numbers, strict=False):
            grid = means[means["n"] == n].pivot_table(index="method", columns="batch_size", values="mean", dropna=False)
            grid = grid.reindex(index=methods, columns=sizes)
            drawn = axis.imshow(grid, cmap="Blues", vmin=low, vmax=high, aspect="auto")
            for (i, j), value in np.ndenumerate(grid.to_numpy(dtype=float)):
                dark = value > (low + high) / 2
                text = "–" if math.isnan(value) else f"{value:.0f}"
                axis.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=7)
            axis.set_xticks(range(len(sizes)), [str(s) for s in sizes])
            axis.set_yticks(range(len(methods)), methods)
            axis.set(title=f"N = {n}", xlabel="batch size")
            axis.spines[:].set_visible(False)
            axis.tick_params(length=0)
        for axis in axes[len(numbers) :]:
            axis.remove()
        figure.colorbar(drawn, ax=axes[: len(numbers)], label="balanced accuracy (%)", shrink=0.8)
    return figure
