"""Deferred weight gradients: they are computed on a side stream, because only the update waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.cuda.replacement import rebuilt_as, replace_layers
from icone.encoders.layers import SmallMapConv3d

WeightAndBias: TypeAlias = tuple[Tensor, Tensor | None]


class WeightGradientStream:
    """A side stream for the weight gradients of backward passes."""

    _active: ClassVar[dict[int, WeightGradientStream]] = {}
    """The side stream of each stream with a backward pass; on other streams weight gradients are computed in order."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.results: list[int] = []
        """Addresses of the gradients of this backward pass."""
        self.inputs: list[Tensor] = []
        """Tensors that the side stream may still read. While they are referenced here, their memory is not reused, and
        autograd adds nothing to them in place."""

    @contextmanager
    def during_backward(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Compute the weight gradients of a backward pass on the current stream here; all are there after the block.

        `parameters` are all that are trained.
        """
        current = torch.cuda.current_stream()
        self.results.clear()
        self.stream.wait_stream(current)
        self._active[current.cuda_stream] = self
        try:
            yield
        finally:
            del self._active[current.cuda_stream]
            current.wait_stream(self.stream)
            self.inputs.clear()
        self.check(parameters)

    def check(self, parameters: Sequence[nn.Parameter]) -> None:
        """Raise an error unless every result is the gradient of a parameter as it was computed.

        Whatever autograd does to a gradient, such as adding another one to it, it does on the stream of the backward
        pass, which has not waited for it.
        """
        addresses = {p.grad.data_ptr() for p in parameters if p.grad is not None}
        if not set(self.results) <= addresses or len(set(self.results)) < len(self.results):
            raise RuntimeError("a weight takes part twice in a step, so its gradient cannot be deferred")

    @classmethod
    @contextmanager
    def _of_current(cls, *inputs: Tensor) -> Iterator[list[Tensor]]:
        """Compute the gradients that are put into the list on the side stream of the current one, if it has one."""
        results: list[Tensor] = []
        side = cls._active.get(torch.cuda.current_stream().cuda_stream) if inputs[0].is_cuda else None
        if side is None:
            yield results
            return
        side.stream.wait_stream(torch.cuda.current_stream())
        side.inputs += inputs
        with torch.cuda.stream(side.stream):
            yield results
        side.results += [result.data_ptr() for result in results]


# The compiler must not look into what follows: it knows nothing of streams.


@torch.library.custom_op("icone::linear_gradients", mutates_args=())
def linear_gradients(grad_output: Tensor, x: Tensor, bias: bool, kernel: bool) -> list[Tensor]:
    """Gradients of weight and bias, if there is one, in float32: (rows, out), (rows, in) -> (out, in), (out,).

    `kernel` sums the bias gradient by our Triton kernel on a GPU.
    """
    with WeightGradientStream._of_current(grad_output, x) as results:
        if grad_output.is_cuda and grad_output.dtype != torch.float32:
            results.append(torch.mm(grad_output.t(), x, out_dtype=torch.float32))
        else:
            results.append((grad_output.t() @ x).float())
        if bias:
            results.append(_column_sums(grad_output, kernel))
    return results


def _column_sums(matrix: Tensor, kernel: bool) -> Tensor:
    if not (kernel and matrix.is_cuda):
        return matrix.sum(0, dtype=torch.float32)
    from icone.cuda.column_sums import column_sums  # Triton is there only where CUDA is

    return column_sums(matrix)


@linear_gradients.register_fake
def _(grad_output: Tensor, x: Tensor, bias: bool, kernel: bool) -> list[Tensor]:
    weight = grad_output.new_empty(grad_output.shape[1], x.shape[1], dtype=torch.float32)
    return [weight, grad_output.new_empty(grad_output.shape[1], dtype=torch.float32)] if bias else [weight]


@torch.library.custom_op("icone::convolution_gradient", mutates_args=())
def convolution_gradient(grad_output: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """Gradient of a convolution's weight, in float32 and laid out like the weight."""
    with WeightGradientStream._of_current(grad_output, x, weight) as results:
        found = _convolution_backward(grad_output, x, weight, stride, padding, of_weight=True)
        results.append(torch.empty_strided(weight.shape, weight.stride(), dtype=torch.float32, device=weight.device))
        results[0].copy_(found)
    return results[0]


@convolution_gradient.register_fake
def _(grad_output: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    return torch.empty_strided(weight.shape, weight.stride(), dtype=torch.float32, device=weight.device)


def _convolution_backward(
    grad_output: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int, *, of_weight: bool
) -> Tensor:
    """One of the two gradients of a convolution of volumes without bias."""
    wanted = [not of_weight, of_weight, False]
    found = torch.ops.aten.convolution_backward(
        grad_output, x, weight, None, [stride] * 3, [padding] * 3, [1] * 3, False, [0] * 3, 1, wanted
    )
    return cast(Tensor, found[1] if of_weight else found[0])


class _Linear(torch.autograd.Function):
    """x · cast_weightᵀ + cast_bias, whose gradients go to `weight` and `bias`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        cast_weight: Tensor,
        cast_bias: Tensor | None,
        kernel: bool,
    ) -> Tensor:
        ctx.has_bias, ctx.kernel = bias is not None, kernel
        ctx.save_for_backward(x, cast_weight)
        return F.linear(x, cast_weight, cast_bias)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, cast_weight = ctx.saved_tensors
        rows = grad_output.flatten(0, -2), x.flatten(0, -2)
        grad_weight, *grad_bias = linear_gradients(*rows, ctx.has_bias, ctx.kernel)
        return grad_output @ cast_weight, grad_weight, grad_bias[0] if grad_bias else None, None, None, None


class _Convolution(torch.autograd.Function):
    """The same for a convolution of volumes without bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cast_weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.stride, ctx.padding = stride, padding
        ctx.save_for_backward(x, cast_weight)
        return F.conv3d(x, cast_weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, cast_weight = ctx.saved_tensors
        grad_weight = convolution_gradient(grad_output, x, cast_weight, ctx.stride, ctx.padding)
        grad_x = _convolution_backward(grad_output, x, cast_weight, ctx.stride, ctx.padding, of_weight=False)
        return grad_x, grad_weight, None, None, None


class DeferredGradLinear(nn.Linear):
    """A linear layer whose weight gradient can be deferred."""

    column_sum_kernel = True
    max_elements = 2**20
    """Largest input or output. Kernels of larger layers fill the GPU, and a side stream would only be in their way."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, …, in) -> (B, …, out)."""
        if x.numel() // self.in_features * max(self.in_features, self.out_features) > self.max_elements:
            return super().forward(x)
        x = _autocast(x)
        pair = _weight_and_bias(self, x.dtype)
        return cast(Tensor, _Linear.apply(x, self.weight, self.bias, *pair, self.column_sum_kernel))


class DeferredGradConv3d(nn.Conv3d):
    """A convolution of volumes without bias whose weight gradient can be deferred."""

    max_elements = 2**22

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *size) -> (B, out, *size / stride)."""
        if x.numel() // self.in_channels * self.out_channels // self.stride[0] ** 3 > self.max_elements:
            return super().forward(x)
        x = _autocast(x)
        cast_weight, _ = _weight_and_bias(self, x.dtype)
        return cast(Tensor, _Convolution.apply(x, self.weight, cast_weight, self.stride[0], self.padding[0]))


DeferredGradLayer: TypeAlias = DeferredGradLinear | DeferredGradConv3d


def defer_weight_gradients(network: nn.Module, *, column_sum_kernel: bool = True) -> dict[nn.Module, nn.Module]:
    """Replace linear layers and convolutions of volumes of a network of our own by layers with deferred gradients.

    The result has the old layer of every new one, as that of `replace_layers`.
    """

    def deferred(layer: nn.Module) -> nn.Module | None:
        if type(layer) is nn.Linear:
            linear = rebuilt_as(DeferredGradLinear, layer)
            linear.column_sum_kernel = column_sum_kernel
            return linear
        if isinstance(layer, nn.Conv3d) and type(layer) in (nn.Conv3d, SmallMapConv3d) and _is_simple(layer):
            return rebuilt_as(DeferredGradConv3d, layer)
        return None

    return replace_layers(network, deferred)


def _is_simple(conv: nn.Conv3d) -> bool:
    cubic = all(len(set(cast(tuple[int, ...], edges))) == 1 for edges in (conv.stride, conv.padding))
    return cubic and conv.bias is None and conv.groups == 1 and set(conv.dilation) == {1}


def _weight_and_bias(layer: DeferredGradLayer, dtype: torch.dtype) -> WeightAndBias:
    """Weight and bias as constants of this type."""
    bias = None if layer.bias is None else _to(layer.bias.detach(), dtype)
    return _to(layer.weight.detach(), dtype), bias


def _autocast(x: Tensor) -> Tensor:
    """The input in the type that autocast computes in, if it is on."""
    kind = x.device.type
    return _to(x, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _to(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)
