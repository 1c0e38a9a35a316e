"""BatchNorm statistics of a network that has not been trained.

A new BatchNorm layer holds the mean 0 and the variance 1. In evaluation it then normalises nothing, and the network is
a function that training never starts from. Calibration gives every layer the statistics that training would have found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from icone.nn.batchnorm import REFERENCE_SAMPLES, MovingAverageBatchNorm

CALIBRATION_BATCHES = 16
"""Batches of 16 samples, 256 in all, that give an untrained network its statistics: a few seconds on two cores."""


def calibration_rows(
    samples: int, batches: int = CALIBRATION_BATCHES, at_once: int = REFERENCE_SAMPLES
) -> list[Tensor]:
    """Positions of samples in batches of 16, mixed by a fixed seed, because neighbours are often of one class.

    Where memory holds only `at_once` samples, a batch has so many, and two at least.

    >>> [len(rows) for rows in calibration_rows(33)], [len(rows) for rows in calibration_rows(1000, 2, at_once=1)]
    ([16, 16], [2, 2])
    """
    mixed = torch.randperm(samples, generator=torch.Generator().manual_seed(0))
    size = max(2, min(REFERENCE_SAMPLES, at_once))
    return [rows for rows in mixed.split(size)[:batches] if len(rows) > 1]


Layer = _BatchNorm | MovingAverageBatchNorm


def batch_norm_layers(network: nn.Module) -> list[Layer]:
    """The BatchNorm layers of a network that keep statistics for evaluation."""
    return [m for m in network.modules() if isinstance(m, Layer) and m.running_mean is not None]


@torch.no_grad()
def calibrate_batch_norm(
    network: nn.Module,
    batches: Iterable[Tensor],
    encode: Callable[[Tensor], object],
    kept: Collection[nn.Module] = (),
) -> None:
    """Set the running mean and variance of every BatchNorm layer to the average over batches.

    `encode` passes a batch through the network. Each layer normalises it by the batch's own mean and variance, as in
    training, while the network is in evaluation mode: nothing random happens inside it, and no state but the running
    statistics is touched, whatever a kind of BatchNorm does in training. Layers in `kept`, and a network without such
    layers, are left alone.
    """
    layers = [layer for layer in batch_norm_layers(network) if layer not in kept]
    if not layers:
        return
    found: dict[nn.Module, list[Tensor]] = {layer: [] for layer in layers}

    def use_batch_statistics(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].float()
        across = [0, *range(2, x.dim())]
        variance, mean = torch.var_mean(x, across, correction=0)
        values = x.numel() // x.shape[1]
        unbiased = variance * values / max(values - 1, 1)  # what PyTorch keeps
        found[layer].append(torch.stack([mean, unbiased]))
        _set_statistics(cast(Layer, layer), mean, variance)

    training = network.training
    handles = [layer.register_forward_pre_hook(use_batch_statistics) for layer in layers]
    try:
        network.eval()
        for batch in batches:
            encode(batch)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    for layer in layers:
        if found[layer]:  # a layer that no batch passes through has nothing to learn from them
            mean, variance = torch.stack(found[layer]).mean(0).unbind()
            _set_statistics(layer, mean, variance)


@contextlib.contextmanager
def kept_statistics(network: nn.Module) -> Iterator[None]:
    """Give the BatchNorm layers of a network back the running statistics that they had, bit for bit."""
    layers = batch_norm_layers(network)
    before = [(cast(Tensor, layer.running_mean).clone(), cast(Tensor, layer.running_var).clone()) for layer in layers]
    try:
        yield
    finally:
        for layer, (mean, variance) in zip(layers, before, strict=True):
            _set_statistics(layer, mean, variance)


@torch.no_grad()
def _set_statistics(layer: Layer, mean: Tensor, variance: Tensor) -> None:
    cast(Tensor, layer.running_mean).copy_(mean)
    cast(Tensor, layer.running_var).copy_(variance)
