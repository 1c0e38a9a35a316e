"""The look of the paper's figures: one colour, mark and dash per method, everywhere the same."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from icone.evaluation.metrics import find_metric
from icone.methods import METHODS
from icone.paper.frames import mean_over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHOD_COLOURS = ("#009E73", "#1A7FC1", "#E69F00", "#CC79A7", "#D55E00", "#7CC7F2", "#B3A100", "#8C8C8C")
"""Of the methods, by their position in the registry."""
MARKERS = "osD^vPX<"
EMPTY = "no finished runs"
LEGEND_INCHES, LETTER_INCHES = 0.5, 0.075
"""Width of one entry of a legend without its name, and of a letter of the name."""


class Style(NamedTuple):
    """How a line is drawn."""

    colour: str
    marker: str
    dash: str = "-"


VARIANTS = {"IConE-VCReg": Style("#00583F", "p"), "IConE-SIGReg": Style("#7AD0B5", "h")}
"""Of variants of a method that are drawn with the methods."""


def style_of(name: str, position: int = 0) -> Style:
    """The style of a method by its title, of a named variant, of anything else by its position.

    A ninth method has the colour of the first with another marker and dash.
    """
    from icone.report.figures import COLOURS, DASHES

    titles = [method.title for method in METHODS.values()]
    if name in VARIANTS:
        return VARIANTS[name]
    if name not in titles:
        return Style(COLOURS[position % len(COLOURS)], MARKERS[position % len(MARKERS)])
    turn, colour = divmod(titles.index(name), len(METHOD_COLOURS))
    return Style(METHOD_COLOURS[colour], MARKERS[(colour + turn) % len(MARKERS)], DASHES[turn % len(DASHES)])


def panels(rows: int, columns: int, width: float, height: float) -> AbstractContextManager[tuple[Figure, list[Axes]]]:
    """A figure of equal panels in the house style, `width` and `height` inches each."""
    from icone.report.figures import new_figure  # here and below, because `icone paper list` draws nothing

    return new_figure(width * columns, height * rows, rows, columns)


def draw_line(axis: Axes, x: pd.Series, y: pd.Series, name: str, position: int) -> None:
    """One method's line; IConE's is bold and above the others."""
    style = style_of(name, position)
    bold: dict[str, Any] = {"linewidth": 2.2, "zorder": 4} if name == "IConE" else {"linewidth": 1.2, "zorder": 3}
    axis.plot(x, y, color=style.colour, marker=style.marker, linestyle=style.dash, markersize=4, label=name, **bold)


def draw_curves(
    axis: Axes, runs: pd.DataFrame, metric: str, x: str = "batch_size", label: str = "batch size", empty: str = EMPTY
) -> None:
    """Mean of every method over data sets and seeds against `x`, with a band of one standard deviation over seeds.

    Where no run has the metric, the panel says `empty`.
    """
    if metric not in runs or runs[metric].isna().all():
        say_empty(axis, empty)
        return
    axis.set_xlabel(label)
    means = mean_over_seeds(runs, ["method", x], metric)
    scale = find_metric(metric).scale
    for position, (name, line) in enumerate(means.groupby("method", sort=False)):
        line = line[line["mean"].notna()].sort_values(x)
        if line.empty:
            continue
        colour, band = style_of(str(name), position).colour, 0.15 if name == "IConE" else 0.07
        middle, spread = scale * line["mean"], scale * line["sd"].fillna(0)
        draw_line(axis, line[x], middle, str(name), position)
        if len(line) > 1:
            axis.fill_between(line[x], middle - spread, middle + spread, color=colour, alpha=band, linewidth=0)
        else:  # a band has no width here
            axis.vlines(line[x], middle - spread, middle + spread, color=colour, linewidth=1.2)
    axis.set_ylabel(find_metric(metric).axis)
    logarithmic_ticks(axis, sorted(set(means[x])))
    axis.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    axis.set_axisbelow(True)


def logarithmic_ticks(axis: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis that names exactly these values."""
    from matplotlib.ticker import NullLocator

    axis.set_xscale("log", base=2)
    axis.set_xticks(list(values), [f"{value:g}" for value in values])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(min(values) / 1.3, max(values) * 1.3)


def shared_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend below all panels, with every name once, in as many columns as fit."""
    found = {}
    for axis in axes:
        handles, names = axis.get_legend_handles_labels()
        found.update(dict(zip(names, handles, strict=True)))
    if found:
        longest = LEGEND_INCHES + LETTER_INCHES * max(map(len, found))
        columns = max(1, int(figure.get_figwidth() / longest))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=min(columns, len(found)))


def say_empty(axis: Axes, text: str = EMPTY) -> None:
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color="#777777")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def limits(values: np.ndarray, share: float = 0.06) -> tuple[float, float]:
    """The range of values with some room on both sides."""
    low, high = float(values.min()), float(values.max())
    room = share * (high - low) or 0.5
    return low - room, high + room
