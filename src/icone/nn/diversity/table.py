"""What the diversity functions share: the arithmetic of the table, and gradients known in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from icone.errors import InputError


@contextmanager
def full_precision(table: Tensor) -> Iterator[Tensor]:
    """Give the checked table (N, d) in float32 or better, with autocast switched off inside the block."""
    if table.ndim != 2 or table.shape[0] == 0:
        raise InputError(f"the table must have one row per instance, shape (N, d), got {tuple(table.shape)}")
    with torch.autocast(table.device.type, enabled=False):
        yield table.to(torch.promote_types(table.dtype, torch.float32))


def attach_gradient(x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """The scalar `value`, whose derivative by `x` is `gradient`, for a function with a closed form of both.

    There is no second derivative: differentiating twice raises.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> y = attach_gradient(x, value=torch.tensor(9.0), gradient=torch.tensor([6.0]))  # x² by hand
    >>> (10 * y).backward()
    >>> x.grad
    tensor([60.])
    """
    attached: Tensor = _KnownGradient.apply(x, value, gradient)
    return attached


class _KnownGradient(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(x, gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        x, gradient = ctx.saved_tensors
        return _DifferentiatedOnce.apply(upstream * gradient, x), None, None


class _DifferentiatedOnce(Function):
    """Passes a gradient on and refuses its own.

    PyTorch's `once_differentiable` is not enough: it takes a gradient whose upstream is constant for a
    constant itself, and the second derivative would come out wrong, without a word.
    """

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, None]:
        raise RuntimeError("this diversity function has no second derivative: it can be differentiated once")
