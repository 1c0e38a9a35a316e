"""BatchNorm over the rows of all ranks that share a batch."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from icone.nn.batchnorm import MovingAverageBatchNorm
from icone.nn.normalisation import normalise, normalise_backward, pass_statistics
from icone.nn.ranks import Ranks, Share


class SharedBatchNorm(_BatchNorm):
    """BatchNorm (Ioffe and Szegedy 2015, arXiv:1502.03167) whose statistics are those of a batch that ranks share.

    It is PyTorch's SyncBatchNorm, which exists for GPUs alone, with shares of different sizes and ranks without a
    share. Where no batch is shared it is the layer that it replaces.
    """

    def __init__(self, layer: _BatchNorm, ranks: Ranks) -> None:
        """Take over the parameters of `layer`, under the same names."""
        super().__init__(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked
        # timm has BatchNorm layers with an activation inside.
        self.drop, self.act = getattr(layer, "drop", nn.Identity()), getattr(layer, "act", nn.Identity())
        self.ranks = ranks
        self.train(layer.training)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions, as the layers that it replaces have."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, …) -> (B, C, …)."""
        shared = self.training and self.ranks.share is not None
        return cast(Tensor, self.act(self.drop(self._normalise(x) if shared else super().forward(x))))

    # Compilers know nothing of messages between processes.
    @torch._disable_dynamo  # type: ignore[attr-defined]
    def _normalise(self, x: Tensor) -> Tensor:
        share = cast(Share, self.ranks.share)
        output, statistics = _Normalise.apply(x.float(), self.weight, self.bias, self.eps, share)
        if self.running_mean is not None and self.running_var is not None:
            cast(Tensor, self.num_batches_tracked).add_(1)
            rate = 1 / cast(Tensor, self.num_batches_tracked) if self.momentum is None else self.momentum
            values = share.total(x) / x.shape[1]
            unbiased = torch.stack([statistics[0], statistics[1] * (values / max(values - 1, 1))])
            for running, value in zip((self.running_mean, self.running_var), unbiased, strict=True):
                running.add_(rate * (value - running))
        return cast(Tensor, output).to(x.dtype)


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, share: Share
    ) -> tuple[Tensor, Tensor]:
        mean, variance, shift = pass_statistics(x)
        statistics = torch.stack(share.merge(mean + shift, variance))
        ctx.eps, ctx.share = eps, share
        ctx.save_for_backward(x, weight, statistics)
        ctx.mark_non_differentiable(statistics)
        return normalise(x, weight, bias, statistics, eps), statistics

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _statistics: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, statistics = ctx.saved_tensors
        nothing, rate = torch.zeros_like(statistics), statistics.new_ones(())
        inner, *of_layer, _ = normalise_backward(gradient, x, weight, statistics, nothing, rate, 1, ctx.eps, ctx.share)
        return inner, *of_layer, None, None


def share_batch_norm(network: nn.Module, ranks: Ranks) -> nn.Module:
    """Let every BatchNorm of a network, in place, take its statistics over the rows of all ranks.

    The result is the network, or the new layer where the network is a BatchNorm itself.
    """
    if isinstance(network, _BatchNorm):
        return SharedBatchNorm(network, ranks)
    if isinstance(network, MovingAverageBatchNorm):
        network.ranks = ranks
    for name, child in network.named_children():
        setattr(network, name, share_batch_norm(child, ranks))
    return network
