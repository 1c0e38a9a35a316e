"""The figures of the synthetic study: representations, their evolution, curves, and the distribution over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from icone.evaluation.metrics import METRICS
from icone.paper.drawing import panels, say_empty, shared_legend
from icone.paper.measure import FEATURES
from icone.paper.store import Store
from icone.paper.tables import read_printed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MATHEMATICS = {"No L_div": "No $L_{div}$", "No L_vi": "No $L_{vi}$", "No L_vv": "No $L_{vv}$"}


def representations_figure(runs: pd.DataFrame, store: Store) -> Figure:
    """The data, and the circle of every variant at the end of training, first seed."""
    variants = list(dict.fromkeys(runs["variant"]))
    with panels(1, 1 + len(variants), 2.1, 2.3) as (figure, axes):
        for axis, variant in zip(axes[1:], variants, strict=True):
            arrays = _arrays(runs, variant, store)
            if arrays is None:
                say_empty(axis)
                continue
            _scatter(axes[0], arrays["points"], arrays["labels"])
            last = max(_epochs(arrays))
            _circle(axis, arrays[f"epoch_{last}"], arrays["labels"])
            seed = runs[(runs["variant"] == variant) & (runs["seed"] == 0)].iloc[0]
            axis.set_xlabel(f"kNN {100 * seed['knn_5']:.0f} %, linear {100 * seed['linear_probe']:.0f} %")
        for axis, title in zip(axes, ["data", *variants], strict=True):
            axis.set_title(MATHEMATICS.get(title, title), parse_math=True)
    return figure


def evolution_figure(runs: pd.DataFrame, store: Store) -> Figure:
    """Variants down, epochs across, first seed."""
    found = {variant: _arrays(runs, variant, store) for variant in dict.fromkeys(runs["variant"])}
    epochs = sorted({epoch for arrays in found.values() if arrays is not None for epoch in _epochs(arrays)}) or [0]
    with panels(len(found), len(epochs), 1.35, 1.4) as (figure, axes):
        for i, (variant, arrays) in enumerate(found.items()):
            for j, epoch in enumerate(epochs):
                axis = axes[i * len(epochs) + j]
                if arrays is None:
                    say_empty(axis)
                else:
                    _circle(axis, arrays[f"epoch_{epoch}"], arrays["labels"])
                axis.set_title(f"epoch {epoch}" if i == 0 else "")
                if j == 0:
                    axis.set_ylabel(MATHEMATICS.get(variant, variant), parse_math=True)
    return figure


def curves_figure(trace: pd.DataFrame, metrics: tuple[str, str]) -> Figure:
    """Two metrics over epochs: mean over seeds, with a band of one standard deviation."""
    with panels(1, 2, 4.0, 2.9) as (figure, axes):
        for axis, metric in zip(axes, metrics, strict=True):
            scale = METRICS[metric].scale
            lines = trace[trace["metric"] == metric]
            if lines.empty:
                say_empty(axis)
                continue
            for i, (variant, part) in enumerate(lines.groupby("variant", sort=False)):
                by_epoch = part.groupby("epoch")["value"]
                middle, spread = scale * by_epoch.mean(), scale * by_epoch.std().fillna(0)
                x = middle.index.to_numpy(dtype=float)
                name = MATHEMATICS.get(str(variant), str(variant))
                axis.plot(x, middle, color=_colour(i), label=name)
                axis.fill_between(x, middle - spread, middle + spread, color=_colour(i), alpha=0.15, linewidth=0)
            axis.set(xlabel="epoch", ylabel=METRICS[metric].axis)
        shared_legend(figure, axes)
        _mathematics(figure)
    return figure


def distribution_figure(runs: pd.DataFrame) -> Figure:
    """Every seed as a dot beside the paper's one number (diamond)."""
    printed = read_printed("synthetic").values
    metrics = ("knn_5", "linear_probe", "class_alignment", "uniformity", "silhouette")
    variants = list(dict.fromkeys(runs["variant"]))
    rng = np.random.default_rng(0)
    with panels(1, len(metrics), 2.0, 2.6) as (figure, axes):
        for axis, metric in zip(axes, metrics, strict=True):
            scale = METRICS[metric].scale
            for i, variant in enumerate(variants):
                values = (
                    scale * runs.loc[runs["variant"] == variant, metric].dropna() if metric in runs else pd.Series()
                )
                places = i + rng.uniform(-0.18, 0.18, len(values))
                axis.scatter(
                    places,
                    values,
                    s=9,
                    color=_colour(i),
                    alpha=0.75,
                    linewidths=0,
                    label="one seed" if i == 0 else None,
                )
                number = printed[(printed["row"] == variant) & (printed["metric"] == metric)]["paper"]
                axis.scatter([i] * len(number), number, marker="D", s=26, facecolors="none", edgecolors="black",
                             linewidths=1.1, zorder=4, label="paper" if i == 0 else None)  # fmt: skip
            names = [MATHEMATICS.get(v, v.removesuffix(" IConE")) for v in variants]
            axis.set_xticks(range(len(variants)), names, rotation=40, ha="right")
            axis.set_xlim(-0.5, len(variants) - 0.5)
            axis.set_title(METRICS[metric].axis.replace("alignment of ", "alignment,\n"))
        shared_legend(figure, axes[:1])
        _mathematics(figure)
    return figure


def _mathematics(figure: Figure) -> None:
    """Our own labels hold formulas; the house style reads none, because class names may hold dollar signs."""
    texts = [t for axis in figure.axes for t in axis.get_xticklabels()]
    texts += [t for legend in figure.legends for t in legend.get_texts()]
    for text in texts:
        text.set_parse_math(True)


def _arrays(runs: pd.DataFrame, variant: str, store: Store) -> dict[str, np.ndarray] | None:
    run = runs[(runs["variant"] == variant) & (runs["seed"] == 0)].iloc[0]
    path: Path = store.run_folder(run["key"]) / FEATURES
    if run["status"] != "done" or not path.is_file():
        return None
    with np.load(path) as content:
        return dict(content)


def _epochs(arrays: dict[str, np.ndarray]) -> list[int]:
    return [int(name.removeprefix("epoch_")) for name in arrays if name.startswith("epoch_")]


def _circle(axis: Axes, xy: np.ndarray, labels: np.ndarray) -> None:
    """Unit vectors, each class a little inside the one before, so that overlapping classes are seen."""
    angles = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(angles), np.sin(angles), color="#dddddd", linewidth=0.7, zorder=1)
    _scatter(axis, xy * (1 - 0.06 * labels)[:, None], labels)
    axis.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")


def _scatter(axis: Axes, xy: np.ndarray, labels: np.ndarray) -> None:
    from icone.report.figures import COLOURS

    axis.scatter(xy[:, 0], xy[:, 1], c=[COLOURS[i] for i in labels], s=2.5, linewidths=0, rasterized=True, zorder=2)
    axis.set(xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_visible(False)


def _colour(position: int) -> str:
    return ("#009E73", "#D55E00", "#8C8C8C", "#1A7FC1")[position % 4]
