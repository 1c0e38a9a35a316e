"""The pictures of the page as matplotlib figures, for notebooks and papers: PDF and PNG, by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from icone.api.evaluated import evaluate_command
from icone.errors import InputError, optional, unknown_name
from icone.evaluation.metrics import metrics_shown
from icone.evaluation.projection import PROJECTIONS, ProjectionName, clusters, neighbourhood, project
from icone.files import replacing
from icone.find_runs import no_run
from icone.report.content import (
    CLUSTERS,
    NEIGHBOURS,
    QUERIES,
    gallery_queries,
    history_columns,
    live_samples,
)
from icone.report.samples import Column, Samples, read_samples
from icone.report.thumbnails import picture_of
from icone.run import Run
from icone.seeds import expand_seeds, group_seeds, run_names
from icone.validation import check_arguments, check_folder

with optional("report", "drawing figures"):
    import matplotlib.pyplot as plt
    from cycler import cycler
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import LogFormatter, MaxNLocator

COLOURS = ("#1A7FC1", "#E69F00", "#009E73", "#CC79A7", "#7CC7F2", "#D55E00", "#B3A100", "#8C8C8C")
ROUNDING = 1e-6
"""Of float32 through a network: smaller singular values are noise."""
Columns = dict[str, list[list[float]]]
DASHES = ("-", "--", ":", "-.")
GAP = 12
"""Pixels between the pictures of the gallery."""
SYMBOLS = ("o", "D", "s", "^", "P")
STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text, as journals ask
    "text.parse_math": False,  # a class name with dollar signs is no formula
    "lines.linewidth": 1.4,
}


@contextmanager
def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in the house style that pyplot does not keep, so that a notebook shows it once."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
        plt.close(figure)
        yield figure, list(axes.flat)


def _side_by_side(runs: Sequence[Run], width: float, height: float, draw: Callable[[Figure, Run], None]) -> Figure:
    """A figure with a part of its own for every run, under its name where there are several."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(width * len(runs), height), layout="constrained")
        plt.close(figure)
        parts = figure.subfigures(1, len(runs), squeeze=False)[0] if len(runs) > 1 else [figure]
        for part, run, name in zip(parts, runs, run_names(runs), strict=True):
            draw(part, run)
            if len(runs) > 1:
                part.suptitle(name)
    return figure


def plot_history(*runs: Run) -> Figure:
    """Loss terms over epochs: of one run together, of several run by run, of seeds mean and standard deviation."""
    terms = [_columns(run, "terms") for run in runs]
    if len(runs) > 1:
        names = list(dict.fromkeys(name for columns in terms for name in columns))
        return _over_epochs(runs, terms, {name: name.replace("_", " ") for name in names})
    with new_figure(4.2, 2.8) as (figure, [axis]):
        for i, (name, points) in enumerate(terms[0].items()):
            axis.plot(*zip(*points, strict=True), label=name.replace("_", " "), marker=_marker(points, i), markersize=3)
        axis.set(xlabel="epoch", ylabel="loss")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside upper center", ncols=2)  # not over the lines
    return figure


def plot_geometry(*runs: Run) -> Figure:
    """The metrics that are measured while training over epochs, of seeds mean and standard deviation.

    Epoch 0 is before training.
    """
    shown = {metric.name: metric for metric in metrics_shown("training")}
    columns = [
        {
            name: [[epoch, shown[name].scale * value] for epoch, value in points]
            for name, points in _columns(run, "geometry").items()
        }
        for run in runs
    ]
    figure = _over_epochs(runs, columns, {name: metric.live_axis for name, metric in shown.items()})
    counts = sorted({count for run in runs if (count := live_samples(run))})
    if counts:
        most = f" to {counts[-1]}" if len(counts) > 1 else ""
        figure.suptitle(f"while training, on random views of {counts[0]}{most} samples")
    return figure


def _over_epochs(runs: Sequence[Run], columns: Sequence[Columns], titles: Mapping[str, str]) -> Figure:
    """A small chart for every column that has a title, with a line for every run, and a band for a folder of seeds."""
    groups = group_seeds(runs)
    shown = [name for name in titles if any(name in column for column in columns)]
    rows = -(-len(shown) // 3)
    with new_figure(7, 2.1 * rows + 0.3 * (len(runs) > 1), rows, 3) as (figure, axes):
        for axis, name in zip(axes, shown, strict=False):
            for i, group in enumerate(groups):
                members = [columns[runs.index(run)].get(name, []) for run in group.runs]
                epochs, mean, sd = _mean_points(members)
                label = group.name if len(members) == 1 else f"{group.name}, mean ± sd of {len(members)} seeds"
                axis.plot(epochs, mean, f"C{i}", label=label, markersize=3, marker=_marker(epochs, i),
                          linestyle=DASHES[i // len(COLOURS) % 4])  # fmt: skip
                if len(members) > 1:
                    axis.fill_between(epochs, mean - sd, mean + sd, color=f"C{i}", alpha=0.2, linewidth=0)
            axis.set(xlabel="epoch", title=titles[name])
        for axis in axes[len(shown) :]:
            axis.remove()
        if len(runs) > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _mean_points(members: Sequence[Sequence[Sequence[float]]]) -> tuple[list[float], Any, Any]:
    """The epochs that all runs have, and mean and standard deviation (with n − 1) of their values."""
    found = [{point[0]: point[1] for point in points} for points in members]
    epochs = [epoch for epoch in found[0] if all(epoch in values for values in found)]
    values = np.array([[values[epoch] for epoch in epochs] for values in found])
    return epochs, values.mean(axis=0), values.std(axis=0, ddof=1) if len(found) > 1 else np.zeros(len(epochs))


def _with_group(runs: Sequence[Run]) -> Iterator[tuple[Run, str, int, bool]]:
    """Every run with the name and the colour of its folder of seeds, and whether it is the first of it."""
    for colour, group in enumerate(group_seeds(runs)):
        name = group.name if len(group.runs) < len(runs) else ""
        for number, run in enumerate(group.runs):
            yield run, name, colour, number == 0


class PlainTicks(LogFormatter):
    """Numbers of a logarithmic axis as 0.1: its own formatter writes TeX, which this style prints as it is."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def plot_spectrum(*runs: Run) -> Figure:
    """Singular values of the standardised features, relative to the largest; seeds share a colour."""
    with new_figure(4.2, 2.8) as (figure, [axis]):
        for run, name, i, is_first in _with_group(runs):
            for which, dash in (("untrained", ":"), ("trained", "-")):
                if which in (result := _result(run)):
                    values = np.array(result[which]["spectrum"])
                    values = values[values > ROUNDING * values[0]] / (values[0] or 1)
                    ranks = np.arange(1, len(values) + 1)
                    axis.semilogy(ranks, values, dash, color=f"C{i}", label=_label(name, which, is_first))
        for ticks in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            ticks(PlainTicks())
        axis.set(xlabel="rank", ylabel="singular value, relative")
        axis.legend()
    return figure


def plot_plane(*runs: Run) -> Figure:
    """Alignment against uniformity: while training, and at the end; seeds share a colour."""
    with new_figure(3.6, 3) as (figure, [axis]):
        for run, name, i, is_first in _with_group(runs):
            colour, history, result = COLOURS[i % len(COLOURS)], history_columns(run)["geometry"], _result(run)
            if "alignment" in history:
                x, y = ([value for _, value in history[key]] for key in ("uniformity", "alignment"))
                axis.plot(x, y, ":", marker=".", color=colour, label=_label(name, "while training", is_first))
            for which, face in (("untrained", "none"), ("trained", colour)):
                if "alignment" in result.get(which, {}):
                    point = result[which]["uniformity"], result[which]["alignment"]
                    label = _label(name, which, is_first)
                    axis.scatter(*point, s=60, facecolors=face, edgecolors=colour, label=label, zorder=3)
        axis.set(xlabel="uniformity (left: more spread)", ylabel="alignment (down: views agree)")
        axis.legend()
    return figure


def plot_map(*runs: Run, projection: ProjectionName = "umap", colour: str = "label") -> Figure:
    """Samples in two dimensions, coloured by label (by cluster where there are none), cluster or density."""

    def draw(figure: Figure, run: Run) -> None:
        samples = read_samples(run)
        placed = project(samples.features, projection)
        axis = figure.subplots()
        _scatter(figure, axis, placed.xy, _colouring(samples, colour))
        axis.set(xticks=[], yticks=[], title=placed.note or "")
        axis.set(xlabel=f"{PROJECTIONS[projection]} 1", ylabel=f"{PROJECTIONS[projection]} 2")

    return _side_by_side(runs, 5, 4, draw)


def _colouring(samples: Samples, colour: str) -> Column:
    classes = len(set(samples.classes) - {""})
    if colour == "label" and samples.labelled:
        return samples.label_column()
    if colour in ("label", "cluster"):
        found = clusters(samples.features, classes if classes > 1 else CLUSTERS)
        return Column("cluster", [f"cluster {i + 1}" for i in range(int(found.max()) + 1)], found.tolist())
    if colour == "density":
        return Column("density", None, neighbourhood(samples.features, NEIGHBOURS).density().tolist())
    raise unknown_name("colour", colour, ("label", "cluster", "density"))


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


def plot_confusion(*runs: Run) -> Figure:
    """Confusion matrix of the linear probe, rows are true classes."""
    probes = {run: _result(run)["trained"].get("linear_probe") for run in runs}
    for run, probe in probes.items():
        if probe is None:
            raise InputError(f"{run.folder} has no probe results: {_result(run)['data']['note']}")

    def draw(figure: Figure, run: Run) -> None:
        counts, names = np.array(probes[run]["confusion"]), probes[run]["classes"]
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axis = figure.subplots()
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for (i, j), count in np.ndenumerate(counts):
            axis.text(j, i, str(count), ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black")
        axis.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axis.set_yticks(range(len(names)), names)
        axis.set(xlabel="predicted", ylabel="true")

    edge = 1.6 + 0.42 * max(len(probe["classes"]) for probe in probes.values())
    return _side_by_side(runs, edge + 0.6, edge, draw)


def plot_gallery(*runs: Run, data: Any = None, data_root: Path | None = None) -> Figure:
    """Queries (left) and their nearest neighbours, framed by whether the class is the same, where it is known."""

    def draw(figure: Figure, run: Run) -> None:
        samples = read_samples(run)
        near = neighbourhood(samples.features, NEIGHBOURS).index
        rows = [[query, *near[query]] for query in gallery_queries(samples.classes)]
        classes = samples.classes if len(set(samples.classes) - {""}) > 1 else [""] * len(samples.ids)
        pictures = picture_of(run, samples, sorted({i for row in rows for i in row}), data, data_root)
        axis = figure.subplots()  # one picture of all: laying out 72 axes takes seconds
        height, width = pictures[rows[0][0]].shape[:2]
        mosaic = np.full((len(rows) * (height + GAP), len(rows[0]) * (width + GAP), 3), 255, np.uint8)
        for (row, column), point in np.ndenumerate(np.array(rows)):
            top, left = row * (height + GAP), column * (width + GAP)
            mosaic[top : top + height, left : left + width] = pictures[int(point)]
            own, of_query = classes[point], classes[rows[row][0]]
            if column and not (own and of_query):
                continue
            same = own == of_query
            colour = "black" if column == 0 else "#009E73" if same else "#D55E00"
            axis.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=colour, linewidth=1.5,
                                     linestyle="-" if same else "--", clip_on=False))  # fmt: skip
        axis.imshow(mosaic)
        axis.set_axis_off()

    dims = [run.preparation.spatial_dims for run in runs]
    if 0 in dims:
        raise InputError(f"{runs[dims.index(0)].config.source} holds points, which have no pictures")
    return _side_by_side(runs, 0.8 * (NEIGHBOURS + 1) * (3 if 3 in dims else 1), 0.85 * QUERIES, draw)


FIGURES: dict[str, Callable[..., Figure]] = {
    "history": plot_history,
    "geometry": plot_geometry,
    "spectrum": plot_spectrum,
    "plane": plot_plane,
    "map": plot_map,
    "confusion": plot_confusion,
    "gallery": plot_gallery,
}
"""Figures by the name that `icone figures --names` takes."""


@check_arguments
def save_figures(
    runs: str | Path | Run | Sequence[str | Path | Run],
    folder: str | Path,
    names: Sequence[str] = (),
    *,
    projection: ProjectionName = "umap",
    data: Any = None,
    data_root: Path | None = None,
) -> list[Path]:
    """Save the named figures of evaluated runs (default: all that they have data for) as PDF and PNG.

    Several runs share a figure: as lines of one chart, or side by side. A folder of seeds stands for its runs, with one
    colour, and over epochs with mean and standard deviation. `projection` is that of the map. `data` says
    where the data of the runs is now, and `data_root` where the MedMNIST files are, for the pictures of the gallery.
    """
    opened = [Run.open(run.folder) for run in expand_seeds(runs)]
    if not opened:
        raise no_run(None, "figures need at least one run")
    check_folder(Path(folder))
    for name in names:
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES)
    settings: dict[str, dict[str, Any]] = {
        "map": {"projection": projection},
        "gallery": {"data": data, "data_root": data_root},
    }
    written = []
    for name in names or FIGURES:
        try:
            figure = FIGURES[name](*opened, **settings.get(name, {}))
        except InputError:
            if names:
                raise
            continue  # of all figures, those without data are left out
        written += save_figure(figure, Path(folder) / name)
    return written


def save_figure(figure: Figure, path: Path, dpi: int = 300) -> list[Path]:
    """Write a figure as PDF and PNG under a path without suffix."""
    targets = [path.with_name(f"{path.name}.{suffix}") for suffix in ("pdf", "png")]
    for target in targets:
        with replacing(target) as temporary, warnings.catch_warnings(), plt.rc_context(STYLE):
            warnings.filterwarnings("ignore", "Glyph")  # a class name in a script that the font lacks
            figure.savefig(temporary, format=target.suffix[1:], dpi=dpi)
    return targets


def _columns(run: Run, kind: str) -> Columns:
    columns = history_columns(run)[kind]
    if not columns:
        raise InputError(f"{run.folder} has no {kind} in its history: no epoch that measured them is finished")
    return columns


def _result(run: Run) -> dict[str, Any]:
    if run.result is None:
        raise InputError(f"{run.folder} {run.why_no_result}: run `{evaluate_command(run)}` first")
    return run.result


def _label(name: str, which: str, is_first: bool) -> str:
    """The entry of a legend; the seeds of a folder share one."""
    return (f"{name}, {which}" if name else which) if is_first else "_nolegend_"


def _marker(points: Sequence[Any], i: int) -> str:
    return SYMBOLS[i % len(SYMBOLS)] if len(points) < 40 else ""
