"""How far features are from their common direction."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def center_distance(z: Tensor, center: Tensor) -> Tensor:
    """Mean cosine distance between features and one vector, 1 − mean of cos(z, center).

    With θ the angle of a feature to the center it is about the mean of θ²/2: the variance of the directions of all
    features, summed over dimensions. It is a center loss (Wen et al. 2016, "A Discriminative Feature Learning Approach
    for Deep Face Recognition") with one center for all samples.

    z: features (B, V, d) of any scale. center: (d,), of any length.

    >>> import torch
    >>> center_distance(torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]), torch.tensor([3.0, 0.0]))
    tensor(0.5000)
    """
    return 1 - F.cosine_similarity(z, center.expand_as(z), dim=-1).mean()
