"""Activations that the backward pass computes again instead of keeping them: checkpointing, and micro-batches.

Chen et al. 2016, arXiv:1604.06174 (activation checkpointing); Gao et al. 2021, arXiv:2101.06983 (gradient caching).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from icone.nn.batchnorm import MovingAverageBatchNorm

Contexts = tuple[AbstractContextManager[None], AbstractContextManager[None]]
_random_networks: WeakSet[nn.Module] = WeakSet()
"""Networks that have drawn random numbers on a GPU, as the steps before a capture show."""


class Recomputation:
    """Calls a function of a network, keeps its inputs only, and calls it again in the backward pass.

    This is `torch.utils.checkpoint` with what a training step needs besides. The second call computes what the first
    did: it draws the same random numbers, BatchNorm has the same statistics, and buffers of the network are left as the
    first call left them. Gradients are those without it. It can be captured as a CUDA graph, unless the function draws
    random numbers: a captured step cannot draw them a second time, and the error says so.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    >>> Recomputation(network, network)(torch.ones(4, 2)).sum().backward()
    >>> network[0].weight.grad.shape
    torch.Size([3, 2])
    """

    def __init__(self, network: nn.Module, function: Callable[..., Tensor]) -> None:
        """`network` holds the buffers and BatchNorm layers of the function."""
        self.network, self.function = network, function

    def __call__(self, *inputs: Any, **named: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return self.function(*inputs, **named)
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        if capturing and self.network in _random_networks:
            raise RuntimeError(
                "a network that draws random numbers, as dropout does, cannot compute its activations again in a "
                "captured step"
            )
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        before = [value._version for value in tensors]
        drawn = _random_numbers_drawn(tensors) if not capturing else None
        output = checkpoint(
            self.function,
            *inputs,
            use_reentrant=False,
            preserve_rng_state=not capturing,
            context_fn=lambda: same_state(self.network),
            **named,
        )
        if not capturing and drawn != _random_numbers_drawn(tensors):
            _random_networks.add(self.network)
        if [value._version for value in tensors] != before:
            raise RuntimeError(
                f"{type(self.network).__name__} changes its input in place, so that its activations cannot be computed "
                "again: build it with inplace=False, or leave checkpointing off"
            )
        return output


def in_micro_batches(network: nn.Module, function: Callable[..., Tensor], *rows: Tensor, size: int) -> Tensor:
    """A function of the rows of tensors, in passes of at most `size` rows, in the memory of one of them.

    The passes have nearly equal numbers of rows. Every pass but the last is computed again in the backward pass, which
    begins with the last. Without gradients there is nothing to compute again.

    >>> network = nn.Linear(2, 3)
    >>> x = torch.randn(5, 2)
    >>> in_micro_batches(network, network, x, size=2).allclose(network(x))
    True
    """
    passes = list(zip(*(micro_batches(x, size) for x in rows), strict=True))
    again = Recomputation(network, function)
    results = []
    for number, part in enumerate(passes, 1):
        for layer in moving_average_layers(network):
            layer.begin_pass()
        results.append(function(*part) if number == len(passes) else again(*part))
    return torch.cat(results)


def micro_batches(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Parts of at most `size` rows, of nearly equal number.

    >>> [len(part) for part in micro_batches(torch.zeros(16), 3)], len(micro_batches(torch.zeros(4), 8))
    ([3, 3, 3, 3, 2, 2], 1)
    """
    return x.tensor_split(-(-len(x) // size))


def moving_average_layers(network: nn.Module) -> list[MovingAverageBatchNorm]:
    return [layer for layer in network.modules() if isinstance(layer, MovingAverageBatchNorm)]


def same_state(network: nn.Module) -> Contexts:
    """Contexts of a first pass and of one that repeats it: a `context_fn` of `torch.utils.checkpoint`.

    The second pass begins with the state that the network has now, and ends with the one that it had before. The state
    is what the buffers hold, and what moving-average BatchNorm layers have found since the last update.
    """
    layers = moving_average_layers(network)
    deferred = {id(buffer) for layer in layers if layer.deferred for buffer in layer.buffers()}
    buffers = [buffer for buffer in network.buffers() if id(buffer) not in deferred]
    first = _copies(buffers), [layer.pending for layer in layers]

    def set_state(tensors: list[Tensor], pending: list[Any]) -> None:
        for buffer, value in zip(buffers, tensors, strict=True):
            buffer.data.copy_(value)  # autograd may hold the buffer, though it does not use it
        for layer, found in zip(layers, pending, strict=True):
            layer.pending = found

    @contextmanager
    def repeated() -> Iterator[None]:
        present = _copies(buffers), [layer.pending for layer in layers]
        set_state(*first)
        for layer in layers:
            layer.repeats = True
        try:
            yield
        finally:
            set_state(*present)
            for layer in layers:
                layer.repeats = False

    return nullcontext(), repeated()


@torch.no_grad()
def _copies(buffers: list[Tensor]) -> list[Tensor]:
    return [buffer.detach().clone() for buffer in buffers]


def _random_numbers_drawn(tensors: list[Tensor]) -> int | None:
    """How far the random generator of the GPU has come; None on other devices, where states can always be kept."""
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
    if device is None:
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index].get_offset()
