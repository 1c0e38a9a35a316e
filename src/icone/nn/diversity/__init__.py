"""What keeps anchors apart: pure functions of the whole table (N, d) that return a scalar."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from icone.nn.diversity.orthogonality import orthogonality
from icone.nn.diversity.sampled import sampled_orthogonality
from icone.nn.diversity.side_stream import SideStream
from icone.nn.diversity.sigreg import sigreg
from icone.nn.diversity.variance_covariance import variance_covariance

DIVERSITY: dict[str, Callable[..., Tensor]] = {
    "orthogonality": orthogonality,
    "variance_covariance": variance_covariance,
    "sampled_orthogonality": sampled_orthogonality,
    "sigreg": sigreg,
}

__all__ = ["DIVERSITY", "SideStream", "orthogonality", "sampled_orthogonality", "sigreg", "variance_covariance"]
