"""Memory and wall clock, from the rows of the benchmark (`benchmarks/memory.py`).

JSON files with a list of rows under "rows": method, N, B, regulariser, and peak_gb and seconds_per_step where the
combination is defined and fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from icone.errors import InputError
from icone.methods import METHODS
from icone.paper.drawing import draw_line, logarithmic_ticks, panels, say_empty, shared_legend
from icone.paper.experiments.base import Experiment, Presentation, Scene
from icone.paper.tables import PaperTable, beside_paper

COLUMNS = ("method", "N", "B", "regulariser", "peak_gb", "seconds_per_step")
LITERAL = "the literal matrix"
REGULARISERS = {"variance_covariance": "IConE-VCReg", "sigreg": "IConE-SIGReg", "literal": LITERAL}
SWEEP = (500, 1000, 2000, 5000)
EPOCHS = 100


def read_measurements(paths: Sequence[Path]) -> pd.DataFrame:
    """What the benchmark measured, with a `title` per method and regulariser; of what is there twice, the last."""
    rows = pd.concat([pd.DataFrame(columns=COLUMNS), *map(_rows, paths)]).dropna(subset=["peak_gb"])
    known = {name: method.title for name, method in METHODS.items()}
    titles = [REGULARISERS.get(kind, known.get(m, m)) for m, kind in rows[["method", "regulariser"]].to_numpy()]
    return rows.assign(title=titles).drop_duplicates(["title", "N", "B"], keep="last")


def _rows(path: Path) -> pd.DataFrame:
    try:
        rows = pd.DataFrame(json.loads(path.read_text())["rows"])
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the measurements {path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} has no list of rows: is it written by benchmarks/memory.py?") from error
    if missing := [name for name in COLUMNS if name not in rows]:
        raise InputError(f"{path} has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    return rows


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
    measured = measured[measured["N"].isin(SWEEP) & (measured["title"] != LITERAL)]
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
                draw_line(axis, line["N"], y, str(name), i)
            logarithmic_ticks(axis, sorted(set(part["N"])))
            axis.tick_params(axis="x", rotation=45)
            axis.set(title=f"B = {size}", xlabel="N", ylim=(0, None))
            axis.set_ylabel("peak memory (GB)" if column == "peak_gb" else f"hours for {EPOCHS} epochs")
        for axis in axes[len(sizes) :]:
            axis.remove()
        shared_legend(figure, axes[: len(sizes)])
    return figure


def _present(scene: Scene) -> Presentation:
    """Peak memory and wall clock, from the benchmark."""
    measured = read_measurements(scene.measurements)
    return Presentation(
        [memory_table(measured)],
        {"memory": sweep_figure(measured, "peak_gb"), "wall-clock": sweep_figure(measured, "seconds_per_step")},
    )


MEMORY = Experiment(
    name="memory",
    labels=("fig:supp_gpu_memory_sweep", "fig:supp_wallclock_sweep", "tab:icone_memory_scaling"),
    needs="--measurements FILE",
    present=_present,
)
