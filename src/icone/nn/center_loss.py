"""A loss that keeps features near their mean direction."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from icone.nn.losses import center_distance
from icone.nn.normalisation import average_rate

CENTER_SAMPLES = 512
"""Samples over which the mean of the features reaches back."""


class CenterLoss(nn.Module):
    """Mean cosine distance of features to their moving average, which is a constant in the backward pass.

        c ← c + r·(mean of z − c),    L = mean over samples and views of 1 − cos(z, c),    r = B/512.

    A projection head with BatchNorm removes what all features have in common, and scales the rest. So its loss does not
    change when a few directions grow at the cost of all others, and the noise of small batches lets them grow: behind
    the last LayerNorm of a ViT, whose length is fixed, features then lose their common part and their rank. This loss
    limits how far features spread around their mean. A sample has the same part in it in a batch of any `batch_size`.

    The center moves in every pass in training mode and is part of the `state_dict`.

    >>> loss = CenterLoss(features=3, batch_size=1)
    >>> loss(torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]))   # features (B, V, d) that are all alike
    tensor(0.)
    """

    center: Tensor
    passes: Tensor

    def __init__(self, features: int, batch_size: int) -> None:
        super().__init__()
        self.rate = min(1.0, batch_size / CENTER_SAMPLES)
        self.register_buffer("center", torch.zeros(features))
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, z: Tensor) -> Tensor:
        z = z.float()
        if self.training:
            self.center.lerp_(z.detach().mean((0, 1)), average_rate(self.passes, self.rate))
            self.passes.add_(1)
        return center_distance(z, self.center.clone())  # a later pass moves the center before this one goes back
