"""What keeps anchors apart: pure functions of the whole table (N, d) that return a scalar."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from icone.diversity.beside import Beside
from icone.diversity.gaussian import sigreg
from icone.diversity.orthogonal import orthogonality
from icone.diversity.sampled import sampled_orthogonality
from icone.diversity.statistics import variance_covariance

DIVERSITY: dict[str, Callable[..., Tensor]] = {
    "orthogonality": orthogonality,
    "variance_covariance": variance_covariance,
    "sampled_orthogonality": sampled_orthogonality,
    "sigreg": sigreg,
}

__all__ = ["DIVERSITY", "Beside", "orthogonality", "sampled_orthogonality", "sigreg", "variance_covariance"]
