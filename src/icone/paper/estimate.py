"""How long runs will take: a table of measured step times, corrected by what the runs of the store took.

A run takes `steps × seconds per step + rest`. The table (`step_times.json`) gives the seconds of a step by encoder,
size, batch × views, method and engine. The runs of the store on the same device say by what factor that is wrong: those
with the same encoder, size, method and batch × views, or else the nearest.
"""

from __future__ import annotations

import functools
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple

import pandas as pd

from icone.cuda import COMPILED_STEPS, WORTHWHILE_STEPS
from icone.data.prepare import DEFAULT_SIZE
from icone.encoders.registry import PAPER_ENCODER, encoder_name
from icone.methods import method_class
from icone.paper.listing_table import Estimate
from icone.paper.results import COLUMNS, typed
from icone.paper.spec import MADE_UP, Cell

UNKNOWN_SAMPLES = 1750
"""Samples of a set that nobody has counted: those of the synthetic study."""
CPU = "cpu"
COST_SECONDS = {"eager": 0.9, "captured": 1.8, CPU: 1.0}
"""Of a measurement of time and memory."""


class Work(NamedTuple):
    """What decides how long a run takes on a device."""

    dims: int
    encoder: str
    size: int
    method: str
    batch_views: int
    width: float
    steps: int
    passes: int
    """Passes of a step, with `batch_views` views each: more than one with micro-batches and accumulated batches."""
    together: int
    """Runs that train side by side with it, itself included."""


@functools.cache
def step_times() -> dict[str, Any]:
    """The table of measured step times, with its sources."""
    content: dict[str, Any] = json.loads((resources.files("icone.paper") / "step_times.json").read_text())
    return content


def table_hardware(device: str) -> str:
    """Where the table was measured that an estimate for a device goes by."""
    return str(step_times()["cpu_hardware"]) if device == CPU else f"an {step_times()['hardware']}"


def is_undefined(cell: Cell) -> bool:
    """Whether a run is known not to exist: its method has no loss at this batch size."""
    c = cell.spec.config
    return c.batch_size < method_class(c.method).min_batch_size


def steps_of(cell: Cell) -> int:
    """Optimizer steps of a run, from the number of samples that its labels or its settings tell."""
    c = cell.spec.config
    samples = (cell.labels.get("samples") or c.subset or UNKNOWN_SAMPLES) * (1 - c.test_fraction)
    if c.imbalance:
        samples *= (1 + 1 / c.imbalance) / 2
    return int(c.epochs) * max(1, math.ceil(samples / (c.batch_size * c.accumulate)))


def work_of(cell: Cell, together: int = 1) -> Work:
    """What a run of a grid asks of a device."""
    c, dims = cell.spec.config, int(cell.labels["dims"])
    encoder = encoder_name(c.encoder, dims)
    named = re.search(r"@(\d+)", c.source)  # the edge of a set that has several, as in medmnist:breastmnist@28
    size = c.size or (int(named[1]) if named and dims else DEFAULT_SIZE.get(dims, 1))
    at_once = c.micro_batch or c.batch_size
    return Work(
        dims, encoder, size, c.method, at_once * c.views, c.width, steps_of(cell), c.passes_per_step, together
    )  # fmt: skip


@functools.cache
def table_seconds(work: Work, on_gpu: bool) -> float:
    """Seconds of a step by the table: linear in batch × views and in pixels, times the factor of the method.

    The table does not know that methods whose loss needs the whole batch encode micro-batches twice.
    """
    table = step_times()
    entry, engine = _entry(work, on_gpu)
    times = {int(batch_views): milliseconds for batch_views, milliseconds in entry[engine].items()}
    low, high = min(times), max(times)
    per_view = times[high] / high if low == high else (times[high] - times[low]) / (high - low)
    latency = times[low] - per_view * low
    scale = (work.size / entry["size"]) ** work.dims * work.width
    busy = per_view * work.batch_views * scale
    if on_gpu and work.together > 1:  # what waits for launches overlaps with other runs, what computes does not
        among = table["side_by_side"]
        latency *= 1 - (1 - among["steps"] / among["runs"]) * (work.together - 1) / (among["runs"] - 1)
    return float(work.passes * (latency + busy) * table["methods"].get(work.method, 1.0) / 1000)


def _entry(work: Work, on_gpu: bool) -> tuple[dict[str, Any], str]:
    """The line of an encoder and its engine; of an encoder that is not there, the usual one of its dimension."""
    encoders = step_times()["encoders"]
    engine = _engine(work, on_gpu)
    entry = encoders.get(work.encoder)
    if entry is None or (engine not in entry and work.dims):
        entry = encoders[PAPER_ENCODER[work.dims]]
    return entry, engine if engine in entry else CPU


def _engine(work: Work, on_gpu: bool) -> str:
    """What `icone.cuda.accelerate` would choose."""
    if not on_gpu:
        return CPU
    if work.steps < WORTHWHILE_STEPS:
        return "eager"
    return "compiled" if work.steps * work.passes >= COMPILED_STEPS[work.dims] else "captured"


RESEMBLANCE: tuple[Callable[[Work], tuple[object, ...]], ...] = (
    lambda work: (work.encoder, work.size, work.width, work.method, work.batch_views, work.passes),
    lambda work: (work.encoder, work.size, work.width, work.batch_views, work.passes),
    lambda work: (work.encoder, work.size, work.width),
    lambda work: (work.encoder,),
)
"""In what runs have to agree so that one tells about the other: all, then less and less."""


class Estimator:
    """Seconds of runs on a device, by the table and the finished runs of a store."""

    def __init__(self, results: pd.DataFrame | None, device: str, together: int = 1) -> None:
        self.device, self.on_gpu = device, device != CPU
        self.together = together if self.on_gpu else 1
        runs = _measured_runs(results, device)
        works = [_work_of_row(row) for row in runs.to_dict("records")]
        tabulated = [table_seconds(work, self.on_gpu) for work in works]
        factors = [s / t for s, t in zip(runs["step_seconds"] / runs["processes"], tabulated, strict=True)]
        self.factors = [_medians(map(kind, works), factors) for kind in RESEMBLANCE]
        """By what the table is wrong, for every way of resembling."""
        rest = (runs["seconds"] - runs["step_seconds"] * runs["steps"]) / runs["processes"]
        self.rest = float(rest.clip(lower=0).median()) if len(runs) else None

    def run(self, cell: Cell, seeds: int | None = None) -> tuple[float, bool]:
        """Seconds of a run, and whether runs like it were measured on this device; `seeds`: runs of its shape."""
        if cell.spec.cost:
            return COST_SECONDS[cell.spec.cost.partition(" ")[0]], False
        work = work_of(cell, min(self.together, seeds or self.together))
        factor, known = self._factor(work)
        return work.steps * table_seconds(work, self.on_gpu) * factor + self._rest(work), known

    def total(self, cells: Iterable[Cell]) -> Estimate:
        """Of all runs together: each once, and those that cannot exist not at all."""
        each = self.each(cells)
        return Estimate(sum(s for s, _ in each.values()), sum(known for _, known in each.values()), len(each))

    def each(self, cells: Iterable[Cell]) -> dict[str, tuple[float, bool]]:
        """Of every run by its key, without those that cannot exist; only runs of one shape train side by side."""
        found = {cell.spec.key: cell for cell in cells if not is_undefined(cell)}
        shapes = Counter(cell.spec.shape for cell in found.values())
        return {key: self.run(cell, shapes[cell.spec.shape]) for key, cell in found.items()}

    def _factor(self, work: Work) -> tuple[float, bool]:
        """By what the table is wrong: the median over the runs that resemble this one most; whether their sizes do."""
        for level, (kind, medians) in enumerate(zip(RESEMBLANCE, self.factors, strict=True)):
            if kind(work) in medians:
                return medians[kind(work)], level < len(RESEMBLANCE) - 1
        return 1.0, False

    def _rest(self, work: Work) -> float:
        """Seconds besides the steps: the start, reading and measuring; runs side by side share them."""
        if self.rest is not None:
            return self.rest
        table = step_times()
        start = float(table["start_seconds"][_engine(work, self.on_gpu)])
        return start / work.together + float(table["measure_seconds"]["gpu" if self.on_gpu else CPU])


def _medians(keys: Iterable[tuple[object, ...]], values: Iterable[float]) -> dict[tuple[object, ...], float]:
    groups: dict[tuple[object, ...], list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        groups.setdefault(key, []).append(value)
    return {key: statistics.median(group) for key, group in groups.items()}


def _measured_runs(results: pd.DataFrame | None, device: str) -> pd.DataFrame:
    """Finished runs on a device of which the time of a step is known."""
    if results is None:
        return typed(pd.DataFrame(columns=list(COLUMNS)))
    runs = results[(results["status"] == "done") & (results["device"] == device)].drop_duplicates("run")
    runs = runs[~runs["source"].astype(str).str.startswith(MADE_UP)]
    runs = runs[(runs["steps"] > 0) & (runs["step_seconds"] > 0) & runs["sample"].notna()]
    return runs.astype({"encoder": str, "sample": str, "method": str, "steps": int, "processes": int})


def _work_of_row(row: Mapping[Any, Any]) -> Work:
    """What a finished run asked of the device; its sample is written as channels × size."""
    edges = [int(edge) for edge in row["sample"].split("x")][1:]
    dims = len(edges)
    encoder = encoder_name(row["encoder"], dims)
    size = round(math.prod(edges) ** (1 / dims)) if dims else 1
    at_once = row["batch_size"] if pd.isna(row["micro_batch"]) else int(row["micro_batch"])
    passes = -(-row["batch_size"] // at_once)
    work = dims, encoder, size, row["method"], at_once * row["views"], row["width"], row["steps"], passes
    return Work(*work, row["together"])
