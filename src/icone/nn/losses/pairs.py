"""What losses over pairs of views share."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_over_other_views(pairs: Tensor) -> Tensor:
    """Mean of a quantity over instances and ordered pairs of different views.

    pairs: (B, V, V); the diagonal, a view with itself, does not count.

    >>> mean_over_other_views(torch.tensor([[[9.0, 1.0], [3.0, 9.0]]]))
    tensor(2.)
    """
    batch, num_views, _ = pairs.shape
    return without_diagonal(pairs).sum() / (batch * num_views * (num_views - 1))


def without_diagonal(matrices: Tensor) -> Tensor:
    """Square matrices (..., n, n) with zeros on the diagonal."""
    return matrices.masked_fill(torch.eye(matrices.shape[-1], dtype=torch.bool, device=matrices.device), 0.0)
