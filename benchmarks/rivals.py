"""Every method on generated volumes, on equal terms: does it learn, and what do small batches do to it?

    python benchmarks/rivals.py --workers 2

One encoder, the same views, optimizer, epochs and probes for all; mean ± standard deviation over seeds. Where a
method is undefined at a batch size, the table says so; the reason is printed below it.
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from icone.errors import InputError
from icone.evaluating import evaluate
from icone.methods import METHODS
from icone.pretraining import pretrain

METRICS = ("linear_probe", "knn_5", "rankme")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared with what."""

    methods: tuple[str, ...] = tuple(METHODS)
    batch_sizes: tuple[int, ...] = (16, 2, 1)
    seeds: int = 3
    source: str = "synthetic:shapes@24x400"
    encoder: str = "resnet10_3d"
    width: float = 0.125
    norm: str = "group"
    epochs: int = 40
    lr: float = 1e-3
    device: str = "auto"
    workers: int = 1
    """Runs at the same time, each in a process with one thread."""
    out: Path | None = None
    """Write the figures of every run to this JSON file."""


@dataclass(frozen=True)
class Outcome:
    """Figures of one run, or why it is undefined."""

    method: str
    batch_size: int
    seed: int
    trained: dict[str, float] = field(default_factory=dict)
    untrained: dict[str, float] = field(default_factory=dict)
    undefined: str = ""


def measure(comparison: Comparison, method: str, batch_size: int, seed: int) -> Outcome:
    """Pretrain and evaluate one combination in a temporary folder."""
    torch.set_num_threads(1)
    console = Console(file=io.StringIO())
    settings = {name: getattr(comparison, name) for name in ("source", "encoder", "width", "norm", "epochs", "lr")}
    options = ("outputs=4096",) if method == "dino" else ()  # 65,536 outputs are meant for millions of images
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        try:
            pretrain(
                **settings, method=method, options=options, batch_size=batch_size, seed=seed, test_fraction=0.4,
                device=comparison.device, out=run, console=console,
            )  # fmt: skip
        except InputError as error:
            return Outcome(method, batch_size, seed, undefined=str(error))
        result = evaluate(run, untrained=True, geometry_instances=0, device=comparison.device, console=console)
    return Outcome(method, batch_size, seed, _figures(result["trained"]), _figures(result["untrained"]))


def compare(comparison: Comparison, console: Console) -> list[Outcome]:
    """All combinations, the large batches first because they are quick."""
    tasks = list(itertools.product(comparison.batch_sizes, comparison.methods, range(comparison.seeds)))
    outcomes = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(comparison.workers, mp_context=spawn) as pool:
        futures = [pool.submit(measure, comparison, method, size, seed) for size, method, seed in tasks]
        for done, future in enumerate(as_completed(futures), 1):
            outcome = future.result()
            outcomes.append(outcome)
            console.print(f"{done}/{len(tasks)} {outcome.method} B={outcome.batch_size}", highlight=False)
    return outcomes


def table(outcomes: Sequence[Outcome], comparison: Comparison) -> Table:
    """Linear probe and kNN-5 (balanced accuracy, %) and RankMe, by method and batch size."""
    title = f"{comparison.source}, {comparison.epochs} epochs, {comparison.seeds} seeds: probe / kNN-5 / RankMe"
    shown = Table("method", *(f"B={size}" for size in comparison.batch_sizes), title=title, title_justify="left")
    untrained = {o.seed: o.untrained for o in outcomes if o.untrained}
    if untrained:
        shown.add_row("untrained", *[_cell(list(untrained.values()))] * len(comparison.batch_sizes))
    for method in comparison.methods:
        cells = []
        for size in comparison.batch_sizes:
            runs = [o for o in outcomes if (o.method, o.batch_size) == (method, size)]
            cells.append("undefined" if runs[0].undefined else _cell([o.trained for o in runs]))
        shown.add_row(method, *cells)
    return shown


def _figures(figures: dict[str, Any]) -> dict[str, float]:
    values = (figures[name] for name in METRICS)
    accuracies = [100 * v["balanced_accuracy"] if isinstance(v, dict) else v for v in values]
    return dict(zip(METRICS, accuracies, strict=True))


def _cell(runs: Sequence[dict[str, float]]) -> str:
    values = [[run[name] for run in runs] for name in METRICS]
    probe, knn, rank = (f"{np.mean(v):.1f}±{np.std(v):.1f}" for v in values)
    return f"{probe} / {knn} / {rank}"


def main(comparison: Comparison) -> None:
    console = Console()
    outcomes = compare(comparison, console)
    console.print(table(outcomes, comparison))
    for reason in sorted({o.undefined for o in outcomes if o.undefined}):
        console.print(f"undefined: {reason}", highlight=False, soft_wrap=True)
    if comparison.out is not None:
        comparison.out.write_text(json.dumps([vars(o) for o in outcomes], indent=1))


if __name__ == "__main__":
    main(tyro.cli(Comparison, description=__doc__))
