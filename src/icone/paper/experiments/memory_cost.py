"""Memory and wall clock of a step over dataset and batch sizes: the paper's two sweeps and its table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
import torch

from icone.config import PretrainConfig
from icone.methods import method_class, option_texts
from icone.paper.cost import LITERAL
from icone.paper.drawing import draw_line, logarithmic_ticks, panels, say_empty, shared_legend
from icone.paper.experiments.base import NOT_SHOWN, Experiment, Presentation, Scene
from icone.paper.grids import chosen_methods, given
from icone.paper.options import Options
from icone.paper.spec import MADE_UP, Cell, RunSpec
from icone.paper.tables import PaperTable, beside_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEEP_N, TABLE_N = (500, 1000, 2000, 5000), (5000, 10_000, 50_000, 100_000)
SWEEP_B, TABLE_B = (1, 4, 16, 64), (4, 16, 64)
FORMS: dict[str, tuple[str, str]] = {
    "IConE": ("orthogonality", ""),
    "IConE-VCReg": ("variance_covariance", ""),
    "IConE-SIGReg": ("sigreg", ""),
    "IConE, literal N × N": ("orthogonality", LITERAL),
}
"""Rows of the paper's table, and its first as one would write it down: diversity term and form."""
CAPTURED = {(500, 1), (5000, 1), (5000, 4), (5000, 64), (100_000, 4), (100_000, 64)}
"""N and B at which steps are captured too: capturing takes longer than the steps that are measured."""
EPOCHS = 100
ON_CPU = "on a CPU: bytes of the tensors that a step must hold, because a CPU has no counter of peak memory"
NEEDS_GPU = "needs a GPU"
SHORT = {"captured": ", captured", "cpu": ", CPU"}


def _grid(options: Options) -> list[Cell]:
    """Eager steps of all methods and forms; captured ones at the ends of the sweep and of the table.

    On a machine without a GPU, and in miniature, the same on a CPU; the miniature fills the printed rows.
    """
    on_cpu = options.smoke or not torch.cuda.is_available()
    cells = {} if options.smoke else {c.spec.key: c for kind in ("eager", "captured") for c in _cells(options, kind)}
    return list((cells | ({c.spec.key: c for c in _cells(options, "cpu")} if on_cpu else {})).values())


def _cells(options: Options, kind: str) -> Iterator[Cell]:
    for title, method, extra, form, n, b in _combinations(options):
        if kind == "captured" and (n, b) not in CAPTURED:
            continue
        small = option_texts(method_class(method).small_options) if options.smoke else ()
        config = PretrainConfig(
            source=f"{MADE_UP}samples",
            subset=n,
            batch_size=b,
            method=method,
            options=(*small, *extra),
            encoder="test_vit" if options.smoke else options.encoder,
            size=given(options.size, 32 if options.smoke else 224),
            epochs=EPOCHS,
            recipe=options.recipe,
        )
        suffix = "" if options.smoke else SHORT.get(kind, "")
        labels = {
            "dataset": "made-up samples", "dims": 2, "method": title + suffix, "form": title, "kind": kind,
            "n": n, "batch_size": b, "seed": 0,
        }  # fmt: skip
        yield Cell(RunSpec(config=config, cost=f"{kind} {form}".strip()), labels)


def _combinations(options: Options) -> Iterator[tuple[str, str, tuple[str, ...], str, int, int]]:
    """Title, method, options, form, N and B of every measurement."""
    sweep_n, table_n = ((64, 256), TABLE_N[:2]) if options.smoke else (SWEEP_N, TABLE_N)
    sweep_b = options.batch_sizes or ((1, 8) if options.smoke else SWEEP_B)
    methods = chosen_methods(options)
    for title, (diversity, form) in FORMS.items() if "icone" in methods else ():
        extra = (f"diversity={diversity}",)
        table = [(n, b) for n in table_n for b in TABLE_B]
        pairs = [(n, b) for n in sweep_n for b in sweep_b] + (table[:1] if options.smoke and form else table)
        yield from ((title, "icone", extra, form, n, b) for n, b in dict.fromkeys(pairs))
    for method in methods:
        kind = method_class(method)
        if method == "icone":
            continue
        grows = bool(kind.per_instance) or method == "diet"  # others hold nothing that grows with N
        for n in sweep_n if grows else (sweep_n[0], sweep_n[-1]):
            yield from ((kind.title, method, (), "", n, b) for b in sweep_b if b >= kind.min_batch_size)


def memory_table(runs: pd.DataFrame) -> PaperTable:
    """Peak memory at N up to 100,000 beside the paper's; in miniature up to 10,000, because the rest takes a GPU."""
    runs = _with_memory(runs)
    runs = runs[runs["n"].isin(TABLE_N) & runs["batch_size"].isin(TABLE_B) & runs["form"].isin(FORMS)]
    notes = [ON_CPU] if (runs["kind"] == "cpu").any() else []
    keys = ["n", "batch_size"]
    table = _table(runs, "memory_gb", "memory", "peak memory of a step (GB)", keys, "memory", notes)
    on_cpu = runs[runs["kind"] == "cpu"]
    return _naming_what_needs_a_gpu(table, set(zip(on_cpu["method"], on_cpu["n"], on_cpu["batch_size"], strict=True)))


def _naming_what_needs_a_gpu(table: PaperTable, on_cpu: set[tuple[str, int, int]]) -> PaperTable:
    """The table, with the cells named that no run on a CPU will fill; `on_cpu` are those that one will."""
    values = table.values.copy()
    cells = zip(values["row"], values["n"], values["batch_size"], strict=True)
    beyond = pd.Series([cell not in on_cpu for cell in cells], index=values.index)
    absent = (values["status"] == "missing") & beyond
    values.loc[absent, "status"] = NEEDS_GPU
    names = [
        f"{row} at N = {_listed(part['n'])}, B = {_listed(part['batch_size'])}"
        for row, part in values[absent].groupby("row", sort=False)
    ]
    notes = [f"{NEEDS_GPU}: {'; '.join(names)}"] if names else []
    return dataclasses.replace(table, values=values, notes=[*table.notes, *notes])


def _listed(values: pd.Series) -> str:
    return ", ".join(map(str, dict.fromkeys(values)))


def time_table(runs: pd.DataFrame) -> PaperTable:
    """Milliseconds of a step: what the diversity loss adds as N grows, literal and ours."""
    size = 4 if (runs["batch_size"] == 4).any() else int(runs["batch_size"].max())
    part = runs[(runs["batch_size"] == size) & runs["form"].isin(FORMS)]
    part = part.assign(milliseconds=1000 * part["seconds_per_step"] if "seconds_per_step" in part else math.nan)
    return _table(part, "milliseconds", "step-time", f"milliseconds of a step, B = {size}", ["n"], None, [], NOT_SHOWN)


def _table(
    runs: pd.DataFrame, column: str, name: str, title: str, keys: list[str], printed: str | None, notes: list[str],
    absent: str = "",
) -> PaperTable:  # fmt: skip
    ours = runs.rename(columns={"method": "row", column: "ours"}).sort_values("n", kind="stable")
    if "out_of_memory" in ours:
        ours.loc[ours["out_of_memory"] == 1, "status"] = "out of memory"
    ours = ours.assign(sd=math.nan, seeds=1, runs=1, wanted=1)[
        ["row", *keys, "ours", "sd", "seeds", "runs", "wanted", "status"]
    ]
    devices = ", ".join(dict.fromkeys(runs["device"].dropna().astype(str)))
    notes = [*notes, f"measured on {devices}"] if devices else notes
    return beside_paper(ours, name=name, title=title, keys=keys, printed=printed, notes=notes, absent=absent)


def _with_memory(runs: pd.DataFrame) -> pd.DataFrame:
    """`memory_gb`: the peak on a GPU, the bytes of the tensors on a CPU."""
    none = pd.Series(math.nan, index=runs.index)
    peak, tensors = runs.get("step_peak_gb", none), runs.get("tensor_gb", none)
    return runs.assign(memory_gb=peak.fillna(tensors))


def sweep_figure(runs: pd.DataFrame, column: str) -> Figure:
    """Memory or wall clock against the number of samples, a panel per batch size; eager steps, as the paper's."""
    kinds = [kind for kind in ("eager", "cpu") if (runs["kind"] == kind).any()][:1]
    runs = _with_memory(runs)
    runs = runs[runs["kind"].isin(kinds)]
    runs = runs[runs["n"] <= (5000 if (runs["n"] >= 500).any() and (runs["n"] == 5000).any() else runs["n"].max())]
    sizes = sorted(set(runs["batch_size"])) or [1]
    columns = min(4, len(sizes))
    with panels(math.ceil(len(sizes) / columns), columns, 2.5, 2.3) as (figure, axes):
        for axis, size in zip(axes, sizes, strict=False):
            part = runs[runs["batch_size"] == size]
            if column not in part or part[column].isna().all():
                say_empty(axis, "not measured")
                continue
            for i, (name, line) in enumerate(part.dropna(subset=[column]).groupby("form", sort=False)):
                line = line.sort_values("n")
                steps = EPOCHS * (line["n"] / line["batch_size"]).map(math.ceil)
                y = line[column] if column == "memory_gb" else line[column] * steps / 3600
                draw_line(axis, line["n"], y, str(name), i)
            logarithmic_ticks(axis, sorted(set(part["n"])))
            axis.tick_params(axis="x", rotation=45)
            axis.set(title=f"B = {size}", xlabel="N", ylim=(0, None))
            axis.set_ylabel("memory (GB)" if column == "memory_gb" else f"hours for {EPOCHS} epochs")
        for axis in axes[len(sizes) :]:
            axis.remove()
        shared_legend(figure, axes[: len(sizes)])
    return figure


def growth_figure(runs: pd.DataFrame) -> Figure:
    """What the diversity loss costs as N grows: memory and milliseconds of a step, literal and ours."""
    runs = _with_memory(runs[runs["form"].isin(FORMS)])
    runs = runs[runs["batch_size"] == (4 if (runs["batch_size"] == 4).any() else runs["batch_size"].max())]
    shown = {"memory_gb": ("memory (GB)", 1.0), "seconds_per_step": ("milliseconds of a step", 1000.0)}
    with panels(1, 2, 4.0, 3.0) as (figure, axes):
        for axis, (column, (label, scale)) in zip(axes, shown.items(), strict=True):
            if column not in runs or runs[column].isna().all():
                say_empty(axis, "not measured")
                continue
            for i, (name, line) in enumerate(runs.dropna(subset=[column]).groupby("method", sort=False)):
                line = line.sort_values("n")
                draw_line(axis, line["n"], scale * line[column], str(name), i)
            axis.set(xscale="log", yscale="log", xlabel="N", ylabel=label)
        shared_legend(figure, axes)
    return figure


def _present(scene: Scene) -> Presentation:
    """Peak memory and wall clock, of the kinds of steps that were measured: a store may be shown on another machine."""
    measured = scene.runs["kind"].isin(scene.runs["kind"][scene.runs["status"] != "missing"])
    runs = scene.runs[measured] if measured.any() else scene.runs
    return Presentation(
        [memory_table(runs), time_table(runs)],
        {
            "memory": sweep_figure(runs, "memory_gb"),
            "wall-clock": sweep_figure(runs, "seconds_per_step"),
            "growth": growth_figure(runs),
        },
    )


MEMORY = Experiment(
    name="memory",
    labels=("fig:supp_gpu_memory_sweep", "fig:supp_wallclock_sweep", "tab:icone_memory_scaling"),
    needs="a GPU",
    grid=_grid,
    present=_present,
)
