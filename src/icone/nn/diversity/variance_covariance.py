"""Variance and covariance of the anchors' dimensions, kept high and low."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.nn.diversity.table import full_precision

TARGET_STD = 1.0
EPSILON = 1e-4


def variance_covariance(table: Tensor) -> Tensor:
    """Hinge on the standard deviation of every dimension plus squared covariances between dimensions (VCReg).

        L_vc = Σ_j max(0, 1 − √(Var(ẽ_j) + 1e-4)) + Σ_{i≠j} Cov(ẽ_i, ẽ_j)²

    where ẽ_j is column j of the table with rows of length 1; variance and covariance are unbiased. A column
    of unit rows has a standard deviation of about 1/√d, so the hinge is always active. Costs O(N·d²).

    The terms are by Bardes, Ponce and LeCun 2021, arXiv:2105.04906; VCReg is by Zhu et al. 2023, arXiv:2306.13292.

    table: raw anchors (N, d), of any scale; a half-precision table is computed in float32.

    >>> table = torch.tensor([[2.0, 0.0], [-1.0, 0.0]])  # variance 2 and 0, covariance 0
    >>> variance_covariance(table)
    tensor(0.9900)
    """
    with full_precision(table) as table:
        unit = F.normalize(table, dim=1)
        centred = unit - unit.mean(dim=0)
        covariance = centred.T @ centred / max(len(table) - 1, 1)
        std = torch.sqrt(covariance.diagonal() + EPSILON)
        return F.relu(TARGET_STD - std).sum() + 2 * covariance.triu(1).square().sum()
