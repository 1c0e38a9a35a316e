"""Does a run that ends below its untrained encoder say so while it trains? Runs with the live probe, then `evaluate`.

    python benchmarks/alarm.py --data DIR --out benchmarks/results/alarm.jsonl      # an hour and a half on two cores
    python benchmarks/alarm.py --smoke --out runs/alarm.jsonl                       # generated images, a minute

Small networks on four real sets, at settings that should work and at settings that destroy features. What the live
probe said is compared with what the labels of held-out samples say afterwards. Run again, it redoes nothing.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console

from icone.api.evaluate import evaluate
from icone.api.pretrain import pretrain
from icone.errors import UndefinedError
from icone.evaluation.live_probe import Trend
from icone.evaluation.verdict import judge
from learning import in_processes, markdown, spread

IMAGES: dict[str, Any] = {"encoder": "test_vit", "size": 64, "lr": 1e-3, "epochs": 30}
SETS: dict[str, dict[str, Any]] = {
    "bloodcells/images": {**IMAGES, "labels": "bloodcells/labels.csv"},
    "breastmnist_128_rebuilt.npz": IMAGES,
    "caltech20": {**IMAGES, "epochs": 10},
    "medmnist:adrenalmnist3d": {"encoder": "resnet10_3d", "width": 0.25, "size": 28, "lr": 1e-4, "epochs": 15},
}
"""Folders and files of --data, and a MedMNIST set in its folder medmnist, with networks for a CPU."""
GENERATED: dict[str, dict[str, Any]] = {"synthetic:cells@32x60": {**IMAGES, "size": 32, "epochs": 6}}


@dataclass(frozen=True)
class Case:
    """A setting that is tried on every set."""

    name: str
    method: str = "icone"
    batch_size: int = 1
    rate: float = 1.0
    """By what the learning rate of the set is multiplied."""
    recipe: str = "icone"
    options: tuple[str, ...] = ()


CASES: tuple[Case, ...] = (
    Case("IConE, B = 1"),
    Case("IConE, B = 1, lr × 10", rate=10),
    Case("IConE, B = 1, center loss", options=("center_weight=10",)),
    Case("as printed, B = 1", recipe="paper"),
    Case("as printed, B = 16", recipe="paper", batch_size=16),
    Case("as printed, anchors frozen, B = 1", recipe="paper", options=("freeze_anchors=true",)),
    Case("SimCLR, B = 4", "simclr", 4),
    Case("DIET, B = 1, lr × 10", "diet", rate=10),
)


def measure(source: str, settings: Mapping[str, Any], data: Path, case: Case, seed: int) -> dict[str, Any]:
    """One run with the live probe as it is by default, half of the samples held out, and its evaluation.

    Or why it is undefined: BatchNorm of a volume network needs more values than one volume has at its last stage.
    """
    torch.set_num_threads(1)
    console = Console(file=io.StringIO())
    what = {"source": source, "case": asdict(case), "seed": seed, "settings": settings}
    chosen = {**settings, "lr": settings["lr"] * case.rate}
    if "labels" in chosen:
        chosen["labels"] = data / chosen["labels"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = pretrain(
                source if ":" in source else str(data / source), data_root=data / "medmnist", test_fraction=0.5,
                method=case.method, options=case.options, batch_size=case.batch_size, recipe=case.recipe, seed=seed,
                device="cpu", out=Path(folder) / "run", console=console, **chosen,
            )  # fmt: skip
        except UndefinedError as error:
            return {**what, "undefined": str(error)}
        measured = [
            {name: row[name] for name in ("epoch", "geometry", "probe") if name in row}
            for row in run.history
            if "geometry" in row
        ]
        result = evaluate(run, device="cpu", console=console)
    numbers = {
        when: {name: value for name, value in result[when].items() if isinstance(value, float)}
        for when in ("untrained", "trained")
    }
    return {
        **what, "live": measured,
        "verdict": result["verdict"]["state"],
        "verdict_without_labels": judge(numbers["trained"], numbers["untrained"]).state,
        "comparison": result["comparison"], **numbers,
    }  # fmt: skip


def alarms(live: Sequence[dict[str, Any]], *, labels: bool) -> list[tuple[int, str]]:
    """The epochs after which the alarm speaks, with what it says; with `labels`, or as it would be without."""
    trend = Trend()
    found: list[tuple[int, str]] = []
    for row in live:
        _, alarm = trend.next(row if labels else {"geometry": row["geometry"]})
        if alarm is not None:
            found.append((row["epoch"] + 1, alarm))
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for every setting: what the alarm said, and what the held-out samples say."""
    lines = []
    for name, source in sorted({(row["case"]["name"], row["source"]) for row in rows}):
        runs = [row for row in rows if (row["case"]["name"], row["source"]) == (name, source)]
        told = [sum(bool(alarms(run["live"], labels=labels)) for run in runs) for labels in (True, False)]
        gains = [[100 * run["comparison"][probe]["difference"] for run in runs] for probe in ("linear_probe", "knn_5")]
        last = [run["live"][-1]["geometry"] for run in runs]
        left = [100 * geometry["rankme"] / geometry["untrained_rankme"] for geometry in last]
        states = sorted({run["verdict"] for run in runs})
        counts = [f"{count} of {len(runs)}" for count in told]
        lines.append([source, name, *counts, *map(spread, [*gains, left]), ", ".join(states)])
    names = ["alarm", "alarm without labels", "probe gains", "kNN-5 gains", "RankMe left, %", "verdict"]
    return markdown(["set", "run", *names], lines)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of the runs with each verdict of `evaluate`, how many were alarmed while they trained."""
    lines = []
    for state in sorted({row["verdict"] for row in rows}):
        runs = [row for row in rows if row["verdict"] == state]
        told = [sum(bool(alarms(run["live"], labels=labels)) for run in runs) for labels in (True, False)]
        lines.append([state, str(len(runs)), *map(str, told)])
    return markdown(["verdict", "runs", "alarmed", "alarmed without labels"], lines)


def main(out: Path, data: Path = Path("data"), seeds: int = 2, workers: int = 2, smoke: bool = False) -> None:
    """Train and measure what is missing, and print the table.

    Args:
        out: file of the runs, one a line.
        data: folder that holds the data.
        seeds: seeds of every setting.
        workers: runs beside each other, with a thread each.
        smoke: two settings on generated images.
    """
    sets, cases = (GENERATED, CASES[:2]) if smoke else (SETS, CASES)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(row["source"], row["case"]["name"], row["seed"]) for row in rows}
    missing = [
        partial(measure, source, settings, data, case, seed)
        for seed in range(seeds)
        for source, settings in sets.items()
        for case in cases
        if (source, case.name, seed) not in done
    ]
    for number, row in enumerate(in_processes(missing, workers), 1):
        rows.append(row)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number} of {len(missing)}: {row['source']}, {row['case']['name']}", flush=True)
    defined = [row for row in rows if "undefined" not in row]
    print(table(defined), summary(defined), sep="\n\n")


if __name__ == "__main__":
    tyro.cli(main)
