"""The sum of the terms of an objective."""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_sum(weights: dict[str, float] | None = None, **terms: Tensor) -> dict[str, Tensor]:
    """Sum named terms, weighted (1 where no weight is given), into "loss"; the terms come along unweighted.

    >>> weighted_sum({"b": 0.5}, a=torch.tensor(1.0), b=torch.tensor(4.0))["loss"]
    tensor(3.)
    """
    weights = weights or {}
    loss = torch.stack([weights.get(name, 1.0) * term for name, term in terms.items()]).sum()
    return {"loss": loss, **{name: term.detach() for name, term in terms.items()}}
