"""What every process of a test on several ranks does: `python world.py RANK SIZE FOLDER NAME…`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from torch import Tensor, nn

import icone
from icone.methods import METHODS
from icone.run import Run


class Network(nn.Module):
    """Small, with BatchNorm, and without biases before it, whose gradients are nothing but rounding."""

    num_features = 12

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def noisy(sample: Tensor) -> Tensor:
    """Views of one's own, which every rank makes of the whole batch."""
    return sample + 0.1 * torch.randn_like(sample)


def variants() -> dict[str, dict[str, Any]]:
    """Every method, and what else could depend on the number of ranks."""
    small = {name: {"method": name, "options": method.small_options} for name, method in METHODS.items()}
    terms = ("variance_covariance", "sampled_orthogonality", "sigreg")
    return {
        **small,
        **{term: {"method": "icone", "options": {"diversity": term}} for term in terms},
        "paper": {"recipe": "paper"},
        "paper_vicreg": {"recipe": "paper", "method": "vicreg", "options": {"hidden": 32}},
        "accumulate": {"method": "byol", "options": METHODS["byol"].small_options, "accumulate": 2},
        "clip": {"clip_gradient": 0.05},
        "own_views": {"views": noisy},
        "streamed": {"memory_gb": 0.0},
    }


def train(name: str, folder: Path, **settings: Any) -> Run:
    """9 samples in batches of 4, the last of which has 1 where the method allows it: 6 steps."""
    given = {"source": "synthetic:cells@16x9", "encoder": Network(), "batch_size": 4, "epochs": 2, "probe_every": 0}
    quiet = Console(file=io.StringIO())
    run: Run = icone.pretrain(**given | variants()[name] | settings, out=folder / name, console=quiet, cache="off")
    return run


def main(rank: str, size: str, folder: str, names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=int(rank), world_size=int(size))
    for name in names:
        train(name, Path(folder))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
