"""Which learning rate, layer decay and warm-up suit an encoder that starts from weights?

    python benchmarks/continued.py --data DATA --work /tmp/continued --out continued.jsonl --workers 8 --seconds 290
    python benchmarks/continued.py --out continued.jsonl --table            # the Markdown tables of what is there
    python benchmarks/continued.py --data DATA --work /tmp/trial --out trial.jsonl --smoke    # seconds per job on a CPU

An encoder is pretrained with IConE on one set, and goes on with IConE on another. The rows differ in how it goes on:
one of the three defaults of `icone.recipe` (`CONTINUED_LR`, `LAYER_DECAY`, `WARMUP`) differs at a time, and in the last
row all of them. The scores are balanced accuracies in percent of the linear probe and of kNN-5, on samples that no
training saw. Other rows are the weights as they are, the same training from random weights, and random weights as they
are. Where nothing was trained, BatchNorm has the statistics of the set.

This was written before anything was measured. The decision is made on the first two sets alone, and the last two
confirm it:

- decide: Caltech-101 (10 classes) → blood cells; hippocampus volumes → AdrenalMNIST3D (28³);
- confirm: Caltech-101 (10 classes) → its 10 other classes; PneumoniaMNIST → BreastMNIST (28 pixels).

The score of a run is the mean of linear probe and kNN-5. Runs are compared in pairs of the same set and seed. A value
replaces a default if its mean difference on the deciding sets is above two standard errors and its mean difference on
the confirming sets is not negative; of several such values the one with the largest difference. Else the default stays.

DATA holds `medmnist/*.npz` (adrenalmnist3d, pneumoniamnist, breastmnist), `bloodcells/labels.csv` with `images/`,
`caltech20/CLASS/*.jpg`, and `hippocampus/` with volumes of any format that can be read. What was measured before is not
repeated, and what was cut off is resumed. No run is compiled: that begins at 5,000 steps on volumes, 20,000 on images.
"""

from __future__ import annotations

import io
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import tyro
from rich.console import Console

import icone
from finetuning import labelled_files, write_parts, write_table
from icone.evaluation.metrics import find_metric, metric_value
from icone.recipe import CONTINUED_LR, LAYER_DECAY, WARMUP, ContinuedSettings
from icone.run import Run
from jobs import Limits, Row, append, finished_jobs, read
from learning import markdown, spread

IMAGES: Row = {"encoder": "resnet18", "size": 64}
SMALL_IMAGES: Row = {"encoder": "resnet18", "size": 28}
VOLUMES: Row = {"encoder": "resnet18_3d", "size": 28}
FIRST: dict[str, Row] = {
    "caltech": {**IMAGES, "epochs": 100},
    "hippocampus": {**VOLUMES, "epochs": 200, "intensity": "sample"},
    "pneumonia": {**SMALL_IMAGES, "epochs": 10},
}
"""What an encoder is pretrained on: 3,700, 800 and 3,000 steps of 16 samples."""


@dataclass(frozen=True)
class Set:
    """What an encoder goes on with."""

    title: str
    first: str
    """What it was pretrained on, in `FIRST`."""
    settings: Row


SETS = {
    "blood": Set("blood cells", "caltech", {**IMAGES, "epochs": 60}),
    "adrenal": Set("AdrenalMNIST3D (28³)", "hippocampus", {**VOLUMES, "epochs": 8}),
    "caltech_others": Set("Caltech-101, other classes", "caltech", {**IMAGES, "epochs": 40}),
    "breast": Set("BreastMNIST", "pneumonia", {**SMALL_IMAGES, "epochs": 25}),
}
"""600 to 900 steps each."""
PARTS = {"decide": ("blood", "adrenal"), "confirm": ("caltech_others", "breast")}
TEST_FRACTION = 0.4
"""Of blood cells and Caltech; the two others have an official test split."""
METRICS = ("linear_probe", "knn_5")

DEFAULT = ContinuedSettings(CONTINUED_LR, LAYER_DECAY, WARMUP)
GRID = {
    "default": DEFAULT,
    "learning rate × 0.1": DEFAULT._replace(lr_scale=0.1),
    "learning rate × 0.3": DEFAULT._replace(lr_scale=0.3),
    "learning rate × 1": DEFAULT._replace(lr_scale=1.0),
    "layer decay 1": DEFAULT._replace(layer_decay=1.0),
    "no warm-up": DEFAULT._replace(warmup=0.0),
    "warm-up 0.1": DEFAULT._replace(warmup=0.1),
    "like random weights": ContinuedSettings(1.0, 1.0, 0.0),
}
AS_THEY_ARE, RANDOM, UNTRAINED = "weights as they are", "from random weights", "random weights as they are"
BEFORE = {"default": AS_THEY_ARE, RANDOM: UNTRAINED}
"""Rows whose encoder is measured before training too, and what that is called."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured, and where."""

    out: Path
    """JSON lines: a measurement each. What it holds already is not measured again."""
    data: Path = Path("data")
    work: Path = Path("continued-runs")
    """Folder of the runs, which an interrupted measurement goes on with."""
    sets: tuple[str, ...] = tuple(SETS)
    rows: tuple[str, ...] = (*GRID, RANDOM)
    seeds: int = 3
    table: bool = False
    """Print the tables of --out, and measure nothing."""
    smoke: bool = False
    """A trial: small networks, one epoch, 64 samples."""
    workers: int = 4
    """Processes side by side."""
    threads: int = 1
    """Threads of each."""
    seconds: float = 1e9
    """Begin nothing after this time, and cut off what still runs."""
    device: str = "auto"


@dataclass(frozen=True)
class Job:
    """A pretraining on the first set, or with a row of the table one that goes on with the second."""

    data: str
    seed: int
    row: str | None = None


def source_of(name: str, options: Options) -> Path:
    """The training samples of a set: a table that `write_tables` made, or a file of the data."""
    files = {
        "hippocampus": "hippocampus",
        "adrenal": "medmnist/adrenalmnist3d.npz",
        "pneumonia": "medmnist/pneumoniamnist.npz",
        "breast": "medmnist/breastmnist.npz",
    }
    return options.data / files[name] if name in files else options.work.resolve() / f"{name}-train.csv"


def write_tables(options: Options) -> None:
    """The tables of blood cells and of both halves of Caltech: every other class in alphabetical order."""
    caltech = labelled_files("caltech", options.data)
    halves = sorted({label for _, label in caltech})[::2]
    write_table(options.work / "caltech-train.csv", [one for one in caltech if one[1] in halves])
    write_parts("caltech_others", [one for one in caltech if one[1] not in halves], options.work, TEST_FRACTION)
    write_parts("blood", labelled_files("blood", options.data), options.work, TEST_FRACTION)


def train(folder: Path, source: Path, settings: Row, seed: int, options: Options) -> None:
    """Pretrain where that is not done; an interrupted run goes on."""
    run = Run(folder)
    if run.exists() and run.finished:
        return
    if options.smoke:
        small = {"width": 0.125} if settings["encoder"].endswith("_3d") else {"encoder": "test_resnet", "size": 32}
        settings = {**settings, **small, "epochs": 1, "subset": 48 if "hippocampus" in source.name else 64}
    icone.pretrain(
        source, **settings, batch_size=16, seed=seed, probe_every=0, device=options.device, out=folder,
        resume=run.exists(), console=Console(file=io.StringIO()),
    )  # fmt: skip


def work(job: Job, options: Options) -> list[Row]:
    """One job, in a process of its own."""
    torch.set_num_threads(options.threads)
    if job.row is None:
        train(first_run(job, options), source_of(job.data, options), FIRST[job.data], job.seed, options)
        return []
    began = time.monotonic()
    folder = options.work / f"{job.data}-{job.seed}-{job.row}".replace(" ", "-")
    settings = dict(SETS[job.data].settings)
    if job.row in GRID:
        continued = GRID[job.row]
        settings |= {"layer_decay": continued.layer_decay, "warmup": continued.warmup}
        settings["weights"] = str(first_run(Job(SETS[job.data].first, job.seed), options))
        with patch("icone.recipe.CONTINUED_LR", continued.lr_scale):
            train(folder, source_of(job.data, options), settings, job.seed, options)
    else:
        train(folder, source_of(job.data, options), settings, job.seed, options)
    trained = time.monotonic() - began
    official = job.data in ("adrenal", "breast")
    test: Row = {"official_test": True} if official else {"test": options.work.resolve() / f"{job.data}-test.csv"}
    found = icone.evaluate(
        folder, **test, untrained=job.row in BEFORE, geometry_instances=0, device=options.device,
        console=Console(file=io.StringIO()),
    )  # fmt: skip
    about = {"data": job.data, "seed": job.seed, "train_seconds": trained, "seconds": time.monotonic() - began}
    rows = [{**about, "row": job.row, **scores(found["trained"])}]
    if job.row in BEFORE:
        rows.append({**about, "row": BEFORE[job.row], **scores(found["untrained"])})
    return rows


def first_run(job: Job, options: Options) -> Path:
    return options.work / f"first-{job.data}-{job.seed}"


def scores(measured: dict[str, Any]) -> dict[str, float]:
    """Both scores in percent, and `score`, their mean."""
    found = {name: 100.0 * (metric_value(measured, find_metric(name)) or math.nan) for name in METRICS}
    return {**found, "score": float(np.mean(list(found.values())))}


def measure(options: Options, console: Console) -> None:
    """Do what is missing, `options.workers` jobs at a time; what starts from weights begins when these are there."""
    done = {Job(row["data"], row["seed"], row["row"]) for row in read(options.out)}
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "blood-test.csv").exists():  # written last
        write_tables(options)
    missing = [
        job for data, seed, row in itertools.product(options.sets, range(options.seeds), options.rows)
        if (job := Job(data, seed, row)) not in done
    ]  # fmt: skip

    def follow(job: Job) -> list[Job]:
        fits = {name for name, one in SETS.items() if one.first == job.data} if job.row is None else set()
        return [one for one in missing if one.data in fits and one.seed == job.seed and one.row in GRID]

    needed = [Job(SETS[one.data].first, one.seed) for one in missing if one.row in GRID]
    first = [*dict.fromkeys(needed), *(one for one in missing if one.row not in GRID)]
    limits = Limits(options.workers, options.seconds)
    for _, rows in finished_jobs(work, first, options, limits, console, follow):
        append(options.out, rows)


def table(rows: Sequence[Row], metric: str) -> str:
    """Mean ± standard deviation over seeds of every set and row, in Markdown."""
    lines = []
    for name in (UNTRAINED, RANDOM, AS_THEY_ARE, *GRID):
        found = [[row[metric] for row in rows if (row["data"], row["row"]) == (data, name)] for data in SETS]
        cells = [spread(values) if values else "–" for values in found]
        lines.append([name, *cells, str(max(map(len, found)))])
    title = find_metric(metric).title
    return markdown([f"{title} (%)", *(one.title for one in SETS.values()), "seeds"], lines) + "\n"


def differences(rows: Sequence[Row]) -> str:
    """How much every row is above the default, in pairs of the same set and seed: mean ± standard error."""
    usual = {(row["data"], row["seed"]): row["score"] for row in rows if row["row"] == "default"}
    lines = []
    for name in (UNTRAINED, RANDOM, AS_THEY_ARE, *(name for name in GRID if name != "default")):
        cells = []
        for sets in PARTS.values():
            found = [
                row["score"] - usual[row["data"], row["seed"]] for row in rows
                if row["row"] == name and row["data"] in sets and (row["data"], row["seed"]) in usual
            ]  # fmt: skip
            error = f"±{np.std(found, ddof=1) / math.sqrt(len(found)):.2f}" if len(found) > 1 else ""
            cells.append(f"{np.mean(found):+.2f}{error} ({len(found)})" if found else "–")
        lines.append([name, *cells])
    header = [f"mean of both scores, less that of the default: {part} (pairs)" for part in PARTS]
    return markdown(["", *header], lines) + "\n"


def main(options: Options) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if not options.table:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        measure(options, console)
    rows = read(options.out)
    console.print("\n".join([*(table(rows, metric) for metric in METRICS), differences(rows)]), markup=False)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
