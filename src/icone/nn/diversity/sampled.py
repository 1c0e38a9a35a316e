"""Orthogonality estimated from some rows against all, for tables too large for all pairs in every step."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError, unknown_name
from icone.nn.diversity.orthogonality import orthogonality
from icone.nn.diversity.table import attach_gradient, full_precision

FEWEST_ROWS = 64
"""Rows below which the estimate of a step says little about the table."""


def sampled_orthogonality(
    table: Tensor,
    *,
    normalisation: Literal["pair", "anchor"] = "pair",
    rows: int = 4096,
    block: int = 16384,
) -> Tensor:
    """An unbiased estimate of `orthogonality`: `rows` random rows, drawn with replacement, against all.

        L̂ = N/R · 1/(N(N−1)) Σ_{r=1…R} Σ_{j≠i_r} max(0, G_{i_r j})²

    Every anchor i is pushed by the same sampled rows:

        ∂L̂/∂ẽ_i = N/R · 4/(N(N−1)) Σ_{r: i_r≠i} max(0, G_{i i_r}) ẽ_{i_r}

    Value and gradient have the expectation of the exact term; a step takes O((N + R)·d + R·block) memory. This is not
    the derivative of the drawn value: that one would push a sampled row N/R times as hard as the others, once in N/R
    steps, and AdamW would divide all other steps of that anchor by such a push. The rows come from the device's default
    generator. The estimate is ours; the term is that of IConE (Almpanakis and Kreshuk 2026, arXiv:2603.15263).

    table: raw anchors (N, d), of any scale; a half-precision table is computed in float32.
    normalisation: as in `orthogonality`.

    >>> table = torch.eye(3)[[0, 0, 1]]  # one pair alike
    >>> bool(sampled_orthogonality(table, rows=3000).sub(1 / 3).abs() < 0.05)
    True
    """
    if normalisation not in ("pair", "anchor"):
        raise unknown_name("normalisation", normalisation, ("pair", "anchor"))
    if rows < 1 or block < 1:
        raise InputError(f"rows and block must be at least 1, got rows={rows}, block={block}")
    with full_precision(table) as table:
        n = len(table)
        unit = F.normalize(table, dim=1)
        chosen = torch.randint(n, (rows,), device=table.device)
        total, gradient = _sampled_sums(unit.detach(), chosen, block)
        factor = n / rows / (n if normalisation == "anchor" else max(n * (n - 1), 1))
        return attach_gradient(unit, total * factor, gradient.mul_(4 * factor))


def affordable_orthogonality(
    shape: tuple[int, int], flops: float, *, sampled_share: float = 1.0, normalisation: str = "pair"
) -> partial[Tensor]:
    """`orthogonality` where its arithmetic stays within `flops`, else `sampled_orthogonality` with as many rows as do.

    The exact term takes 3·N²·d floating-point operations, value and gradient together, and R sampled rows 4·R·N·d.
    There are at least `FEWEST_ROWS`, whatever that costs.

    shape: of the table, (N, d).
    sampled_share: of `flops`, what sampled rows may take: their operations can be slower than those of the exact term.

    >>> affordable_orthogonality((1000, 128), 1e9).func.__name__
    'orthogonality'
    >>> affordable_orthogonality((1_000_000, 128), 1e12).keywords["rows"]
    1953
    """
    if normalisation not in ("pair", "anchor"):
        raise unknown_name("normalisation", normalisation, ("pair", "anchor"))
    (n, d), options = shape, {"normalisation": cast(Any, normalisation)}
    if 3 * n * n * d <= flops:
        return partial(orthogonality, **options)
    return partial(sampled_orthogonality, **options, rows=max(FEWEST_ROWS, int(sampled_share * flops / (4 * n * d))))


def _sampled_sums(unit: Tensor, chosen: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Σ_r Σ_{j≠i_r} relu(G)², and Σ_r relu(G_{i i_r}) ẽ_{i_r} for every row i of the unit table."""
    rows = unit.index_select(0, chosen)
    gradient = torch.empty_like(unit)
    total = unit.new_zeros(())
    for start in range(0, len(unit), block):
        others = unit[start : start + block]
        position = torch.arange(start, start + len(others), device=unit.device)
        positive = (rows @ others.T).relu_().masked_fill_(chosen[:, None] == position, 0)
        total += torch.linalg.vector_norm(positive, dim=1).square().sum()
        torch.mm(positive.T, rows, out=gradient[start : start + block])
    return total, gradient
