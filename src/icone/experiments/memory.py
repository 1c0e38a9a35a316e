"""Memory and wall clock, from the rows of the benchmark (`benchmarks/memory.py`).

A JSON file with a list of rows (or an object with such a list under "rows"): name, method, N, B, regulariser,
peak_gb, seconds_per_step. `name` says which sweep a row belongs to; rows without it belong to all.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from icone.errors import InputError
from icone.experiments.drawing import logarithmic_ticks, panels, say_empty, shared_legend, style_of
from icone.experiments.grids import TITLES
from icone.experiments.tables import PaperTable, beside_paper

COLUMNS = ("method", "N", "B", "peak_gb", "seconds_per_step")
REGULARISERS = {"variance_covariance": "IConE-VCReg", "vcreg": "IConE-VCReg", "sigreg": "IConE-SIGReg"}
SWEEP = (500, 1000, 2000, 5000)
EPOCHS = 100


def read_measurements(path: Path | None) -> pd.DataFrame:
    """The benchmark's rows with a `title` per method and regulariser; empty where nothing was measured."""
    if path is None:
        return pd.DataFrame(columns=[*COLUMNS, "title"])
    try:
        content: Any = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the measurements {path}: {error}") from error
    rows = pd.DataFrame(content["rows"] if isinstance(content, dict) else content)
    if missing := [name for name in COLUMNS if name not in rows]:
        raise InputError(f"{path} has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    regulariser = rows["regulariser"] if "regulariser" in rows else pd.Series("", index=rows.index)
    titles = [
        REGULARISERS.get(str(kind), TITLES.get(method, method)) if method == "icone" else TITLES.get(method, method)
        for method, kind in zip(rows["method"], regulariser, strict=True)
    ]
    return rows.assign(title=titles)


def memory_table(measured: pd.DataFrame) -> PaperTable:
    """Peak memory at N up to 100,000 beside the paper's."""
    ours = measured.rename(columns={"title": "row", "N": "n", "B": "batch_size", "peak_gb": "ours"})
    ours = ours.assign(sd=math.nan, seeds=1, runs=1, wanted=1, status="done")
    wanted = {"n": (5000, 10_000, 50_000, 100_000), "batch_size": (4, 16, 64)}
    ours = ours[ours["n"].isin(wanted["n"]) & ours["batch_size"].isin(wanted["batch_size"])]
    ours = ours[ours["row"].astype(str).str.startswith("IConE")]
    notes = (
        [] if len(ours) else ["not measured: run benchmarks/memory.py on a GPU and name its file with --measurements"]
    )
    return beside_paper(
        ours, name="memory", title="peak GPU memory (GB)", keys=["n", "batch_size"], printed="memory", notes=notes
    )


def sweep_figure(measured: pd.DataFrame, column: str) -> Figure:
    """Memory or wall clock against the number of samples, a panel per batch size."""
    sizes = sorted(set(measured["B"])) or [1]
    columns = min(4, len(sizes))
    with panels(math.ceil(len(sizes) / columns), columns, 2.5, 2.3) as (figure, axes):
        for axis, size in zip(axes, sizes, strict=False):
            part = measured[measured["B"] == size]
            if part.empty:
                say_empty(axis, "not measured")
                continue
            for i, (name, line) in enumerate(part.groupby("title", sort=False)):
                line = line.sort_values("N")
                steps = EPOCHS * (line["N"] / line["B"]).map(math.ceil)
                y = line["peak_gb"] if column == "peak_gb" else line["seconds_per_step"] * steps / 3600
                colour, mark = style_of(str(name), i)
                axis.plot(line["N"], y, color=colour, marker=mark, markersize=3.5, label=str(name))
            logarithmic_ticks(axis, sorted(set(part["N"])))
            axis.tick_params(axis="x", rotation=45)
            axis.set(title=f"B = {size}", xlabel="N", ylim=(0, None))
            axis.set_ylabel("peak memory (GB)" if column == "peak_gb" else f"hours for {EPOCHS} epochs")
        for axis in axes[len(sizes) :]:
            axis.remove()
        shared_legend(figure, axes[: len(sizes)])
    return figure
