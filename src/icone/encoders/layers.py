"""Layers with the parameters and results of the usual ones, computed in a way that suits the hardware."""

from __future__ import annotations

from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchConv2d(nn.Conv2d):
    """A convolution whose stride is its kernel, as one product of a matrix of patches.

    Libraries treat it as any convolution: on a GPU its weight gradient took a fifth as long as the whole
    transformer behind it.
    """

    @classmethod
    def of(cls, conv: nn.Conv2d) -> Self:
        """The same layer with the same parameters."""
        assert conv.kernel_size == conv.stride, "patches must not overlap"
        kernel = cast(tuple[int, int], conv.kernel_size)
        layer = cls(conv.in_channels, conv.out_channels, kernel, kernel, bias=conv.bias is not None, device="meta")
        for name, parameter in conv.named_parameters():
            setattr(layer, name, parameter)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, out, H / p, W / q)."""
        p, q = self.kernel_size
        rows, columns = x.shape[2] // p, x.shape[3] // q
        patches = x.unflatten(3, (columns, q)).unflatten(2, (rows, p)).permute(0, 2, 4, 1, 3, 5)
        batch = x.shape[0]  # len(x) would be a constant to torch.export
        projected = F.linear(patches.reshape(batch, rows * columns, -1), self.weight.flatten(1), self.bias)
        return projected.transpose(1, 2).reshape(batch, -1, rows, columns)


class StemConv3d(nn.Conv3d):
    """The 7³ convolution with stride 2 of few channels, on a GPU as a convolution of many channels.

    With one input channel there is nothing for matrix units to multiply, and the libraries fall back to kernels
    that took half of the whole training step. Two neighbours along every axis become channels (so the stride
    becomes 1 and the kernel 4³), and the four taps along the last axes become channels too.
    """

    folded_axes = 1

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 7, stride=2, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *size) -> (B, out, *size / 2), rounded up."""
        return stem_convolution(x, self.weight, self.folded_axes)


def stem_convolution(x: Tensor, weight: Tensor, folded_axes: int = StemConv3d.folded_axes) -> Tensor:
    """conv3d(x, weight, stride=2, padding=3) for a 7³ kernel, as `StemConv3d` computes it."""
    if x.is_cuda:
        return fold_stem(x, weight, folded_axes)
    # The layers behind it follow its layout. Their weights need not: the library brings those into a layout of its
    # own, and its AdamW copies what does not lie in the usual one.
    return F.conv3d(x, weight.clone(memory_format=torch.channels_last_3d), stride=2, padding=3)


def fold_stem(x: Tensor, weight: Tensor, axes: int) -> Tensor:
    """conv3d(x, weight, stride=2, padding=3) for a 7³ kernel, with the taps along the last `axes` as channels.

    The kernel gets a zero in front along every axis, and so has eight taps, four pairs; the padding follows.

    >>> x, weight = torch.randn(1, 2, 9, 8, 8).double(), torch.randn(5, 2, 7, 7, 7).double()
    >>> expected = F.conv3d(x, weight, stride=2, padding=3)
    >>> [fold_stem(x, weight, axes).allclose(expected) for axes in range(4)]
    [True, True, True, True]
    """
    pad = [edge for length in reversed(x.shape[2:]) for edge in (4, 2 + length % 2)]
    x, weight = _pairs_as_channels(F.pad(x, pad)), _pairs_as_channels(F.pad(weight, [1, 0] * 3))
    for axis in range(4, 4 - axes, -1):
        taps = x.unfold(axis, 4, 1)  # a new last axis
        x = taps.movedim(-1, 1).flatten(1, 2)
        weight = weight.movedim(axis, 1).flatten(1, 2).unsqueeze(axis)
    return F.conv3d(_channels_last(x), _channels_last(weight))


def _pairs_as_channels(x: Tensor) -> Tensor:
    """(B, C, 2a, 2b, 2c) -> (B, 8C, a, b, c)."""
    for axis in (4, 3, 2):
        x = x.unflatten(axis, (-1, 2))
    return x.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(1, 4)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last_3d)


class SmallMapConv3d(nn.Conv3d):
    """A 3³ convolution with padding 1; on a CPU, where its result has two voxels an edge or fewer, one product.

    There the library falls back to code that took more than half of a training step of a 3D ResNet-18.
    """

    largest_edge = 2

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, 3, stride, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *size) -> (B, out, *size / stride), rounded up."""
        return small_map_convolution(x, self.weight, self.stride[0], self.largest_edge)


def small_map_convolution(
    x: Tensor, weight: Tensor, stride: int, largest_edge: int = SmallMapConv3d.largest_edge
) -> Tensor:
    """conv3d(x, weight, stride=stride, padding=1) for a 3³ kernel, as `SmallMapConv3d` computes it."""
    if x.is_cuda or max(x.shape[2:]) > largest_edge * stride:
        return F.conv3d(x, weight, stride=stride, padding=1)
    return neighbourhoods_times(x, weight, stride)


def neighbourhoods_times(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """conv3d(x, weight, stride=stride, padding=1) for a 3³ kernel, as one product of matrices.

    >>> x, weight = torch.randn(2, 3, 2, 3, 4).double(), torch.randn(5, 3, 3, 3, 3).double()
    >>> [neighbourhoods_times(x, weight, s).allclose(F.conv3d(x, weight, stride=s, padding=1)) for s in (1, 2)]
    [True, True]
    """
    taps = F.pad(x, [1, 1] * 3)
    for axis in (2, 3, 4):
        taps = taps.unfold(axis, 3, stride)
    rows = taps.movedim(1, 4).flatten(4)
    return F.linear(rows, weight.flatten(1)).movedim(-1, 1)


class HalvingMaxPool3d(nn.MaxPool3d):
    """Maximum over 3³ with stride 2 and padding 1 of values that are not negative, on a GPU axis by axis.

    Where several voxels share a maximum, its gradient is then shared between them instead of going to the first.
    Unlike the library's backward pass on a GPU this one adds nothing atomically: the same run gives the same weights.
    """

    def __init__(self) -> None:
        super().__init__(3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, *size) -> (B, C, *size / 2), rounded up."""
        return halving_maximum(x) if x.is_cuda else super().forward(x)


def halving_maximum(x: Tensor) -> Tensor:
    """max_pool3d(x, 3, stride=2, padding=1) for x ≥ 0, channels last.

    >>> x = torch.rand(2, 3, 8, 9, 10)
    >>> bool((halving_maximum(x) == F.max_pool3d(x, 3, stride=2, padding=1)).all())
    True
    """
    for axis in (2, 3, 4):
        padded = F.pad(x, [0, 0] * (4 - axis) + [1, 1]).movedim(axis, -1)
        last = 2 * -(-x.shape[axis] // 2)
        before, middle, after = padded[..., 0:last:2], padded[..., 1:last:2], padded[..., 2 : last + 1 : 2]
        x = torch.maximum(torch.maximum(before, middle), after).movedim(-1, axis)
    # Slices leave a batch of one with a stride that hides its layout from the convolutions that follow.
    return x.clone(memory_format=torch.channels_last_3d)


def use_channels_last(network: nn.Module) -> None:
    """Lay out the weights of convolutions, and so their results, as the matrix units of a GPU take them."""
    for module in network.modules():
        if isinstance(module, nn.Conv3d):
            module.to(memory_format=torch.channels_last_3d)
        elif isinstance(module, nn.Conv2d) and not isinstance(module, PatchConv2d):
            module.to(memory_format=torch.channels_last)
