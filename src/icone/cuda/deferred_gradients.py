"""Weight gradients on a side stream: nothing in the backward pass waits for them, only the update does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders.layers import SmallMapConv3d

Converted: TypeAlias = tuple[Tensor, Tensor | None]


class WeightGradients:
    """A stream for the weight gradients of backward passes, and where in memory they put them."""

    _by_stream: ClassVar[dict[int, WeightGradients]] = {}
    """Who serves the backward passes of a stream; passes of other streams compute everything in order."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.results: list[int] = []
        self.read: list[Tensor] = []
        """What may still be read on the stream. As long as someone holds it, its memory is not given away, and autograd
        adds nothing to it in place."""

    @contextmanager
    def during_backward(self) -> Iterator[None]:
        """Serve the backward passes of the current stream."""
        current = torch.cuda.current_stream()
        self.results.clear()
        self.stream.wait_stream(current)
        self._by_stream[current.cuda_stream] = self
        try:
            yield
        finally:
            del self._by_stream[current.cuda_stream]
            current.wait_stream(self.stream)
            self.read.clear()

    def check(self, parameters: list[nn.Parameter]) -> None:
        """Every result must have become the gradient of a parameter as it is.

        Whatever autograd does to a gradient, such as adding another one to it, it does on the stream of the backward
        pass, which has not waited for it.
        """
        taken = [p.grad.data_ptr() for p in parameters if p.grad is not None]
        if not set(self.results) <= set(taken) or len(set(self.results)) < len(self.results):
            raise RuntimeError("a weight takes part twice in a step, so its gradient cannot be computed beside")

    @classmethod
    @contextmanager
    def _serving(cls, *inputs: Tensor) -> Iterator[list[Tensor]]:
        """Compute what is put into the list, from these inputs, on the stream that serves the current one."""
        results: list[Tensor] = []
        side = cls._by_stream.get(torch.cuda.current_stream().cuda_stream) if inputs[0].is_cuda else None
        if side is None:
            yield results
            return
        side.stream.wait_stream(torch.cuda.current_stream())
        side.read += inputs
        with torch.cuda.stream(side.stream):
            yield results
        side.results += [result.data_ptr() for result in results]


# The compiler must not look into what follows: it knows nothing of streams.


@torch.library.custom_op("icone::linear_gradients", mutates_args=())
def linear_gradients(gradient: Tensor, x: Tensor, bias: bool) -> list[Tensor]:
    """Gradients of the weight, and of the bias if there is one, in float32, from rows."""
    with WeightGradients._serving(gradient, x) as results:
        if gradient.is_cuda and gradient.dtype != torch.float32:
            results.append(torch.mm(gradient.t(), x, out_dtype=torch.float32))
        else:
            results.append((gradient.t() @ x).float())
        if bias:
            results.append(_column_sums(gradient))
    return results


def _column_sums(gradient: Tensor) -> Tensor:
    if not gradient.is_cuda:
        return gradient.sum(0, dtype=torch.float32)
    from icone.cuda.column_sums import column_sums  # Triton is there only where CUDA is

    return column_sums(gradient)


@linear_gradients.register_fake
def _(gradient: Tensor, x: Tensor, bias: bool) -> list[Tensor]:
    weight = gradient.new_empty(gradient.shape[1], x.shape[1], dtype=torch.float32)
    return [weight, gradient.new_empty(gradient.shape[1], dtype=torch.float32)] if bias else [weight]


@torch.library.custom_op("icone::convolution_gradient", mutates_args=())
def convolution_gradient(gradient: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """Gradient of a convolution's weight, in float32 and laid out like the weight."""
    with WeightGradients._serving(gradient, x, weight) as results:
        found = _backward(gradient, x, weight, stride, padding, of_weight=True)
        results.append(torch.empty_strided(weight.shape, weight.stride(), dtype=torch.float32, device=weight.device))
        results[0].copy_(found)
    return results[0]


@convolution_gradient.register_fake
def _(gradient: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    return torch.empty_strided(weight.shape, weight.stride(), dtype=torch.float32, device=weight.device)


class _Linear(torch.autograd.Function):
    """The product with `used`, the weight as it is computed with; its gradient goes to the weight itself."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, used: Tensor, used_bias: Tensor | None
    ) -> Tensor:
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x, used)
        return F.linear(x, used, used_bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, used = ctx.saved_tensors
        of_weight, *of_bias = linear_gradients(gradient.flatten(0, -2), x.flatten(0, -2), ctx.has_bias)
        return gradient @ used, of_weight, of_bias[0] if of_bias else None, None, None


class _Convolution(torch.autograd.Function):
    """The same for a convolution of volumes without bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, used: Tensor, stride: int, padding: int) -> Tensor:
        ctx.stride, ctx.padding = stride, padding
        ctx.save_for_backward(x, used)
        return F.conv3d(x, used, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, used = ctx.saved_tensors
        of_weight = convolution_gradient(gradient, x, used, ctx.stride, ctx.padding)
        return _backward(gradient, x, used, ctx.stride, ctx.padding, of_weight=False), of_weight, None, None, None


def _backward(gradient: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int, *, of_weight: bool) -> Tensor:
    """One of the two gradients of such a convolution."""
    wanted = [not of_weight, of_weight, False]
    found = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, [stride] * 3, [padding] * 3, [1] * 3, False, [0] * 3, 1, wanted
    )
    return cast(Tensor, found[1] if of_weight else found[0])


class DeferredGradLinear(nn.Linear):
    """A linear layer whose weight gradients may be computed beside the backward pass."""

    converted: Converted | None = None
    """Weight and bias in the type that it computes in, where someone keeps them."""
    largest = 2**20
    """Numbers that go in or come out: beyond, its kernels fill the chip, and what runs beside them is in the way."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, …, in) -> (B, …, out)."""
        if x.numel() // self.in_features * max(self.in_features, self.out_features) > self.largest:
            return super().forward(x)
        x = _as_computed(x)
        return cast(Tensor, _Linear.apply(x, self.weight, self.bias, *_used(self, x.dtype)))


class DeferredGradConv3d(nn.Conv3d):
    """A convolution of volumes without bias, likewise."""

    converted: Converted | None = None
    largest = 2**22

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *size) -> (B, out, *size / stride)."""
        if x.numel() // self.in_channels * self.out_channels // self.stride[0] ** 3 > self.largest:
            return super().forward(x)
        x = _as_computed(x)
        used, _ = _used(self, x.dtype)
        return cast(Tensor, _Convolution.apply(x, self.weight, used, self.stride[0], self.padding[0]))


class ConvertedWeights:
    """The weights of networks in the type that they compute in, converted together: one by one, at the moment they are
    needed, they would keep the forward pass waiting."""

    def __init__(self, networks: list[nn.Module], dtype: torch.dtype | None) -> None:
        """Without a type there is nothing to convert."""
        self.layers: list[tuple[DeferredGradLinear | DeferredGradConv3d, Converted]] = []
        self.weights: list[Tensor] = []
        self.copies: list[Tensor] = []
        if dtype is None:
            return
        for layer in (layer for network in networks for layer in network.modules()):
            if isinstance(layer, (DeferredGradLinear, DeferredGradConv3d)):
                kept = [p.detach() for p in (layer.weight, layer.bias) if p is not None]
                copies = [p.to(dtype) for p in kept]
                self.layers.append((layer, (copies[0], copies[1] if len(copies) > 1 else None)))
                self.weights += kept
                self.copies += copies

    @torch.no_grad()
    def convert(self) -> None:
        if self.copies:
            torch._foreach_copy_(self.copies, self.weights)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the layers compute with them within the block, and no longer: later they are out of date."""
        for layer, converted in self.layers:
            layer.converted = converted
        try:
            yield
        finally:
            for layer, _ in self.layers:
                layer.converted = None


def _used(layer: DeferredGradLinear | DeferredGradConv3d, dtype: torch.dtype) -> Converted:
    """Weight and bias as constants of this type."""
    if layer.converted is not None and layer.converted[0].dtype == dtype:
        return layer.converted
    bias = None if layer.bias is None else _converted(layer.bias.detach(), dtype)
    return _converted(layer.weight.detach(), dtype), bias


def _as_computed(x: Tensor) -> Tensor:
    """In the type that a layer computes in."""
    kind = x.device.type
    return _converted(x, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)


def defer_weight_gradients(network: nn.Module) -> None:
    """Let linear layers and convolutions of volumes compute weight gradients beside, each the same object."""
    for layer in network.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = DeferredGradLinear
        elif isinstance(layer, nn.Conv3d) and type(layer) in (nn.Conv3d, SmallMapConv3d) and _is_simple(layer):
            layer.__class__ = DeferredGradConv3d


def _is_simple(conv: nn.Conv3d) -> bool:
    alike = all(len(set(cast(tuple[int, ...], edges))) == 1 for edges in (conv.stride, conv.padding))
    return alike and conv.bias is None and conv.groups == 1 and set(conv.dilation) == {1}
