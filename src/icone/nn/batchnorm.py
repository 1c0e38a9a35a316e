"""Moving-average BatchNorm for small batches."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from icone.nn.normalisation import (
    average_rate,
    count_groups,
    new_statistics,
    normalise,
    normalise_backward,
    rate_of_share,
)
from icone.nn.ranks import Ranks, Share

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
    ranks: Ranks | None = None
    """The processes that have shares of a pass: statistics and gradients are then averaged over all of them."""

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
        self.rate, self.gradient_rate = rate_of_share(min(1.0, batch_size / samples)), rate_of_share(share)
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
        elif self.deferred and self._share() is None:
            y = self._normalise_deferred(x)
        elif self.deferred:
            y = self._normalise_shared(x)
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
            average_rate(passes, self.rate),
            average_rate(passes, self.gradient_rate),
            self._groups(x),
            self.eps,
            self._share(),
        )
        running = torch.lerp(running, moving, average_rate(passes, self.running_rate))
        self.pending = moving, running, passes + 1, count + 1
        return cast(Tensor, output).to(x.dtype)

    # Compilers know nothing of messages between processes.
    @torch._disable_dynamo  # type: ignore[attr-defined]
    def _normalise_shared(self, x: Tensor) -> Tensor:
        return self._normalise_deferred(x)

    def _share(self) -> Share | None:
        return None if self.ranks is None else self.ranks.share

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
        return 1 if self.gradient_rows is None else count_groups(len(x), self.gradient_rows)


class _NormaliseAndUpdate(torch.autograd.Function):
    """The pass of a layer that updates its own averages: statistics in the forward pass, the rest in the backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, layer: MovingAverageBatchNorm
    ) -> Tensor:
        ctx.share = layer._share()
        moving = new_statistics(layer.moving, x, average_rate(layer.passes, layer.rate), ctx.share)
        ctx.gradient_rate = average_rate(layer.passes, layer.gradient_rate)
        running_rate = average_rate(layer.passes, layer.running_rate)
        for running, value in zip((layer.running_mean, layer.running_var), moving, strict=True):
            running.lerp_(value, running_rate.to(running))
        layer.moving.copy_(moving)
        layer.passes.add_(1)
        ctx.layer = layer
        ctx.save_for_backward(x, weight, moving)
        return normalise(x, weight, bias, moving, layer.eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, moving = ctx.saved_tensors
        layer: MovingAverageBatchNorm = ctx.layer
        inner, weight_gradient, bias_gradient, change = normalise_backward(
            gradient, x, weight, moving, layer.gradient_means, ctx.gradient_rate, layer._groups(x), layer.eps, ctx.share
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
        share: Share | None,
    ) -> tuple[Tensor, Tensor]:
        moving = new_statistics(moving, x, rate, share)
        return normalise(x, weight, bias, moving, eps), moving

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weight, _, gradient_means, _, _, gradient_rate, ctx.groups, ctx.eps, ctx.share = inputs
        _, moving = output
        ctx.mark_non_differentiable(moving)
        ctx.save_for_backward(x, weight, moving, gradient_means, gradient_rate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _moving: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, moving, gradient_means, gradient_rate = ctx.saved_tensors
        results = normalise_backward(
            gradient, x, weight, moving, gradient_means, gradient_rate, ctx.groups, ctx.eps, ctx.share
        )
        return *results, None, None, None, None, None, None


def _joint_change(layer: MovingAverageBatchNorm, passes: int) -> Tensor:
    """What the summed changes of several passes are multiplied by, so that they move an average as one after another.

    Each pass knows the average before the step only. One after another they move it by 1 − Π(1 − r) of the way to their
    mean, all of them from the same start by Σ r.
    """
    rates = average_rate(layer.passes + torch.arange(passes, device=layer.passes.device), layer.gradient_rate)
    return (1 - (1 - rates).prod()) / rates.sum()


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
