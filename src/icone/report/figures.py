"""The pictures of the page as matplotlib figures, for notebooks and papers: PDF and PNG, by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icone.errors import InputError, unknown_name
from icone.evaluation.projection import PROJECTIONS, ProjectionName, clusters, neighbourhood, project
from icone.report.content import CLUSTERS, GEOMETRY, NEIGHBOURS, gallery_queries, history_columns
from icone.report.samples import Column, numbers_or_categories, read_samples
from icone.report.thumbnails import picture_of
from icone.runs import Run, replacing

COLOURS = ("#1A7FC1", "#E69F00", "#009E73", "#CC79A7", "#7CC7F2", "#D55E00", "#B3A100", "#8C8C8C")
ROUNDING = 1e-6
"""Of float32 through a network: smaller singular values are noise."""
SYMBOLS = ("o", "D", "s", "^", "P")
STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text, as journals ask
    "savefig.dpi": 300,
    "text.parse_math": False,  # a class name with dollar signs is no formula
    "lines.linewidth": 1.4,
}


@contextmanager
def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in the house style that pyplot does not keep, so that a notebook shows it once."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
        plt.close(figure)
        yield figure, list(axes.flat)


def plot_history(run: Run) -> Figure:
    """Loss terms over epochs."""
    terms = _columns(run, "terms")
    with _figure(4.2, 2.8) as (figure, [axis]):
        for i, (name, points) in enumerate(terms.items()):
            axis.plot(*zip(*points, strict=True), label=name.replace("_", " "), marker=_marker(points, i), markersize=3)
        axis.set(xlabel="epoch", ylabel="loss")
        axis.legend()
    return figure


def plot_geometry(run: Run) -> Figure:
    """RankMe, first component, cosines, alignment and uniformity over epochs."""
    measured = _columns(run, "geometry")
    shown = [name for name in GEOMETRY if name in measured]
    with _figure(7, 2.1 * -(-len(shown) // 3), -(-len(shown) // 3), 3) as (figure, axes):
        for axis, name in zip(axes, shown, strict=False):
            axis.plot(*zip(*measured[name], strict=True), marker=_marker(measured[name], 0), markersize=3)
            axis.set(xlabel="epoch", title=GEOMETRY[name])
        for axis in axes[len(shown) :]:
            axis.remove()
    return figure


def plot_spectrum(run: Run) -> Figure:
    """Singular values of the standardised features, relative to the largest."""
    result = _result(run)
    with _figure(4.2, 2.8) as (figure, [axis]):
        for which, dash in (("untrained", ":"), ("trained", "-")):
            if which in result:
                values = np.array(result[which]["spectrum"])
                values = values[values > ROUNDING * values[0]] / (values[0] or 1)
                axis.semilogy(np.arange(1, len(values) + 1), values, dash, color="C0", label=which)
        axis.set(xlabel="rank", ylabel="singular value, relative")
        axis.legend()
    return figure


def plot_plane(run: Run) -> Figure:
    """Alignment against uniformity: while training, and at the end."""
    history, result = history_columns(run)["geometry"], _result(run)
    with _figure(3.6, 3) as (figure, [axis]):
        if "alignment" in history:
            x, y = ([value for _, value in history[name]] for name in ("uniformity", "alignment"))
            axis.plot(x, y, ":", marker=".", color="C0", label="while training")
        for which, face in (("untrained", "none"), ("trained", COLOURS[0])):
            if "alignment" in result.get(which, {}):
                point = result[which]["uniformity"], result[which]["alignment"]
                axis.scatter(*point, s=60, facecolors=face, edgecolors=COLOURS[0], label=which, zorder=3)
        axis.set(xlabel="uniformity (left: more spread)", ylabel="alignment (down: views agree)")
        axis.legend()
    return figure


def plot_map(run: Run, projection: ProjectionName = "umap", colour: str = "label") -> Figure:
    """Samples in two dimensions, coloured by label (by cluster where there are none), cluster or density."""
    samples = read_samples(run)
    classes = len(set(samples.labels) - {""})
    if colour == "label" and samples.labelled:
        column = numbers_or_categories("label", [name or None for name in samples.labels], names=True)
    elif colour in ("label", "cluster"):
        found = clusters(samples.features, classes if classes > 1 else CLUSTERS)
        column = Column("cluster", [f"cluster {i + 1}" for i in range(int(found.max()) + 1)], found.tolist())
    elif colour == "density":
        column = Column("density", None, neighbourhood(samples.features, NEIGHBOURS).density().tolist())
    else:
        raise unknown_name("colour", colour, ("label", "cluster", "density"))
    placed = project(samples.features, projection)
    with _figure(5, 4) as (figure, [axis]):
        _scatter(figure, axis, placed.xy, column)
        axis.set(xticks=[], yticks=[], title=placed.note or "")
        axis.set(xlabel=f"{PROJECTIONS[projection]} 1", ylabel=f"{PROJECTIONS[projection]} 2")
    return figure


def _scatter(figure: Figure, axis: Axes, xy: Any, column: Column) -> None:
    size = 3 if len(xy) > 3000 else 9
    values = np.array(column.values, dtype=float)
    if column.categories is None:
        drawn = axis.scatter(
            xy[:, 0], xy[:, 1], c=values, s=size, cmap="cividis", linewidths=0, rasterized=len(xy) > 3000
        )
        figure.colorbar(drawn, ax=axis, label=column.name)
        return
    handles, names = [], []
    for code in (-1, *range(len(column.categories))):
        points = xy[values == code]
        if len(points):
            colour, symbol = ("#9a9a9a", "o") if code < 0 else (COLOURS[code % 8], SYMBOLS[code // 8 % 5])
            x, y = points.T
            drawn = axis.scatter(x, y, color=colour, marker=symbol, s=size, linewidths=0, rasterized=len(xy) > 3000)
            handles.append(drawn)
            names.append("none" if code < 0 else column.categories[code])
    figure.legend(handles, names, loc="outside right upper", markerscale=2, ncols=1 + len(names) // 25)


def plot_confusion(run: Run) -> Figure:
    """Confusion matrix of the linear probe, rows are true classes."""
    probe = _result(run)["trained"].get("linear_probe")
    if probe is None:
        raise InputError(f"{run.folder} has no probe results: evaluate it with --labels first")
    counts, names = np.array(probe["confusion"]), probe["classes"]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    edge = 1.6 + 0.42 * len(names)
    with _figure(edge + 0.6, edge) as (figure, [axis]):
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for (i, j), count in np.ndenumerate(counts):
            axis.text(j, i, str(count), ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black")
        axis.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axis.set_yticks(range(len(names)), names)
        axis.set(xlabel="predicted", ylabel="true")
    return figure


def plot_gallery(run: Run, data_root: Path | None = None) -> Figure:
    """Queries (left) and their nearest neighbours, framed by whether the label is the same."""
    samples = read_samples(run)
    queries = gallery_queries(samples.labels)
    near = neighbourhood(samples.features, NEIGHBOURS).index
    rows = [[query, *near[query]] for query in queries]
    pictures = picture_of(run, samples, sorted({i for row in rows for i in row}), data_root)
    if not pictures:
        raise InputError(f"{run.config.source} holds points, which have no pictures")
    wide = next(iter(pictures.values())).shape[1] / next(iter(pictures.values())).shape[0]
    with _figure(0.8 * wide * len(rows[0]), 0.85 * len(rows), len(rows), len(rows[0])) as (figure, axes):
        for axis, (query, point) in zip(axes, ((row[0], i) for row in rows for i in row), strict=True):
            axis.imshow(pictures[point])
            axis.set(xticks=[], yticks=[])
            same = samples.labels[point] == samples.labels[query]
            colour = "black" if point == query else "#009E73" if same else "#D55E00"
            axis.spines[:].set(visible=True, color=colour, linewidth=1.5, linestyle="-" if same else "--")
    return figure


FIGURES: dict[str, Callable[[Run], Figure]] = {
    "history": plot_history,
    "geometry": plot_geometry,
    "spectrum": plot_spectrum,
    "plane": plot_plane,
    "map": plot_map,
    "confusion": plot_confusion,
    "gallery": plot_gallery,
}


def save_figures(run: str | Path | Run, folder: str | Path, names: Sequence[str] = ()) -> list[Path]:
    """Save the named figures of an evaluated run (default: all that it has data for) as PDF and PNG."""
    run = run if isinstance(run, Run) else Run.open(run)
    for name in names:
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES)
    written = []
    for name in names or FIGURES:
        try:
            figure = FIGURES[name](run)
        except InputError:
            if names:
                raise
            continue  # of all figures, those without data are left out
        for suffix in ("pdf", "png"):
            target = Path(folder) / f"{name}.{suffix}"
            with replacing(target) as temporary, warnings.catch_warnings(), plt.rc_context(STYLE):
                warnings.filterwarnings("ignore", "Glyph")  # a class name in a script that the font lacks
                figure.savefig(temporary, format=suffix)
            written.append(target)
    return written


def _columns(run: Run, kind: str) -> dict[str, list[list[float]]]:
    columns = history_columns(run)[kind]
    if not columns:
        raise InputError(f"{run.folder} has no {kind} in its history: no epoch that measured them is finished")
    return columns


def _result(run: Run) -> dict[str, Any]:
    if run.result is None:
        raise InputError(f"{run.folder} has not been evaluated: run `icone evaluate {run.folder}` first")
    return run.result


def _marker(points: Sequence[Sequence[float]], i: int) -> str:
    return SYMBOLS[i % len(SYMBOLS)] if len(points) < 40 else ""
