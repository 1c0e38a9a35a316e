"""Orthogonality of a table whose rows are shared among ranks."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity.orthogonality import _number_of_pairs, has_kernel
from icone.nn.diversity.table import attach_gradient, full_precision
from icone.nn.ranks import Share


def shared_orthogonality(
    own: Tensor,
    *,
    share: Share,
    normalisation: Literal["pair", "anchor"] = "pair",
    labels: Tensor | None = None,
    block: int = 1024,
) -> Tensor:
    """`orthogonality` of the whole table, as a function of the rows of this rank, with the same value on all ranks.

        ∂L/∂Ẽ_own = 4/(N(N−1)) · relu(Ẽ_own Ẽᵀ)_{i≠j} Ẽ

    The gradient of own rows needs the unit rows of all ranks, which are gathered once, and no reduction; the value is
    summed over ranks. A rank computes its own rows against all: 1/ranks of the pairs.

    own: raw anchors (n, d) of this rank; labels: (N,), of all rows.
    """
    if normalisation not in ("pair", "anchor"):
        raise InputError(f"normalisation must be 'pair' or 'anchor', got {normalisation!r}")
    with full_precision(own) as own:
        divisor = share.count if normalisation == "anchor" else _number_of_pairs(share.count, labels)
        unit = F.normalize(own, dim=1)
        every = share.gather(unit.detach())
        if has_kernel(every):
            from icone.nn.diversity.kernel import orthogonality_sums  # Triton is there only where CUDA is

            total, gradient = orthogonality_sums(every, labels, own=(share.start, share.stop))
        else:
            total, gradient = _own_sums(unit.detach(), every, share.start, labels, block)
        return attach_gradient(unit, share.ranks.sum(total) / divisor, gradient.mul_(4).div_(divisor))


def _own_sums(own: Tensor, unit: Tensor, start: int, labels: Tensor | None, block: int) -> tuple[Tensor, Tensor]:
    """Σ_{i≠j} relu(G_ij)² and relu(G)_{i≠j} Ẽ for the rows i from `start` on, block by block."""
    total, gradient = own.new_zeros(()), torch.empty_like(own)
    for first in range(0, len(own), block):
        rows = own[first : first + block]
        number = start + first
        positive = (rows @ unit.T).relu_()
        if labels is None:
            positive[:, number : number + len(rows)].fill_diagonal_(0)
        else:
            positive.masked_fill_(labels[number : number + len(rows), None] == labels, 0)
        total += torch.linalg.vector_norm(positive, dim=1).square().sum()  # by row: sums of a block would lose digits
        torch.mm(positive, unit, out=gradient[first : first + block])
    return total, gradient
