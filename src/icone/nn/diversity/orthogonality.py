"""Orthogonality of anchors, exact over the whole table, without ever holding an N×N matrix."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity.table import attach_gradient, full_precision

TESTED_TORCH = (2, 11)
"""The oldest torch that our kernels and captured steps have been tested with on a GPU."""


def orthogonality(
    table: Tensor,
    *,
    normalisation: Literal["pair", "anchor"] = "pair",
    labels: Tensor | None = None,
    precision: Literal["auto", "full", "tf32", "bf16"] = "auto",
    block: int = 1024,
) -> Tensor:
    """Mean squared positive cosine between different anchors, L_div.

        L_div = 1/(N(N−1)) Σ_{i≠j} max(0, G_ij)²,   G = ẼẼᵀ,   ∂L/∂Ẽ = 4/(N(N−1)) · relu(G)_{i≠j} Ẽ

    where Ẽ is the table with rows of length 1. Value and gradient come out of one pass over blocks of rows;
    the extra memory is O(N·d + block·N). Differentiable once: a second derivative raises.

    Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
    Learning", 2026, arXiv:2603.15263.

    table: raw anchors (N, d), of any scale; a half-precision table is computed in float32.
    normalisation: "pair" divides the sum by the number of pairs, as printed; "anchor" divides it by N, so
      that the gradient of one anchor does not fade as the dataset grows.
    labels: (N,); with it only pairs of different classes count, and "pair" divides by their number.
    precision: of the products; all accumulate in float32. "full" is that of the table; "tf32" keeps 11
      significant bits and "bf16" 8, both by a kernel for CUDA; "auto" is "tf32" on CUDA and "full" elsewhere,
      and with a torch before `TESTED_TORCH`.
    block: rows per block of the full-precision pass; changes time and memory, not the result.

    >>> table = torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 1.0]])  # one pair alike, the others at 135°
    >>> orthogonality(table)
    tensor(0.3333)
    >>> orthogonality(table, normalisation="anchor")
    tensor(0.6667)
    """
    if normalisation not in ("pair", "anchor"):
        raise InputError(f"normalisation must be 'pair' or 'anchor', got {normalisation!r}")
    if block < 1:
        raise InputError(f"block must be at least 1 row, got {block}")
    with full_precision(table) as table:
        n = len(table)
        if labels is not None and labels.shape != (n,):
            raise InputError(f"labels must hold one class per anchor, shape ({n},), got {tuple(labels.shape)}")
        divisor = n if normalisation == "anchor" else _number_of_pairs(n, labels)
        unit = F.normalize(table, dim=1)
        total, gradient = _sums(unit.detach(), labels, precision, block, with_gradient=unit.requires_grad)
        if gradient is None:
            return total / divisor
        return attach_gradient(unit, total / divisor, gradient.mul_(4).div_(divisor))


def is_tested_torch() -> bool:
    """Whether our Triton kernels, and steps captured as CUDA graphs, have been tested with this version of torch."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= TESTED_TORCH


def has_kernel(unit: Tensor) -> bool:
    """Whether our kernel serves this table."""
    return unit.is_cuda and unit.dtype == torch.float32 and is_tested_torch()


def _sums(
    unit: Tensor, labels: Tensor | None, precision: str, block: int, *, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Σ_{i≠j} relu(G_ij)² and relu(G)_{i≠j} Ẽ, by the kernel where it can, else block by block."""
    if precision not in ("auto", "full", "tf32", "bf16"):
        raise InputError(f"precision must be 'auto', 'full', 'tf32' or 'bf16', got {precision!r}")
    if precision == "auto":
        precision = "tf32" if has_kernel(unit) else "full"
    if precision == "full":
        return _blocked(unit, labels, block, with_gradient=with_gradient)
    if not unit.is_cuda or unit.dtype != torch.float32:
        raise InputError(f"precision {precision!r} is for float32 tables on CUDA, got {unit.dtype} on {unit.device}")
    from icone.nn.diversity.kernel import orthogonality_sums  # Triton is there only where CUDA is

    return orthogonality_sums(unit, labels, torch.float16 if precision == "tf32" else torch.bfloat16)


def _blocked(unit: Tensor, labels: Tensor | None, block: int, *, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Σ_{i≠j} relu(G_ij)² and, where asked for, relu(G)_{i≠j} Ẽ, over ordered pairs of rows.

    G is symmetric, so a block of rows meets only the rows from its own start on, and every similarity beyond
    the block serves both of its rows: three quarters of the arithmetic of a plain row-by-row pass.
    """
    total = unit.new_zeros(())
    gradient = torch.zeros_like(unit) if with_gradient else None
    for start in range(0, len(unit), block):
        rows, rest = unit[start : start + block], unit[start:]
        size = len(rows)
        positive = (rows @ rest.T).relu_()  # (size, N − start); its first columns are the block against itself
        if labels is None:
            positive.fill_diagonal_(0)
        else:
            positive.masked_fill_(labels[start : start + block, None] == labels[start:], 0)
        # By row: float32 sums over a whole block would lose digits.
        own, beyond = (torch.linalg.vector_norm(part, dim=1) for part in positive.tensor_split([size], dim=1))
        total += (own.square() + 2 * beyond.square()).sum()
        if gradient is not None:
            gradient[start : start + size].addmm_(positive, rest)
            gradient[start + size :].addmm_(positive[:, size:].T, rows)
    return total, gradient


def _number_of_pairs(n: int, labels: Tensor | None) -> Tensor | int:
    """Ordered pairs of different anchors, or of different classes; at least 1, so that no pairs give 0."""
    if labels is None:
        return max(n * (n - 1), 1)
    labels = labels.contiguous()
    ordered = labels.sort().values
    of_same_class = torch.searchsorted(ordered, labels, right=True) - torch.searchsorted(ordered, labels)
    return (n * n - of_same_class.sum()).clamp(min=1)
