"""Peak memory and time of a step over dataset and batch sizes: the paper's memory table, and its two sweeps.

    python benchmarks/memory.py table --out benchmarks/results/memory-table.json
    python benchmarks/memory.py sweep --out benchmarks/results/memory-sweep.json

`table`: IConE with its three diversity terms, and with the literal N×N matrix, N = 5k … 100k. `sweep`: every
self-supervised method, N = 500 … 5k, B = 1 … 64. ViT-S/16 at 224², two views, one GPU. Steps run eagerly, so that one
combination takes seconds; the samples themselves are left out, because all methods hold the same ones.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from icone.cuda import free_gpu_memory
from icone.errors import InputError
from icone.training.context import RunContext
from icone.training.engine import EagerEngine
from step import Case, RandomSamples, build

STEPS = 3
DIVERSITY = ("orthogonality", "variance_covariance", "sigreg", "literal")
METHODS = ("icone", "simclr", "moco", "swav", "byol", "vicreg", "dino", "diet")


def literal(table: Tensor) -> Tensor:
    """The diversity term as one would write it down, with the whole matrix."""
    unit = F.normalize(table, dim=1)
    diagonal = torch.eye(len(table), dtype=torch.bool, device=table.device)
    return (unit @ unit.T).masked_fill(diagonal, 0).relu().square().sum() / (len(table) * (len(table) - 1))


def measure(instances: int, batch: int, method: str, diversity: str) -> dict[str, Any]:
    """Peak gigabytes and seconds of a step; the reason where the combination is undefined or does not fit."""
    device = torch.device("cuda")
    row: dict[str, Any] = {"method": method, "N": instances, "B": batch, "regulariser": diversity}
    case = Case("vit_small_patch16", 2, 224, instances, batch)
    named = diversity not in ("", "literal")
    free_gpu_memory()
    torch.cuda.reset_peak_memory_stats()
    try:
        options = (f"diversity={diversity}",) if named else ()
        step, loader = build(case, device, RandomSamples(case, one_on=device), method=method, options=options)
        if diversity == "literal":
            objective: Any = step.method.objective
            objective.diversity = literal
        engine, context = EagerEngine(step, loader), RunContext(device, tf32=True)
        with context.active():
            engine((batch,))
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(STEPS):
                engine((batch,))
            torch.cuda.synchronize()
        row["seconds_per_step"] = (time.perf_counter() - began) / STEPS
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    except torch.OutOfMemoryError:
        row["reason"] = "out of memory"
    except InputError as error:
        row["reason"] = str(error)
    return row


def combinations(what: str) -> Iterator[tuple[int, int, str, str]]:
    if what == "table":
        for n in (5_000, 10_000, 50_000, 100_000):
            for b in (4, 16, 64):
                yield from ((n, b, "icone", diversity) for diversity in DIVERSITY)
    else:
        for n in (500, 1_000, 2_000, 5_000):
            for b in (1, 2, 4, 8, 16, 32, 64):
                yield from ((n, b, method, "") for method in METHODS)
                yield from ((n, b, "icone", diversity) for diversity in ("variance_covariance", "sigreg"))


def main(what: tyro.conf.Positional[Literal["table", "sweep"]], out: Path | None = None) -> None:
    """Measure all combinations and print them.

    Args:
        what: the table or the sweep.
        out: file for the figures, as JSON. What it has already, measured with the same hardware and versions on the
            same day, is not measured again, so that a run cut short can be continued.
    """
    if not torch.cuda.is_available():
        raise SystemExit("memory on a GPU can be measured on a GPU only")
    about = {
        "name": f"memory-{what}",
        "date": date.today().isoformat(),
        "hardware": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "engine": "eager",
    }
    earlier = json.loads(out.read_text()) if out is not None and out.exists() else {}
    kept = earlier["rows"] if about.items() <= earlier.items() else []
    measured = {(row["N"], row["B"], row["method"], row["regulariser"]): row for row in kept}
    rows: list[dict[str, Any]] = []
    for instances, batch, method, diversity in combinations(what):
        row = measured.get((instances, batch, method, diversity)) or measure(instances, batch, method, diversity)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if out is not None:
            rest = [other for other in kept if other not in rows]
            out.write_text(json.dumps({**about, "rows": rows + rest}, indent=1) + "\n")
    table = Table(title="peak GB / milliseconds of a step")
    for column in ("method", "diversity", "N", "B", "peak GB", "ms"):
        table.add_column(column, justify="right")
    for row in rows:
        figures = (
            [f"{row['peak_gb']:.2f}", f"{1000 * row['seconds_per_step']:.1f}"]
            if "peak_gb" in row
            else [row["reason"], "–"]
        )
        table.add_row(row["method"], row["regulariser"], f"{row['N']:,}", str(row["B"]), *figures)
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
