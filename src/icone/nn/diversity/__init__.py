"""What keeps anchors apart: pure functions of the whole table (N, d) that return a scalar."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity.orthogonality import orthogonality
from icone.nn.diversity.sampled import affordable_orthogonality, sampled_orthogonality
from icone.nn.diversity.side_stream import SideStream
from icone.nn.diversity.sigreg import sigreg
from icone.nn.diversity.variance_covariance import variance_covariance

DIVERSITY: dict[str, Callable[..., Tensor]] = {
    "orthogonality": orthogonality,
    "variance_covariance": variance_covariance,
    "sampled_orthogonality": sampled_orthogonality,
    "sigreg": sigreg,
}
"""Diversity terms by name: functions of the raw table (N, d), with keyword-only options."""


def register_diversity(name: str, term: Callable[..., Tensor]) -> None:
    """Add a diversity term of your own: `IConELoss(diversity=name)` and `--options diversity=name` know it then.

    A term that names `normalisation` among its keyword arguments is given "pair" or "anchor".
    """
    if name in DIVERSITY:
        raise InputError(f"there is a diversity term {name} already: give yours another name")
    DIVERSITY[name] = term


__all__ = [
    "DIVERSITY",
    "SideStream",
    "affordable_orthogonality",
    "orthogonality",
    "register_diversity",
    "sampled_orthogonality",
    "sigreg",
    "variance_covariance",
]
