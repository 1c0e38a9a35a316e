"""What looking costs: the live probe's share of the training time, and geometry at 50,000 x 512.

    python benchmarks/probe.py [--device cuda] [--repeats 3] [--only volumes]

Every run is trained with the probe, as often as it is by default, and without it, in turn, in one process. Two shares
of the training time are printed: by the probe's own clock, and by how much longer the epochs with the probe took (the
median of all repeats, which also holds what else the machine does). The last columns say how many samples with labels
were probed, and whether both runs ended with the same weights, bit for bit. The promises are at most 3 % and a few
seconds.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from icone.api.build import pick_device
from icone.api.pretrain import pretrain
from icone.evaluation import geometry

RNG = np.random.default_rng(0)
RUNS: dict[str, dict[str, Any]] = {
    "images 32, test_resnet": {
        "source": "synthetic:cells@32x300", "encoder": "test_resnet", "epochs": 20, "batch_size": 16,
    },
    "volumes 16, ResNet-10": {
        "source": "synthetic:shapes@16x300", "encoder": "resnet10_3d", "width": 0.125, "epochs": 20, "batch_size": 16,
    },
    "points, MLP": {"source": "synthetic:gaussians@x500", "epochs": 20, "batch_size": 4},
    "points, MLP, numbers": {
        "source": "synthetic:gaussians@x500", "epochs": 20, "batch_size": 4, "labels": RNG.normal(size=500),
    },
    "points, MLP, ten labels at once": {
        "source": "synthetic:gaussians@x500", "epochs": 20, "batch_size": 4, "labels": RNG.random((500, 10)) < 0.3,
    },
}  # fmt: skip
"""Long enough that the share affords the 50 samples with which there is a score."""

CUDA_RUNS: dict[str, dict[str, Any]] = {
    f"images 64, ResNet-18, B = {size}": {
        "source": "synthetic:cells@64x1000", "encoder": "resnet18", "epochs": epochs, "batch_size": size,
    }
    for size, epochs in ((1, 10), (16, 100))
} | {
    "volumes 64, ResNet-18, B = 4": {
        "source": "synthetic:shapes@64x300", "encoder": "resnet18_3d", "epochs": 20, "batch_size": 4,
    }
}  # fmt: skip
"""Where a GPU trains, an epoch is short, and the processor computes the metrics.
The runs are too short to be compiled, and take about a minute each."""


WARM_UP: dict[str, Any] = {"source": "synthetic:gaussians@x100", "epochs": 40, "batch_size": 16}


class Trained(NamedTuple):
    """What one run took, and what it became."""

    training: float
    """Seconds of all epochs, without the probe's clock."""
    probing: float
    probed: int
    """Samples with labels of one measurement."""
    weights: dict[str, torch.Tensor]


def train(settings: dict[str, Any], device: str, probe_every: int | None) -> Trained:
    """One run in a folder of its own, which is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        run = pretrain(
            **settings, device=device, probe_every=probe_every, out=f"{folder}/run", console=Console(file=io.StringIO())
        )
        rows, weights = run.history, run.trained_weights()
    probed = [row["probe"]["instances"] for row in rows if "probe" in row]
    training, probing = (sum(row.get(clock, 0.0) for row in rows) for clock in ("seconds", "probe_seconds"))
    return Trained(training, probing, max(probed, default=0), weights)


def side_by_side(settings: dict[str, Any], device: str, repeats: int) -> list[str]:
    """The cells of a row of the table; the order changes from one repeat to the next."""
    without: list[Trained] = []
    with_probe: list[Trained] = []
    for repeat in range(repeats):
        turns: list[tuple[list[Trained], int | None]] = [(without, 0), (with_probe, None)]
        for found, probe_every in turns if repeat % 2 == 0 else reversed(turns):
            found.append(train(settings, device, probe_every))
    alone = statistics.median(run.training for run in without)
    whole = statistics.median(run.training + run.probing for run in with_probe)
    probing = statistics.median(run.probing for run in with_probe)
    share = statistics.median(run.probing / run.training for run in with_probe)
    same = all(torch.equal(t, run.weights[n]) for n, t in without[0].weights.items() for run in with_probe)
    seconds = (f"{value:.2f}" for value in (alone, whole, probing))
    shares = (f"{100 * value:.2f}" for value in (share, whole / alone - 1))
    return [*seconds, *shares, str(with_probe[0].probed), "yes" if same else "NO"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="only the runs whose name holds this text")
    options, console = parser.parse_args(), Console(width=140)
    device = options.device
    shares = Table(
        "run", "without the probe (s)", "with it (s)", "its clock (s)", "share by its clock (%)",
        "share by the difference (%)", "samples probed", "same weights", title="live probe",
    )  # fmt: skip
    train(WARM_UP, device, 1)  # packages that are imported when they are first needed
    runs = (CUDA_RUNS if pick_device(device).type == "cuda" else {}) | RUNS
    for name, settings in runs.items():
        if options.only in name:
            cells = side_by_side(settings, device, options.repeats)
            console.print(f"{name}: share {cells[3]} % by its clock, {cells[4]} % by the difference", markup=False)
            shares.add_row(name, *cells)
    console.print(shares)
    if options.only:
        return
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
