"""The paper's figures of geometry: the four panels, metrics per data set, the grid of maps."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from icone.errors import InputError
from icone.evaluation.metrics import METRICS
from icone.evaluation.projection import project
from icone.files import replacing
from icone.paper.drawing import draw_curves, panels, say_empty, shared_legend, style_of
from icone.paper.measure import FEATURES
from icone.paper.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = ("rankme", "lidar", "effective_rank", "alignment", "uniformity")


def geometry_figure(runs: pd.DataFrame) -> Figure:
    """Alignment against uniformity, effective rank against accuracy (3D); RankMe, LiDAR against batch size (2D)."""
    volumes, images = runs[runs["dims"] == 3], runs[runs["dims"] == 2]
    with panels(2, 2, 4.2, 3.1) as (figure, axes):
        _plane(figure, axes[0], volumes)
        _rank_and_accuracy(axes[1], volumes)
        for axis, metric in zip(axes[2:], ("rankme", "lidar"), strict=True):
            draw_curves(axis, images, metric, empty="no finished 2D runs")
            axis.set_title(f"{METRICS[metric].axis}, 2D")
        shared_legend(figure, axes)
    return figure


def _plane(figure: Figure, axis: Axes, runs: pd.DataFrame) -> None:
    points = _points(runs, ["alignment", "uniformity", "linear_probe"])
    if points is None:
        say_empty(axis, "no finished 3D runs")
        return
    colours = 100 * points["linear_probe"]
    for name, part in points.groupby("method", sort=False):
        style = style_of(str(name))
        drawn = axis.scatter(
            part["uniformity"], part["alignment"], c=100 * part["linear_probe"], marker=style.marker, s=28,
            cmap="viridis", vmin=colours.min(), vmax=colours.max(), edgecolors=style.colour, linewidths=0.9,
        )  # fmt: skip
    figure.colorbar(drawn, ax=axis, label=METRICS["linear_probe"].axis)
    axis.set(xlabel="uniformity (left: more spread)", ylabel="alignment (down: views agree)", title="3D")


def _rank_and_accuracy(axis: Axes, runs: pd.DataFrame) -> None:
    points = _points(runs, ["effective_rank", "linear_probe"])
    if points is None:
        say_empty(axis, "no finished 3D runs")
        return
    for name, part in points.groupby("method", sort=False):
        style = style_of(str(name))
        axis.scatter(
            part["effective_rank"], 100 * part["linear_probe"], color=style.colour, marker=style.marker, s=22,
            label=name,
        )  # fmt: skip
    axis.set(xlabel=METRICS["effective_rank"].axis, ylabel=METRICS["linear_probe"].axis, title="3D")


def _points(runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame | None:
    """One point per method and batch size: means over data sets and seeds."""
    if not set(metrics) <= set(runs.columns) or runs[metrics].dropna().empty:
        return None
    means = runs.dropna(subset=metrics).groupby(["method", "batch_size"], sort=False)[metrics].mean()
    return means.reset_index()


def metrics_figure(runs: pd.DataFrame) -> Figure:
    """Five metrics against batch size, a row per data set."""
    names = list(dict.fromkeys(runs["dataset"]))
    with panels(len(names), len(SHOWN), 2.3, 1.9) as (figure, axes):
        for i, name in enumerate(names):
            part = runs[runs["dataset"] == name]
            for j, metric in enumerate(SHOWN):
                axis = axes[i * len(SHOWN) + j]
                draw_curves(axis, part, metric)
                axis.set_ylabel(name if j == 0 else "")
                axis.set_title(METRICS[metric].axis if i == 0 else "")
                axis.set_xlabel("batch size" if i == len(names) - 1 else "")
        shared_legend(figure, axes)
    return figure


def map_figure(runs: pd.DataFrame, store: Store) -> Figure:
    """UMAP of the features: batch sizes down, methods across, coloured by class; IConE first and framed."""
    methods, sizes = list(dict.fromkeys(runs["method"])), sorted(set(runs["batch_size"]))
    with panels(len(sizes), len(methods), 1.25, 1.25) as (figure, axes):
        for i, size in enumerate(sizes):
            for j, method in enumerate(methods):
                axis = axes[i * len(methods) + j]
                run = runs[(runs["batch_size"] == size) & (runs["method"] == method)].iloc[0]
                _map(axis, store.run_folder(run["key"]), str(run["status"]))
                axis.set_title(method if i == 0 else "", fontsize=8)
                axis.set_ylabel(f"B = {size}" if j == 0 else "")
                if method == "IConE":
                    axis.spines[:].set(visible=True, color=style_of("IConE")[0], linewidth=1.6)
    return figure


def _map(axis: Axes, folder: Path, status: str) -> None:
    from icone.report.figures import COLOURS

    if not (folder / FEATURES).is_file():
        say_empty(axis, status if status != "done" else "no features kept")
        axis.spines[:].set_visible(False)
        return
    xy, labels = _coordinates(folder)
    for code, name in enumerate(np.unique(labels)):
        members = xy[labels == name]
        colour = COLOURS[code % len(COLOURS)]
        axis.scatter(members[:, 0], members[:, 1], s=2.5, color=colour, linewidths=0, rasterized=True)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set(visible=True, color="#cccccc", linewidth=0.6)


def _coordinates(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The map of a run; computed once and, where that can be written, kept beside its features."""
    kept = folder / "map.npz"
    if kept.is_file():
        with np.load(kept) as content:
            return content["xy"], content["labels"]
    with np.load(folder / FEATURES) as content:
        features, labels = content["features"].astype(np.float32), content["labels"]
    xy = project(features).xy
    with contextlib.suppress(InputError, OSError), replacing(kept) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, xy=xy, labels=labels)
    return xy, labels
