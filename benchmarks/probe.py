"""What looking costs: the live probe's share of the training time, and geometry at 50,000 x 512.

    python benchmarks/probe.py [--device cuda]

All runs have labels, so that the linear and the kNN probe of these are part of it. Prints seconds and ratios of this
machine; the promises are under 3 % and a few seconds.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from icone.api.build import pick_device
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

CUDA_RUNS: dict[str, dict[str, Any]] = {
    f"images 64, ResNet-18, B = {size}": {
        "source": "synthetic:cells@64x1000", "encoder": "resnet18", "epochs": 40, "batch_size": size,
    }
    for size in (1, 16)
} | {
    "volumes 64, ResNet-18, B = 4": {
        "source": "synthetic:shapes@64x300", "encoder": "resnet18_3d", "epochs": 20, "batch_size": 4,
    }
}  # fmt: skip
"""Where a GPU trains, an epoch is short, and the processor computes the metrics."""


def probe_share(settings: dict[str, Any], device: str) -> tuple[float, float]:
    """Seconds of training and of probing of one run."""
    with tempfile.TemporaryDirectory() as folder:
        run = pretrain(**settings, device=device, out=f"{folder}/run", console=Console(file=io.StringIO()))
        rows = run.history
    return sum(row["seconds"] for row in rows), sum(row.get("probe_seconds", 0.0) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    device, console = parser.parse_args().device, Console()
    shares = Table("run", "training (s)", "probe (s)", "share (%)", title="live probe")
    runs = RUNS | (CUDA_RUNS if pick_device(device).type == "cuda" else {})
    for name, settings in runs.items():
        training, probing = probe_share(settings, device)
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
