"""The two terms of LeJEPA: views agree with their mean, and embeddings of a batch look like an isotropic Gaussian.

Balestriero and LeCun 2025, arXiv:2511.08544.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity.sigreg import epps_pulley
from icone.nn.diversity.table import attach_gradient


def mean_view_distance(z: Tensor) -> Tensor:
    """Mean squared difference between the views of an instance and their mean, over dimensions too.

        L = 1/(B·V·d) Σ_i Σ_v ‖z_iv − 1/V Σ_w z_iw‖²

    z: (B, V, d), not normalised.

    >>> mean_view_distance(torch.tensor([[[0.0, 0.0], [2.0, 0.0]]]))
    tensor(0.5000)
    """
    return (z - z.mean(dim=1, keepdim=True)).square().mean()


def sliced_gaussianity(z: Tensor, directions: int = 1024, knots: int = 17, radius: float = 3.0) -> Tensor:
    """Distance of a batch from N(0, I) along random directions, mean over views (SIGReg as in LeJEPA).

        T_vm = B ∫_{−R}^{R} |φ̂_vm(t) − φ(t)|² φ(t) dt,   φ(t) = exp(−t²/2),   L = 1/(V·M) Σ_v Σ_m T_vm

    with φ̂_vm(t) = 1/B Σ_i exp(i t ⟨z_iv, a_m⟩), each view on its own. Unlike `icone.diversity.sigreg` nothing is
    standardised: mean 0 and variance 1 are part of what is asked for. Its expectation over batches is
    B|φ_Z − φ|² + 1 − |φ_Z|², which is smallest at φ_Z = B/(B − 1)·φ as far as that is below 1. So for one
    instance the best distribution is a constant, and from two on it is not.

    z: (B, V, d) with B ≥ 2, not normalised.

    >>> normal = torch.randn(500, 2, 8, generator=torch.Generator().manual_seed(0))
    >>> bool(sliced_gaussianity(normal) < 0.1 * sliced_gaussianity(0.5 * normal))
    True
    """
    if len(z) < 2:
        raise InputError(f"the distribution of a batch needs 2 instances or more, got {len(z)}")
    random = torch.randn(z.shape[-1], directions, device=z.device, dtype=z.dtype)
    projected = (z @ F.normalize(random, dim=0)).flatten(1)  # (B, V·M)
    value, gradient = epps_pulley(projected.detach(), knots, radius)
    return attach_gradient(projected, value, gradient)
