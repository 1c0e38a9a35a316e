"""What looking costs: the live probe's share of the training time, and geometry at 50,000 x 512.

    python benchmarks/probe.py

Prints seconds and ratios of this machine; the promises are under 3 % and a few seconds.
"""

from __future__ import annotations

import io
import tempfile
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from icone.api.pretrain import pretrain
from icone.evaluation import geometry

RUNS: dict[str, dict[str, Any]] = {
    "images 64, ResNet-10": {"source": "synthetic:cells@64x120", "encoder": "resnet10t", "epochs": 6},
    "volumes 40, ResNet-10": {
        "source": "synthetic:shapes@40x120",
        "encoder": "resnet10_3d",
        "width": 0.25,
        "epochs": 6,
    },
    "points, MLP": {"source": "synthetic:gaussians", "subset": 500, "epochs": 10},
}


def probe_share(settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds of training and of probing of one run."""
    with tempfile.TemporaryDirectory() as folder:
        run = pretrain(**settings, out=f"{folder}/run", console=Console(file=io.StringIO()))
        rows = run.history
    return sum(row["seconds"] for row in rows), sum(row.get("probe_seconds", 0.0) for row in rows)


def main() -> None:
    console = Console()
    shares = Table("run", "training (s)", "probe (s)", "share (%)", title="live probe")
    for name, settings in RUNS.items():
        training, probing = probe_share(settings)
        shares.add_row(name, f"{training:.1f}", f"{probing:.2f}", f"{100 * probing / training:.2f}")
    console.print(shares)
    x = np.random.default_rng(0).normal(size=(50_000, 512)).astype(np.float32)
    costs = Table("metric", "seconds", title="geometry of 50,000 x 512")
    metrics = (geometry.standardize, geometry.rankme, geometry.effective_rank, geometry.uniformity,
               geometry.mean_cosine, geometry.first_component_share)  # fmt: skip
    for metric in metrics:
        began = time.perf_counter()
        metric(x)
        costs.add_row(metric.__name__, f"{time.perf_counter() - began:.1f}")
    console.print(costs)


if __name__ == "__main__":
    main()
