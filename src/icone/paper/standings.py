"""One setting against all others on several sets: a table, and a picture of its differences with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from icone.evaluation.metrics import find_metric
from icone.paper.paired import PairedDifference, paired_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Setting = tuple[str, int]
"""The title of a method, and its batch size."""


@dataclass(frozen=True)
class Standing:
    """One setting on one set, and by how much the reference is ahead of it."""

    data: str
    setting: Setting
    runs: pd.DataFrame
    ahead: Mapping[str, PairedDifference]
    """By metric; empty for the reference itself."""


def standings(sets: Mapping[str, pd.DataFrame], reference: Setting, metrics: Sequence[str]) -> list[Standing]:
    """Every setting of every set, those at small batches first; each set has the reference."""
    found = []
    for data, runs in sets.items():
        done = runs[runs["status"] == "done"]
        settings: dict[Setting, pd.DataFrame] = {
            (method, size): done[(done["method"] == method) & (done["batch_size"] == size)]
            for method, size in dict.fromkeys(zip(done["method"], done["batch_size"], strict=True))
        }
        own = settings.pop(reference)
        found.append(Standing(data, reference, own, {}))
        for setting in sorted(settings, key=lambda each: (each[1], each[0] != reference[0], each[0])):
            part = settings[setting]
            ahead = {metric: paired_difference(own, part, metric) for metric in metrics}
            found.append(Standing(data, setting, part, ahead))
    return found


def relative_times(rows: Sequence[Mapping[str, Any]], reference: Setting) -> dict[tuple[str, Setting], float]:
    """GPU time of a sample as a multiple of the reference's, by network and setting.

    `rows` are those of `benchmarks/method_times.py`, which name methods as `icone methods` does.
    """
    from icone.methods import method_class

    times: dict[tuple[str, Setting], float] = {}
    for row in (row for row in rows if "sample_ms" in row):  # a method may be undefined
        network, title = row["network"].partition(",")[0], method_class(row["method"]).title
        times[network, (title, row["batch_size"])] = row["sample_ms"]
    return {(network, setting): time / times[network, reference] for (network, setting), time in times.items()}


def standings_figure(found: Sequence[Standing], metrics: Sequence[str], reference: Setting) -> Figure:
    """By how many points the reference is ahead of every other setting, with 95 % intervals; a panel per metric."""
    from icone.paper.drawing import panels, style_of

    shown = [one for one in found if one.ahead]
    titles = dict.fromkeys(one.data for one in shown)
    with panels(1, len(metrics), 3.6, 0.7 + 0.24 * (len(shown) + len(titles))) as (figure, axes):
        for number, (axis, metric) in enumerate(zip(axes, metrics, strict=True)):
            place, names = 0.0, {}
            for data in titles:
                names[place] = data
                for one in (each for each in shown if each.data == data):
                    place -= 1
                    names[place] = f"{one.setting[0]}, B = {one.setting[1]}"
                    difference, colour = one.ahead[metric], style_of(one.setting[0]).colour
                    bounds = [100 * difference.low, 100 * difference.high]
                    axis.plot(bounds, [place, place], color=colour, linewidth=1.6 if difference.sure else 0.9)
                    axis.plot(100 * difference.value, place, "o", color=colour, markersize=4)
                place -= 1
            axis.axvline(0, color="#888888", linewidth=0.8)
            axis.set_yticks(list(names), list(names.values()) if number == 0 else [""] * len(names))
            axis.tick_params(axis="y", length=0)
            for label in (each for each in axis.get_yticklabels() if each.get_text() in titles):
                label.set_fontweight("bold")
            axis.set_title(find_metric(metric).title)
            axis.set_xlabel(f"points by which {reference[0]} at B = {reference[1]} is ahead")
    return figure
