"""The look of the paper's figures: one colour and one mark per method, everywhere the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icone.evaluation.metrics import find_metric
from icone.methods import METHODS
from icone.paper.results import mean_over_seeds
from icone.run import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHOD_COLOURS = ("#009E73", "#1A7FC1", "#E69F00", "#CC79A7", "#D55E00", "#7CC7F2", "#B3A100", "#8C8C8C")
"""Of the methods, by their position in the registry."""
MARKERS = "osD^vPX<"
VARIANTS = {"IConE-VCReg": ("#00583F", "p"), "IConE-SIGReg": ("#7AD0B5", "h")}
"""Of variants of a method that are drawn with the methods."""
LEGEND_INCHES, LETTER_INCHES = 0.5, 0.075
"""Width of one entry of a legend without its name, and of a letter of the name."""


def style_of(name: str, position: int = 0) -> tuple[str, str]:
    """Colour and marker: of a method by its title, of a named variant, of anything else by its position.

    A ninth method has the colour of the first with another marker.
    """
    from icone.report.figures import COLOURS

    titles = [method.title for method in METHODS.values()]
    if name in VARIANTS:
        return VARIANTS[name]
    if name not in titles:
        return COLOURS[position % len(COLOURS)], MARKERS[position % len(MARKERS)]
    turn, colour = divmod(titles.index(name), len(METHOD_COLOURS))
    return METHOD_COLOURS[colour], MARKERS[(colour + turn) % len(MARKERS)]


@contextmanager
def panels(rows: int, columns: int, width: float, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of equal panels in the house style, `width` and `height` inches each."""
    import matplotlib.pyplot as plt  # here and below, because `icone paper list` draws nothing

    from icone.report.figures import STYLE

    with plt.rc_context(STYLE):
        size = (width * columns, height * rows)
        figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        plt.close(figure)
        yield figure, list(axes.flat)


def draw_line(axis: Axes, x: pd.Series, y: pd.Series, name: str, position: int) -> None:
    """One method's line; IConE's is bold and above the others."""
    colour, mark = style_of(name, position)
    bold: dict[str, Any] = {"linewidth": 2.2, "zorder": 4} if name == "IConE" else {"linewidth": 1.2, "zorder": 3}
    axis.plot(x, y, color=colour, marker=mark, markersize=4, label=name, **bold)


def draw_curves(axis: Axes, runs: pd.DataFrame, metric: str, x: str = "batch_size", by: str = "method") -> None:
    """Mean over data sets and seeds against `x`, with a band of one standard deviation over seeds."""
    means = mean_over_seeds(runs, [by, x], metric)
    scale = find_metric(metric).scale
    for position, (name, line) in enumerate(means.groupby(by, sort=False)):
        line = line[line["mean"].notna()].sort_values(x)
        if line.empty:
            continue
        colour, _ = style_of(str(name), position)
        middle, spread = scale * line["mean"], scale * line["sd"].fillna(0)
        draw_line(axis, line[x], middle, str(name), position)
        if len(line) > 1:
            axis.fill_between(line[x], middle - spread, middle + spread, color=colour, alpha=0.15, linewidth=0)
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


def say_empty(axis: Axes, text: str = "no finished runs") -> None:
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color="#777777")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PDF and PNG."""
    import matplotlib.pyplot as plt

    from icone.report.figures import STYLE

    written = []
    for suffix in ("pdf", "png"):
        target = folder / f"{name}.{suffix}"
        with replacing(target) as temporary, warnings.catch_warnings(), plt.rc_context(STYLE):
            warnings.filterwarnings("ignore", "Glyph")
            figure.savefig(temporary, format=suffix, dpi=200)
        written.append(target)
    return written


def limits(values: np.ndarray, share: float = 0.06) -> tuple[float, float]:
    """The range of values with some room on both sides."""
    low, high = float(values.min()), float(values.max())
    room = share * (high - low) or 0.5
    return low - room, high + room
