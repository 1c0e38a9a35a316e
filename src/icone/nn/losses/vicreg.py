"""The three terms of VICReg, for two views as printed; for more, the mean over pairs of views of that.

Bardes, Ponce and LeCun 2021, arXiv:2105.04906.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError
from icone.nn.losses.pairs import without_diagonal


def invariance(z: Tensor) -> Tensor:
    """Mean squared difference between two views, over instances and dimensions.

    Over all pairs of V views that is twice their unbiased variance, in O(V).

    z: (B, V, d), not normalised.

    >>> import torch
    >>> invariance(torch.tensor([[[0.0, 0.0], [2.0, 0.0]]]))
    tensor(2.)
    """
    return 2 * z.var(dim=1).mean()


def variance(z: Tensor, epsilon: float = 1e-4) -> Tensor:
    """How far standard deviations over the batch stay below 1, mean over dimensions and views.

        v = mean over views and dimensions of max(0, 1 − √(Var_batch + ε)),   Var over B − 1

    The mean over the two views is the half that the published formula carries.

    z: (B, V, d) with B ≥ 2.
    """
    _check_batch(z)
    return F.relu(1 - (z.var(dim=0) + epsilon).sqrt()).mean()


def covariance(z: Tensor) -> Tensor:
    """Squared covariances of different dimensions over the batch, summed and divided by d, for both views.

        c = Σ_views 1/d Σ_{i≠j} Cov_ij²,   Cov over B − 1;   for V views 2 · (mean over views)

    z: (B, V, d) with B ≥ 2.
    """
    _check_batch(z)
    batch, _, dim = z.shape
    centred = (z - z.mean(dim=0)).transpose(0, 1)  # (V, B, d)
    matrices = centred.transpose(1, 2) @ centred / (batch - 1)
    return 2 * without_diagonal(matrices).square().sum(dim=(1, 2)).mean() / dim


def _check_batch(z: Tensor) -> None:
    if len(z) < 2:
        raise InputError(f"variance and covariance over the batch need 2 instances or more, got {len(z)}")
