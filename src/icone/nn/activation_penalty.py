"""A penalty on the size of activations, for networks that no normalisation layer keeps in bounds."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

EPSILON = 1e-8
"""Is added to mean squares, against the logarithm of zero."""


class ActivationPenalty(nn.Module):
    """The identity, whose backward pass adds the gradient of a penalty: (B, …) -> (B, …), whatever the shape.

        λ · mean over the rows of a step of (log m)²,    m = mean(x²) over all values of a row.

    It has its minimum where activations have mean square 1, and depends on no other row: a row has the same penalty in
    any batch. This is activation regularisation (Merity et al. 2017, arXiv:1708.01009) with a target instead of zero. A
    loss that does not change with the scale of features, as that of a head with BatchNorm, leaves this scale alone, and
    without a penalty it can grow without bound. A row without a gradient has no part in the loss, as what a rank
    encodes that has no share of a batch. It has no penalty either.

    The gradient is added on the way back, so that no training loop has to know of the penalty, and a loss shows what it
    always did. `penalise_activations` says how many rows a step has; before that, and in evaluation, nothing happens.

    >>> layer = ActivationPenalty(weight=1.0)
    >>> _ = penalise_activations(layer, rows=1)
    >>> x = torch.full((1, 4), 10.0, requires_grad=True)
    >>> layer(x).sum().backward()
    >>> x.grad > 1  # smaller activations are better
    tensor([[True, True, True, True]])
    """

    def __init__(self, weight: float) -> None:
        """`weight` is λ."""
        super().__init__()
        self.weight = weight
        self.rows: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.rows is None or not self.training:
            return x
        return cast(Tensor, _AddGradient.apply(x, self.weight / self.rows))

    def extra_repr(self) -> str:
        return f"weight={self.weight}, rows={self.rows}"


def penalise_activations(network: nn.Module, rows: int) -> nn.Module:
    """Let the penalties of a network be means over so many rows: those of all passes between two optimizer steps."""
    for layer in network.modules():
        if isinstance(layer, ActivationPenalty):
            layer.rows = rows
    return network


class _AddGradient(torch.autograd.Function):
    """x; on the way back the gradient of strength · Σ over rows of (log m)², which is 4·log(m)/(n·m)·x, n values."""

    @staticmethod
    def forward(x: Tensor, strength: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        x, ctx.strength = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        rows = x.flatten(1)
        dtype = torch.promote_types(x.dtype, torch.float32)
        mean_square = torch.linalg.vector_norm(rows, dim=1, dtype=dtype).square() / rows.shape[1] + EPSILON
        counts = gradient.flatten(1).any(1)
        factor = counts * (ctx.strength * 4 * mean_square.log() / (rows.shape[1] * mean_square))
        total = torch.addcmul(gradient.to(dtype), x.to(dtype), factor.view(-1, *[1] * (x.dim() - 1)))
        return total.to(gradient.dtype), None
