"""Runs in several processes, for tests."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from rich.console import Console
from torch import Tensor, nn

import icone
from icone.errors import InterruptedRun
from icone.methods import METHODS
from icone.nn import ActivationPenalty
from icone.run import Run
from icone.training.optimizer import build_optimizer


class Network(nn.Module):
    """Small, with BatchNorm, and without biases before it, whose gradients are nothing but rounding."""

    num_features = 12

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        )  # fmt: skip

    def forward_features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_features(images).mean(dim=(2, 3))


class PenalisedNetwork(Network):
    """The same with a penalty on the size of its activations, large enough to be seen in all weights."""

    def __init__(self) -> None:
        super().__init__()
        self.penalty = ActivationPenalty(weight=10.0)

    def forward_features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.penalty(super().forward_features(images))
        return maps


def noisy(sample: Tensor) -> Tensor:
    """Views of one's own, which every rank makes of the whole batch."""
    return sample + 0.1 * torch.randn_like(sample)


def variants() -> dict[str, dict[str, Any]]:
    """Every method, and what else could depend on the number of ranks."""
    small: dict[str, dict[str, Any]] = {
        name: {"method": name, "options": method.small_options} for name, method in METHODS.items()
    }
    small["mae"] |= {"encoder": "test_vit", "size": 64}
    terms = ("variance_covariance", "sampled_orthogonality", "sigreg")
    return {
        **small,
        "mae_micro_batch": {**small["mae"], "micro_batch": 1},
        **{term: {"method": "icone", "options": {"diversity": term}} for term in terms},
        "paper": {"recipe": "paper"},
        "paper_vicreg": {"recipe": "paper", "method": "vicreg", "options": {"hidden": 32}},
        "accumulate": {"method": "byol", "options": METHODS["byol"].small_options, "accumulate": 2},
        "penalty": {"encoder": PenalisedNetwork(), "accumulate": 2},
        "clip": {"clip_gradient": 0.05},
        "own_views": {"views": noisy},
        "streamed": {"memory_gb": 0.0},
    }


def train(name: str, folder: Path, **settings: Any) -> Run:
    """9 samples in batches of 4, the last of which has 1 where the method allows it: 6 steps."""
    given: dict[str, Any] = {
        "source": "synthetic:cells@16x9", "encoder": Network(), "batch_size": 4, "epochs": 2, "probe_every": 0,
        "lr": 1e-3, "cache": "off", "console": Console(file=io.StringIO()), "out": folder / name,
    }  # fmt: skip
    with patch("icone.training.step.build_optimizer", steady_optimizer):
        return icone.pretrain(**given | variants()[name] | settings)


def steady_optimizer(*arguments: Any) -> torch.optim.AdamW:
    """AdamW with a large ε. Some gradients, as of a bias before a BatchNorm, are nothing but rounding, which differs
    between processes, and of which the usual ε would make whole steps."""
    optimizer = build_optimizer(*arguments)
    for group in optimizer.param_groups:
        group["eps"] = max(group["eps"], 1e-2)
    return optimizer


def stop_after_an_epoch(row: dict[str, Any]) -> None:
    """A callback: rank 0 alone is asked to stop, and all do."""
    if row["epoch"] == 0:
        os.kill(os.getpid(), signal.SIGTERM)


def join(rank: int, size: int, folder: Path, names: Sequence[str], settings: dict[str, Any]) -> None:
    """Train runs one after another, as one of several ranks."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    for name in names:
        with suppress(InterruptedRun):
            train(name, folder, **settings)
    dist.destroy_process_group()


def run_world(size: int, folder: Path, names: Sequence[str], **settings: Any) -> None:
    """Train runs in so many processes; all must end well."""
    folder.mkdir(exist_ok=True)
    (folder / "store").unlink(missing_ok=True)
    context = multiprocessing.get_context("forkserver")
    # AdamW's first step imports dynamo, which takes longer than the whole run.
    context.set_forkserver_preload(["icone.api.pretrain", "icone.data.sources.synthetic", "torch._dynamo"])
    arguments = [(rank, size, folder, names, settings) for rank in range(size)]
    processes = [context.Process(target=join, args=one) for one in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * size
