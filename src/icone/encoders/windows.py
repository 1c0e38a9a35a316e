"""BatchNorm over as many instances as it needs, whatever the batch has: the last ones as well, or groups of it."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from icone.config import REFERENCE_INSTANCES

MOMENTUM = 0.1
"""Of the statistics for evaluation, per 16 instances."""


class WindowedBatchNorm(_BatchNorm):
    """BatchNorm whose statistics are those of 16 or more instances, however few are in the batch.

    BatchNorm over one instance takes away what tells this instance apart, and in evaluation is another function than
    in training. Here mean and variance are moving averages over the last passes, this one included, with the noise
    of a batch of as many instances. The gradient of BatchNorm has two averages over the batch as well, through which
    its mean and variance answer to the weights; they are averaged in the same way, over 16 instances, and where the
    batch has more and `gradient_rows` are given, over groups of so many rows. Without them weights would drift in
    directions that the statistics undo.

    A pass in training changes nothing: `Windows.take` does, after the backward pass. (The compiler may compute parts of
    a forward pass once more in the backward pass; from what has changed meanwhile, they would come out differently.)

    In evaluation, and in its `state_dict`, it is the layer that it replaces.
    """

    window: Tensor
    """Mean and mean square of every channel: (2, C)."""
    slopes: Tensor
    """Mean of the output's gradient, and of its product with the normalised input: (2, C)."""
    seen: Tensor
    """Passes so far."""
    found: tuple[Tensor, Tensor] | None = None
    """The window after the last pass and its variance, until they are taken."""

    def __init__(
        self,
        layer: _BatchNorm,
        batch_size: int,
        instances: int = REFERENCE_INSTANCES,
        gradient_rows: int | None = None,
    ) -> None:
        """Take over a layer: statistics over so many instances, or the batch if it has more."""
        share = min(1.0, batch_size / REFERENCE_INSTANCES)
        super().__init__(layer.num_features, layer.eps, MOMENTUM * share, affine=False)
        # Registered by their old names, so that weights can be exchanged with the ordinary layer.
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked
        self.rate, self.gradient_rate = _rate_for(min(1.0, batch_size / instances)), _rate_for(share)
        self.gradient_rows = gradient_rows
        self.drop, self.act = getattr(layer, "drop", nn.Identity()), getattr(layer, "act", nn.Identity())
        channels = layer.num_features
        self.register_buffer("window", torch.zeros(2, channels), persistent=False)
        self.register_buffer("slopes", torch.zeros(2, channels), persistent=False)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, …) -> (B, C, …)."""
        return cast(Tensor, self.act(self.drop(self._normalise(x) if self.training else super().forward(x))))

    def _normalise(self, x: Tensor) -> Tensor:
        rate, gradient_rate = _average_rate(self.seen, self.rate), _average_rate(self.seen, self.gradient_rate)
        output, window, variance = _Normalise.apply(
            x.to(self.window.dtype),
            self.weight,
            self.bias,
            self.slopes,
            self.window,
            rate,
            gradient_rate,
            1 if self.gradient_rows is None else _groups(len(x), self.gradient_rows),
            self.eps,
        )
        self.found = window, variance
        return cast(Tensor, output).to(x.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions."""


class _Normalise(torch.autograd.Function):
    """The output, the new window and its variance; the gradient of `slopes` is the change that they should make.

    Nothing is changed in place, so that the compiler sees a function, and nothing is converted: around a conversion
    that changes nothing, PyTorch 2.11 compiles all gradients to zero.
    """

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        slopes: Tensor,
        window: Tensor,
        rate: Tensor,
        gradient_rate: Tensor,
        groups: int,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        across = [0, *range(2, x.dim())]
        window = torch.lerp(window, torch.stack([x.mean(across), x.square().mean(across)]), rate)
        scale = _inverse_deviation(window, eps)
        if weight is not None:
            scale = scale * weight
        return (
            _affine(x, scale, -window[0] * scale if bias is None else bias - window[0] * scale),
            window,
            _variance(window),
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        x, weight, _, slopes, _, _, gradient_rate, ctx.groups, ctx.eps = inputs
        _, window, variance = output
        ctx.mark_non_differentiable(window, variance)
        ctx.save_for_backward(x, weight, window, slopes, gradient_rate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _window: Tensor, _variance: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, window, slopes, gradient_rate = ctx.saved_tensors
        across = [0, *range(2, x.dim())]
        scale = _inverse_deviation(window, ctx.eps)
        normalised = _affine(x, scale, -window[0] * scale)
        sums = torch.stack([gradient.sum(across), (gradient * normalised).sum(across)])
        bias_gradient, weight_gradient = (None, None) if weight is None else sums.unbind()
        factor = torch.ones_like(window[0]) if weight is None else weight
        if ctx.groups > 1:
            sums = torch.stack([_sums_by_group(t, ctx.groups) for t in (gradient, gradient * normalised)], 1)
        averages = sums * factor * (x.shape[1] * ctx.groups / x.numel())
        change = gradient_rate * (averages - slopes)
        mean, product = _by_row(slopes + change, x, ctx.groups).unbind(-2)
        if ctx.groups > 1:
            change = change.mean(0)
        inner = _affine(gradient, scale * factor, -scale * mean)
        inner = torch.addcmul(inner, normalised, _along_channels(-scale * product, x))
        return inner, weight_gradient, bias_gradient, change, None, None, None, None, None


def _rate_for(share: float) -> float:
    """The rate of a moving average with the noise of so many passes as one pass is this share of."""
    return 2 * share / (1 + share)


def _average_rate(seen: Tensor, rate: float) -> Tensor:
    """The rate of a moving average; until that has begun, of the average over all passes."""
    return (1 / (seen + 1)).clamp_min(rate)


def _variance(window: Tensor) -> Tensor:
    return (window[1] - window[0].square()).clamp_min(0)


def _inverse_deviation(window: Tensor, eps: float) -> Tensor:
    return (_variance(window) + eps).rsqrt()


def _groups(rows: int, least: int) -> int:
    """Of equal size, with at least so many rows, if there are that many.

    >>> [_groups(rows, 32) for rows in (2, 32, 62, 128, 130)]
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


def window_batch_norm(
    network: nn.Module, batch_size: int, instances: int = REFERENCE_INSTANCES, gradient_rows: int | None = None
) -> None:
    """Exchange every BatchNorm below a network, in place, if batches have too few instances for its statistics.

    With `gradient_rows` for any batch: its gradient's averages are then over groups of so many rows.
    """
    if batch_size >= instances and gradient_rows is None:
        return
    for name, child in network.named_children():
        if isinstance(child, _BatchNorm) and not isinstance(child, WindowedBatchNorm):
            setattr(network, name, WindowedBatchNorm(child, batch_size, instances, gradient_rows))
        else:
            window_batch_norm(child, batch_size, instances, gradient_rows)


class Windows:
    """All windowed layers of a training: what they keep besides the weights, and its update after a step."""

    def __init__(self, network: nn.Module) -> None:
        self.layers = {name: m for name, m in network.named_modules() if isinstance(m, WindowedBatchNorm)}
        for layer in self.layers.values():
            layer.slopes = layer.slopes.detach().requires_grad_()

    @torch.no_grad()
    def take(self) -> None:
        """After a pass, and its backward pass if there is one: keep what it found.

        All layers in a few operations: at batch size 1 the launches of a loop would count.
        """
        passed = [(layer, layer.found) for layer in self.layers.values() if layer.found]
        if not passed:
            return
        layers = [layer for layer, _ in passed]
        torch._foreach_copy_([layer.window for layer in layers], [window for _, (window, _) in passed])
        running = [cast(Tensor, t) for layer in layers for t in (layer.running_mean, layer.running_var)]
        steps = torch._foreach_sub([t for _, (window, variance) in passed for t in (window[0], variance)], running)
        torch._foreach_mul_(steps, _average_rate(layers[0].seen, cast(float, layers[0].momentum)))
        torch._foreach_add_(running, steps)
        torch._foreach_add_([layer.seen for layer in layers], 1)
        reached = [layer.slopes for layer in layers if layer.slopes.grad is not None]
        if reached:
            torch._foreach_add_(reached, [cast(Tensor, slopes.grad) for slopes in reached])
        for layer in layers:
            layer.found = layer.slopes.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """By layer and name."""
        return {
            f"{name}/{kept}": getattr(layer, kept)
            for name, layer in self.layers.items()
            for kept in ("window", "slopes", "seen")
        }

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        own = self.tensors()
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
