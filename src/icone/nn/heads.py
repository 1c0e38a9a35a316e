"""What methods put between features and loss: projection heads, and weights that start frozen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from icone.errors import unknown_name

HEAD_NORMS: dict[str, type[nn.Module]] = {
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
    "none": nn.Identity,
}


class ProjectionHead(nn.Module):
    """Linear layers with normalisation and ReLU in between: (B, V, widths[0]) -> (B, V, widths[-1]).

    All views pass at once, so BatchNorm takes its statistics over B·V rows. Such heads are by Chen et al. 2020
    (SimCLR), arXiv:2002.05709.

    >>> ProjectionHead([8, 32, 4], "batch")(torch.randn(3, 2, 8)).shape
    torch.Size([3, 2, 4])
    """

    def __init__(self, widths: Sequence[int], norm: str) -> None:
        super().__init__()
        if norm not in HEAD_NORMS:
            raise unknown_name("head norm", norm, HEAD_NORMS)
        layers: list[nn.Module] = [nn.Linear(widths[0], widths[1])]
        for width, following in pairwise(widths[1:]):
            layers += [HEAD_NORMS[norm](width), nn.ReLU(), nn.Linear(width, following)]
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        projected: Tensor = self.layers(z.flatten(0, 1))
        return projected.reshape(*z.shape[:2], -1)


def smallest_batch(norm: str, num_views: int) -> int:
    """Instances per batch from which a head with this normalisation passes gradients.

    BatchNorm turns two rows into exactly ±1 whatever they were, so it needs B·V ≥ 3.

    >>> smallest_batch("batch", num_views=2), smallest_batch("batch", num_views=3), smallest_batch("layer", 2)
    (2, 1, 1)
    """
    return 2 // num_views + 1 if norm == "batch" else 1


def frozen_in_first_epoch(weight: Tensor, progress: Tensor, epochs: int) -> Tensor:
    """The weight itself, which passes no gradient during the first of `epochs` epochs.

    AdamW still decays such a weight; that changes its length only, so it suits weights used by direction.
    """
    return torch.where(progress < 1 / epochs, weight.detach(), weight)
