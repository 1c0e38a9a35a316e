"""Moving-average BatchNorm for small batches."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

REFERENCE_SAMPLES = 16
"""Samples over which statistics and gradients are averaged: the smallest batch that BatchNorm is known to work with."""
MOMENTUM = 0.1
"""Momentum of the running statistics that evaluation uses, per 16 samples."""


AVERAGES = ("moving", "gradient_means", "passes")
"""Buffers of a moving-average BatchNorm that an ordinary one does not have."""


class MovingAverageBatchNorm(nn.Module):
    """BatchNorm whose statistics reach back over the last passes, so that a batch may be one sample.

    BatchNorm over one sample removes what tells this sample apart, and is another function in evaluation than in
    training. This layer normalises by moving averages of the mean μ and the variance σ² that include the pass itself:

        μ ← μ + r·(m − μ),    σ² ← σ² + r·(v − σ²) + r·(1 − r)·(m − μ)²,    y = γ·(x − μ)/√(σ² + ε) + β,

    where m and v are the statistics of the pass, and r gives the averages the variance of a mean over `samples`. The
    backward pass of BatchNorm has two averages over the batch as well: that of the gradient, and that of its product
    with the normalised input. They are averaged over the last passes in the same way, over 16 samples. Without them the
    weights drift in directions that the statistics undo. This is the idea of Yan et al. 2020 (arXiv:2001.06838, MABN);
    here the forward averages include the present pass, and weights are not centred.

    The layer updates its averages by itself, in every pass in training mode. `MovingStatistics` can take that over, so
    that a compiled step does it for all layers at once. In evaluation it is the layer that it replaces. Its
    `state_dict` has the averages besides, so that a training can go on. `plain_state_dict` leaves them out, and weights
    of an ordinary network can be loaded: the averages then begin anew.

    >>> layer = MovingAverageBatchNorm(nn.BatchNorm1d(3), batch_size=1)
    >>> layer(torch.randn(2, 3)).shape          # two views of one sample
    torch.Size([2, 3])
    """

    running_mean: Tensor
    running_var: Tensor
    moving: Tensor
    """Mean and variance of every channel that training normalises by: (2, C)."""
    gradient_means: Tensor
    """Mean of the output's gradient, and of its product with the normalised input: (2, C)."""
    passes: Tensor
    """Passes so far; the averages of the first ones are plain means."""

    def __init__(
        self,
        layer: _BatchNorm,
        batch_size: int,
        samples: int = REFERENCE_SAMPLES,
        gradient_rows: int | None = None,
    ) -> None:
        """Take over the parameters of `layer` for passes of `batch_size` samples.

        Statistics are averaged over so many `samples`, or over the batch if it has more. Gradients are averaged over 16
        samples; where a batch has more and `gradient_rows` is given, within groups of so many rows.
        """
        super().__init__()
        share = min(1.0, batch_size / REFERENCE_SAMPLES)
        self.num_features, self.eps = layer.num_features, layer.eps
        self.rate, self.gradient_rate = _rate_for(min(1.0, batch_size / samples)), _rate_for(share)
        self.running_rate = MOMENTUM * share
        self.gradient_rows = gradient_rows
        # Under the names of the ordinary layer, so that weights can be exchanged with it.
        self.weight, self.bias = layer.weight, layer.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(layer, name))
        # timm has BatchNorm layers with an activation inside.
        self.drop, self.act = getattr(layer, "drop", nn.Identity()), getattr(layer, "act", nn.Identity())
        for name, shape in (
            ("moving", (2, self.num_features)),
            ("gradient_means", (2, self.num_features)),
            ("passes", ()),
        ):
            self.register_buffer(name, torch.zeros(shape))
        self.deferred = False
        self.pending: tuple[Tensor, Tensor, Tensor, int] | None = None
        """Deferred: what `moving`, the running statistics and `passes` become, and of how many passes that is."""
        self.earlier_passes = 0
        """Deferred: passes since the last update that `pending` no longer counts."""
        self.repeats = False
        """Whether passes repeat earlier ones: `icone.nn.recomputation` sets it, and takes care of the state."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, …) -> (B, C, …)."""
        if not self.training:
            y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        elif self.deferred:
            y = self._normalise_deferred(x)
        else:
            y = self._normalise(x)
        return cast(Tensor, self.act(self.drop(y)))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take over the weights of an ordinary layer too: its averages begin anew."""
        begin_anew = {f"{prefix}{name}": torch.zeros_like(getattr(self, name)) for name in AVERAGES}
        super()._load_from_state_dict(begin_anew | state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, rate={self.rate:.3g}"

    def begin_pass(self) -> None:
        """Called before each of several passes of a step: to a compiler they then look alike."""
        if self.deferred and self.training:
            moving, running, passes, count = self.pending or (self.moving.clone(), self._running(), self.passes + 0, 0)
            self.pending = moving, running, passes, 0
            self.earlier_passes += count

    # A compiler may compute the forward pass anew in the backward pass, from other averages. This is
    # `torch.compiler.disable`, which does not load the compiler before it is needed: that takes seconds.
    @torch._disable_dynamo  # type: ignore[attr-defined]
    def _normalise(self, x: Tensor) -> Tensor:
        self._refuse_recomputation()
        output = _NormaliseAndUpdate.apply(x.to(self.moving.dtype), self.weight, self.bias, self)
        return cast(Tensor, output).to(x.dtype)

    def _normalise_deferred(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self._refuse_recomputation()
        moving, running, passes, count = self.pending or (self.moving, self._running(), self.passes, 0)
        output, moving = _NormaliseDeferred.apply(
            x.to(self.moving.dtype),
            self.weight,
            self.bias,
            self.gradient_means,
            moving,
            _average_rate(passes, self.rate),
            _average_rate(passes, self.gradient_rate),
            self._groups(x),
            self.eps,
        )
        running = torch.lerp(running, moving, _average_rate(passes, self.running_rate))
        self.pending = moving, running, passes + 1, count + 1
        return cast(Tensor, output).to(x.dtype)

    def _running(self) -> Tensor:
        return torch.stack([self.running_mean, self.running_var])

    def _refuse_recomputation(self) -> None:
        """Refuse a forward pass inside a backward pass, unless it repeats one: the averages have moved on."""
        if not self.repeats and torch._C._current_graph_task_id() != -1:  # there is no public name for it
            raise RuntimeError(
                "a moving-average BatchNorm cannot be recomputed in the backward pass, because its averages include "
                "the first pass already: use icone.nn.Recomputation for activation checkpointing, or give "
                "torch.utils.checkpoint context_fn=lambda: icone.nn.same_state(network)"
            )

    def _groups(self, x: Tensor) -> int:
        return 1 if self.gradient_rows is None else _groups(len(x), self.gradient_rows)


class _NormaliseAndUpdate(torch.autograd.Function):
    """The pass of a layer that updates its own averages: statistics in the forward pass, the rest in the backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: MovingAverageBatchNorm
    ) -> Tensor:
        moving = _new_statistics(layer.moving, x, _average_rate(layer.passes, layer.rate))
        ctx.gradient_rate = _average_rate(layer.passes, layer.gradient_rate)
        running_rate = _average_rate(layer.passes, layer.running_rate)
        for running, value in zip((layer.running_mean, layer.running_var), moving, strict=True):
            running.lerp_(value, running_rate.to(running))
        layer.moving.copy_(moving)
        layer.passes.add_(1)
        ctx.layer = layer
        ctx.save_for_backward(x, weight, moving)
        return _scale(x, weight, bias, moving, layer.eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, moving = ctx.saved_tensors
        layer: MovingAverageBatchNorm = ctx.layer
        inner, weight_gradient, bias_gradient, change = _backward(
            gradient, x, weight, moving, layer.gradient_means, ctx.gradient_rate, layer._groups(x), layer.eps
        )
        layer.gradient_means.add_(change)
        return inner, weight_gradient, bias_gradient, None


class _NormaliseDeferred(torch.autograd.Function):
    """The same without any change in place, for compilers: `gradient_means.grad` carries their change out of backward.

    Nothing is converted here: around a conversion that changes nothing, PyTorch 2.11 compiles all gradients to zero.
    """

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        gradient_means: Tensor,
        moving: Tensor,
        rate: Tensor,
        gradient_rate: Tensor,
        groups: int,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        moving = _new_statistics(moving, x, rate)
        return _scale(x, weight, bias, moving, eps), moving

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weight, _, gradient_means, _, _, gradient_rate, ctx.groups, ctx.eps = inputs
        _, moving = output
        ctx.mark_non_differentiable(moving)
        ctx.save_for_backward(x, weight, moving, gradient_means, gradient_rate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _moving: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, moving, gradient_means, gradient_rate = ctx.saved_tensors
        results = _backward(gradient, x, weight, moving, gradient_means, gradient_rate, ctx.groups, ctx.eps)
        return *results, None, None, None, None, None


def _new_statistics(moving: Tensor, x: Tensor, rate: Tensor) -> Tensor:
    """Moving mean and variance (2, C) that include a pass: those of a mixture with the share `rate` of the pass.

    The variance of the pass is that of x minus one of its values, so that a large mean takes no digits away from it.
    """
    across = [0, *range(2, x.dim())]
    shift = x[0]
    while shift.dim() > 1:
        shift = shift[..., 0]
    shifted = x - _along_channels(shift, x)
    mean = shifted.mean(across)
    variance = (shifted.square().mean(across) - mean.square()).clamp_min(0)
    apart = mean + shift - moving[0]
    mixed = torch.lerp(moving[1], variance, rate) + (rate * (1 - rate)) * apart.square()
    return torch.stack([moving[0] + rate * apart, mixed])


def _scale(x: Tensor, weight: Tensor | None, bias: Tensor | None, moving: Tensor, eps: float) -> Tensor:
    scale = (moving[1] + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    return _affine(x, scale, -moving[0] * scale if bias is None else bias - moving[0] * scale)


SLICED_ELEMENTS, SLICE_CHANNELS = 2**27, 16
"""From so many numbers on, an input is taken so many channels at a time in the backward pass, because what is computed
in between would take several times its memory. Channels are independent, and 16 fill what a GPU loads at once."""


def _backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    moving: Tensor,
    gradient_means: Tensor,
    gradient_rate: Tensor,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """`_backward_of_channels`, of few channels at a time where the input is large and nothing is compiled."""
    if torch.compiler.is_compiling() or x.numel() < SLICED_ELEMENTS or x.shape[1] <= SLICE_CHANNELS:
        return _backward_of_channels(gradient, x, weight, moving, gradient_means, gradient_rate, groups, eps)
    inner, others = torch.empty_like(x), []
    for first in range(0, x.shape[1], SLICE_CHANNELS):
        some = slice(first, first + SLICE_CHANNELS)
        own = None if weight is None else weight[some]
        inner[:, some], *rest = _backward_of_channels(
            gradient[:, some], x[:, some], own, moving[:, some], gradient_means[:, some], gradient_rate, groups, eps
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
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of input, weight and bias, and the change of `gradient_means`.

    With x̂ the normalised input and g the gradient times γ: ∂x = (g − mean(g) − x̂·mean(g·x̂)) / √(σ² + ε), where both
    means are the moving ones.
    """
    across = [0, *range(2, x.dim())]
    scale = (moving[1] + eps).rsqrt()
    normalised = _affine(x, scale, -moving[0] * scale)
    sums = torch.stack([gradient.sum(across), (gradient * normalised).sum(across)])
    bias_gradient, weight_gradient = (None, None) if weight is None else sums.unbind()
    factor = torch.ones_like(moving[0]) if weight is None else weight
    if groups > 1:
        sums = torch.stack([_sums_by_group(t, groups) for t in (gradient, gradient * normalised)], 1)
    averages = sums * factor * (x.shape[1] * groups / x.numel())
    change = gradient_rate * (averages - gradient_means)
    mean, product = _by_row(gradient_means + change, x, groups).unbind(-2)
    if groups > 1:
        change = change.mean(0)
    inner = _affine(gradient, scale * factor, -scale * mean)
    inner = torch.addcmul(inner, normalised, _along_channels(-scale * product, x))
    return inner, weight_gradient, bias_gradient, change


def _rate_for(share: float) -> float:
    """The rate of a moving average with the variance of a mean over 1/share passes: 2s/(1 + s)."""
    return 2 * share / (1 + share)


def _average_rate(passes: Tensor, rate: float) -> Tensor:
    """The rate of a moving average; in the first passes that of the mean over all of them."""
    return (1 / (passes + 1)).clamp_min(rate)


def _joint_change(layer: MovingAverageBatchNorm, passes: int) -> Tensor:
    """What the summed changes of several passes are multiplied by, so that they move an average as one after another.

    Each pass knows the average before the step only. One after another they move it by 1 − Π(1 − r) of the way to their
    mean, all of them from the same start by Σ r.
    """
    rates = _average_rate(layer.passes + torch.arange(passes, device=layer.passes.device), layer.gradient_rate)
    return (1 - (1 - rates).prod()) / rates.sum()


def _groups(rows: int, least: int) -> int:
    """The number of groups of equal size, with at least so many rows each, if there are that many.

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


def convert_batch_norm(
    network: nn.Module, batch_size: int, samples: int = REFERENCE_SAMPLES, gradient_rows: int | None = None
) -> nn.Module:
    """Exchange every BatchNorm of a network, in place, if batches have fewer samples than its statistics need.

    With `gradient_rows` for any batch: its gradients are then averaged within groups of so many rows. The result is the
    network, or the new layer where the network is a BatchNorm itself.

    >>> convert_batch_norm(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), batch_size=1)[1]
    MovingAverageBatchNorm(
      3, eps=1e-05, rate=0.118
      (drop): Identity()
      (act): Identity()
    )
    """
    if batch_size >= samples and gradient_rows is None:
        return network
    if isinstance(network, _BatchNorm) and network.track_running_stats:
        return MovingAverageBatchNorm(network, batch_size, samples, gradient_rows)
    for name, child in network.named_children():
        setattr(network, name, convert_batch_norm(child, batch_size, samples, gradient_rows))
    return network


class MovingStatistics:
    """The averages of all moving-average BatchNorm layers of a network, updated together after a step.

    A layer that updates itself launches a few small kernels of its own, and cannot be compiled as a whole. From the
    moment this is made, the layers leave what they found in `pending`, and `update` writes all of it at once: the same
    numbers. A second pass before an update continues the first.
    """

    def __init__(self, network: nn.Module) -> None:
        self.layers = {name: m for name, m in network.named_modules() if isinstance(m, MovingAverageBatchNorm)}
        for layer in self.layers.values():
            layer.deferred = True
            layer.gradient_means = layer.gradient_means.detach().requires_grad_()

    def begin(self) -> None:
        """Forget what a step that failed has left."""
        for layer in self.layers.values():
            layer.pending = layer.gradient_means.grad = None
            layer.earlier_passes = 0

    @torch.no_grad()
    def update(self) -> None:
        """Keep what the passes since the last update found, and their backward passes if there were any."""
        found = [(layer, layer.pending) for layer in self.layers.values() if layer.pending]
        if not found:
            return
        buffers = [t for layer, _ in found for t in (layer.moving, layer.running_mean, layer.running_var, layer.passes)]
        values = [t for _, (moving, running, passes, _) in found for t in (moving, *running.unbind(), passes)]
        reached = [(layer, count) for layer, (*_, count) in found if layer.gradient_means.grad is not None]
        if reached:
            changes = [cast(Tensor, layer.gradient_means.grad) for layer, _ in reached]
            counts = [layer.earlier_passes + count for layer, count in reached]
            if max(counts) > 1:
                factors = [_joint_change(layer, count) for (layer, _), count in zip(reached, counts, strict=True)]
                torch._foreach_mul_(changes, factors)
            torch._foreach_add_([layer.gradient_means for layer, _ in reached], changes)
        torch._foreach_copy_(buffers, values)
        self.begin()


def plain_state_dict(network: nn.Module) -> dict[str, Tensor]:
    """The `state_dict` of a network as if its BatchNorm layers were ordinary ones, for a network that has such.

    >>> sorted(plain_state_dict(MovingAverageBatchNorm(nn.BatchNorm1d(3), batch_size=1)))
    ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """
    layers = [name for name, m in network.named_modules() if isinstance(m, MovingAverageBatchNorm)]
    own = {f"{name}.{average}".lstrip(".") for name in layers for average in AVERAGES}
    return {name: tensor for name, tensor in network.state_dict().items() if name not in own}
