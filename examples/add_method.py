"""A method of your own: its loss, its class, and a run with it beside IConE.

    python examples/add_method.py --epochs 10

The example is DCL (Yeh et al. 2022, arXiv:2110.06848): SimCLR's loss without the positive pair in the denominator.
"""

from __future__ import annotations

import argparse
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


def decoupled_contrast(z: Tensor, temperature: float = 0.1) -> Tensor:
    """The decoupled contrastive loss of two views of every sample.

        L = mean over views i of −⟨z_i, z_i⁺⟩/τ + log Σ_j exp(⟨z_i, z_j⟩/τ),   j: views of other samples

    z: embeddings (B, 2, d) of any scale, B ≥ 2.
    """
    rows = F.normalize(z, dim=-1)
    samples = len(rows)
    first, second = rows.unbind(1)
    both = torch.cat([first, second])
    logits = both @ both.T / temperature
    own = torch.arange(samples, device=z.device).repeat(2)
    others = logits.masked_fill(own[:, None] == own, -torch.inf)
    positive = (first * second).sum(-1).repeat(2) / temperature
    return (others.logsumexp(-1) - positive).mean()


class DCL(Method):
    """Views recognise one another among the views of other samples; the positive pair is not in the denominator."""

    name: ClassVar[str] = "dcl"
    title: ClassVar[str] = "DCL"
    prevents_collapse: ClassVar[str] = "negatives from the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = "a batch of one sample has no negatives"

    def __init__(self, encoder: nn.Module, setting: Setting, *, temperature: float = 0.1, out: int = 128) -> None:
        super().__init__(encoder, setting)
        self.temperature = temperature
        self.head = ProjectionHead([num_features(encoder), 512, out], "batch")

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return weighted_sum(contrast=decoupled_contrast(self.head(self.encode(views)), self.temperature))


def main(epochs: int = 10, source: str = "synthetic:cells@32x60") -> dict[str, float]:
    """Train DCL and IConE at batch size 4, and return the linear probe of each on held-out samples."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in (DCL, METHODS["icone"]):
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
