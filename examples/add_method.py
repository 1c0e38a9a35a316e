"""A method of your own: its loss, its class, and a run with it beside IConE.

    python examples/add_method.py --epochs 10

The example is alignment and uniformity (Wang and Isola 2020, arXiv:2005.10242), for two views.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import icone
from icone.encoders import num_features
from icone.methods import METHODS, Method, Setting
from icone.nn import ProjectionHead
from icone.nn.losses import weighted_sum


def align_and_spread(z: Tensor) -> Tensor:
    """Alignment of the views of a sample, and uniformity of all samples on the sphere.

        L = mean over samples of ‖z_i − z_i⁺‖² + mean over views of log mean_{i≠j} exp(−2‖z_i − z_j‖²)

    z: embeddings (B, 2, d) of any scale, B ≥ 2.
    """
    rows = F.normalize(z, dim=-1)
    first, second = rows.unbind(1)
    alignment = (first - second).square().sum(-1).mean()
    return alignment + (uniformity(first) + uniformity(second)) / 2


def uniformity(rows: Tensor) -> Tensor:
    """Logarithm of the mean of exp(−2‖x − y‖²) over pairs of different unit vectors (B, d)."""
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    exponents = (4 * rows @ rows.T - 4).masked_fill(itself, -torch.inf)  # ‖x − y‖² = 2 − 2⟨x, y⟩
    return exponents.flatten().logsumexp(0) - math.log(len(rows) * (len(rows) - 1))


class AlignUniform(Method):
    """Views of a sample agree, and samples spread over the sphere."""

    name: ClassVar[str] = "align_uniform"
    title: ClassVar[str] = "AlignUniform"
    prevents_collapse: ClassVar[str] = "distances within the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = "a batch of one sample has no other to keep away from"

    def __init__(self, encoder: nn.Module, setting: Setting, *, out: int = 128) -> None:
        super().__init__(encoder, setting)
        self.head = ProjectionHead([num_features(encoder), 512, out], "batch")

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return weighted_sum(align_and_spread=align_and_spread(self.head(self.encode(views))))


def main(epochs: int = 10, source: str = "synthetic:cells@32x60") -> dict[str, float]:
    """Train AlignUniform and IConE at batch size 4, and return the linear probe of each on held-out samples."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in (AlignUniform, METHODS["icone"]):
            out = Path(folder) / method.name
            run = icone.pretrain(
                source,
                method=method,
                encoder="resnet10t",
                size=32,
                batch_size=4,
                test_fraction=0.25,
                epochs=epochs,
                out=out,
            )
            result = icone.evaluate(run, untrained=False)
            found[method.name] = float(result["trained"]["linear_probe"]["balanced_accuracy"])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    for name, accuracy in main(parser.parse_args().epochs).items():
        print(f"{name}: linear probe {accuracy:.2f}")
