"""The arithmetic of BatchNorm by moving averages: statistics of a pass, normalisation, and its backward pass."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from icone.nn.ranks import Share


def new_statistics(moving: Tensor, x: Tensor, rate: Tensor, share: Share | None) -> Tensor:
    """Moving mean and variance (2, C) that include a pass: those of a mixture with the share `rate` of the pass.

    The variance of the pass is that of x minus one of its values, so that a large mean takes no digits away from it.
    """
    mean, variance, shift = pass_statistics(x)
    if share is not None:
        mean, variance = share.merge(mean + shift, variance)
        shift = torch.zeros_like(mean)
    apart = mean + shift - moving[0]
    mixed = torch.lerp(moving[1], variance, rate) + (rate * (1 - rate)) * apart.square()
    return torch.stack([moving[0] + rate * apart, mixed])


def pass_statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of x minus one of its values, and that value: (C) each."""
    across = [0, *range(2, x.dim())]
    shift = x[0]
    while shift.dim() > 1:
        shift = shift[..., 0]
    shifted = x - _along_channels(shift, x)
    mean = shifted.mean(across)
    return mean, (shifted.square().mean(across) - mean.square()).clamp_min(0), shift


def normalise(x: Tensor, weight: Tensor | None, bias: Tensor | None, moving: Tensor, eps: float) -> Tensor:
    """γ·(x − μ)/√(σ² + ε) + β with the statistics (2, C)."""
    scale = (moving[1] + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    return _affine(x, scale, -moving[0] * scale if bias is None else bias - moving[0] * scale)


SLICED_ELEMENTS, SLICE_CHANNELS = 2**27, 16
"""From so many numbers on, an input is taken so many channels at a time in the backward pass, because what is computed
in between would take several times its memory. Channels are independent, and 16 fill what a GPU loads at once."""


def normalise_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    moving: Tensor,
    gradient_means: Tensor,
    gradient_rate: Tensor,
    groups: int,
    eps: float,
    share: Share | None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """`_backward_of_channels`, of few channels at a time where the input is large and nothing is compiled."""
    size = x.numel() if share is None else share.total(x) / share.ranks.size  # all ranks must decide alike
    if torch.compiler.is_compiling() or size < SLICED_ELEMENTS or x.shape[1] <= SLICE_CHANNELS:
        return _backward_of_channels(gradient, x, weight, moving, gradient_means, gradient_rate, groups, eps, share)
    inner, others = torch.empty_like(x), []
    for first in range(0, x.shape[1], SLICE_CHANNELS):
        some = slice(first, first + SLICE_CHANNELS)
        own = None if weight is None else weight[some]
        inner[:, some], *rest = _backward_of_channels(
            gradient[:, some],
            x[:, some],
            own,
            moving[:, some],
            gradient_means[:, some],
            gradient_rate,
            groups,
            eps,
            share,
        )
        others.append(rest)
    of_weight, of_bias, change = zip(*others, strict=True)
    of_parameters = (None, None) if weight is None else (torch.cat(of_weight), torch.cat(of_bias))
    return inner, *of_parameters, torch.cat(change, 1)


def _backward_of_channels(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    moving: Tensor,
    gradient_means: Tensor,
    gradient_rate: Tensor,
    groups: int,
    eps: float,
    share: Share | None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of input, weight and bias, and the change of `gradient_means`.

    With x̂ the normalised input and g the gradient times γ: ∂x = (g − mean(g) − x̂·mean(g·x̂)) / √(σ² + ε), where both
    means are the moving ones. With a share, both are over the rows of all ranks, and the gradients of weight and bias
    those of own rows, to be summed like all others.
    """
    across = [0, *range(2, x.dim())]
    scale = (moving[1] + eps).rsqrt()
    normalised = _affine(x, scale, -moving[0] * scale)
    sums = torch.stack([gradient.sum(across), (gradient * normalised).sum(across)])
    bias_gradient, weight_gradient = (None, None) if weight is None else sums.unbind()
    factor = torch.ones_like(moving[0]) if weight is None else weight
    if groups > 1:
        sums = torch.stack([_sums_by_group(t, groups) for t in (gradient, gradient * normalised)], 1)
    values: float = x.numel()
    if share is not None:
        assert groups == 1, "groups of rows are of one process"
        sums, values = share.ranks.sum(sums), share.total(x)
    averages = sums * factor * (x.shape[1] * groups / values)
    change = gradient_rate * (averages - gradient_means)
    mean, product = _by_row(gradient_means + change, x, groups).unbind(-2)
    if groups > 1:
        change = change.mean(0)
    inner = _affine(gradient, scale * factor, -scale * mean)
    inner = torch.addcmul(inner, normalised, _along_channels(-scale * product, x))
    if share is not None and share.is_empty:
        inner = torch.zeros_like(inner)
    return inner, weight_gradient, bias_gradient, change


def rate_of_share(share: float) -> float:
    """The rate of a moving average with the variance of a mean over 1/share passes: 2s/(1 + s)."""
    return 2 * share / (1 + share)


def average_rate(passes: Tensor, rate: float) -> Tensor:
    """The rate of a moving average; in the first passes that of the mean over all of them."""
    return (1 / (passes + 1)).clamp_min(rate)


def count_groups(rows: int, least: int) -> int:
    """The number of groups of equal size, with at least so many rows each, if there are that many.

    >>> [count_groups(rows, 32) for rows in (2, 32, 62, 128, 130)]
    [1, 1, 1, 4, 2]
    """
    return next(groups for groups in range(max(1, rows // least), 0, -1) if rows % groups == 0)


def _sums_by_group(x: Tensor, groups: int) -> Tensor:
    """(B, C, …) -> (groups, C)."""
    return cast(Tensor, x.unflatten(0, (groups, -1)).sum([1, *range(3, x.dim() + 1)]))


def _by_row(values: Tensor, x: Tensor, groups: int) -> Tensor:
    """What every row of x gets of its group's values: (groups, 2, C) -> (B, 2, C); of the only group's as it is."""
    return values if groups == 1 else values.repeat_interleave(len(x) // groups, 0)


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x · scale + shift by channel, in one pass over x."""
    return torch.addcmul(_along_channels(shift, x), x, _along_channels(scale, x))


def _along_channels(values: Tensor, x: Tensor) -> Tensor:
    """(C) or (B, C) -> what broadcasts with (B, C, …)."""
    return values.view(*values.shape, *[1] * (x.dim() - 2))
