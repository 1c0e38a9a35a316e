"""Residual networks for volumes without normalisation layers: those of Brock et al. (2021), arXiv 2101.08692, in 3D.

BatchNorm ties the samples of a batch together, and with one sample it has nothing to average over. Here the weights are
standardised instead of the activations. What the network computes for a sample depends on no other sample, in training
as in evaluation: every batch size trains the same function, and micro-batches give the exact gradient of their batch.
Nothing in a loss with a BatchNorm head holds the size of activations, so that a penalty does (`ActivationPenalty`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders.layers import HalvingMaxPool3d, small_map_convolution, stem_convolution
from icone.encoders.resnet3d import BLOCKS, CHANNELS, BasicBlock, StagedNetwork
from icone.nn.activation_penalty import ActivationPenalty

RELU_GAIN = math.sqrt(2 / (1 - 1 / math.pi))
"""By what relu(x) is multiplied to have variance 1 where x is standard normal (section 4.2 of the paper)."""
RESIDUAL_SCALE = 0.2
"""α: the share that a block adds to its input (the paper's value)."""
INPUT_SCALE = 4.0
"""Samples have values in [0, 1], whose standard deviation is about a quarter in scans; the network expects about 1."""
PENALTY = 0.1
"""Weight of the penalty on the size of activations behind every stage."""
EPSILON = 1e-8
"""Is added to the variance of the weights of a channel, against a division by zero."""


class ScaledStdConv3d(nn.Conv3d):
    """A convolution with scaled weight standardisation, for a kernel of 1³, 3³ (padded by 1) or 7³ (the stem).

        ŵ = γ · g · (w − mean(w)) / √((var(w) + ε) · n),    y = conv(x, ŵ) + b,

    with mean and variance over the n weights of an output channel, a learned gain g for each of them, and γ the gain of
    what comes before it. Input of variance 1 gives output of variance 1, whatever w is.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, gamma: float = 1.0) -> None:
        super().__init__(in_channels, out_channels, kernel, stride, padding=kernel // 2)
        self.gain = nn.Parameter(torch.ones(out_channels))
        self.scale = gamma * self.weight[0].numel() ** -0.5
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def standardised_weight(self) -> Tensor:
        """ŵ: (out, in, k, k, k). BatchNorm over the weights of a channel computes it in one pass over them.

        They are taken in the order in which they lie in memory: on a CPU a copy in another order would take four times
        as long as all the rest.
        """
        plain = self.weight.is_contiguous()
        rows = self.weight if plain else self.weight.movedim(1, -1)  # channels last, as a GPU has them
        flat = F.batch_norm(
            rows.reshape(1, len(rows), -1), None, None, self.gain * self.scale, training=True, eps=EPSILON
        )
        weight = flat.view(rows.shape)
        return weight if plain else weight.movedim(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, *size) -> (B, out, *size / stride), rounded up."""
        weight, (kernel, *_), (stride, *_) = self.standardised_weight(), self.kernel_size, self.stride
        if kernel == 7:
            y = stem_convolution(x, weight)
        elif kernel == 3:
            y = small_map_convolution(x, weight, stride)
        else:
            y = F.conv3d(x, weight, stride=stride)
        assert self.bias is not None
        return y + self.bias.to(y.dtype).view(-1, 1, 1, 1)


class NFBlock(nn.Module):
    """shortcut(x) + α·f(relu(x)/β), f of two 3³ convolutions, or of 1³, 3³ and 1³ ones in a bottleneck.

    β is the standard deviation that x has at the start. Where the shape changes, the shortcut is a 1³ convolution of
    the mean over neighbours.
    """

    def __init__(self, in_channels: int, channels: int, stride: int, bottleneck: bool, beta: float) -> None:
        super().__init__()
        before = RELU_GAIN / beta
        if bottleneck:
            out = 4 * channels
            self.residual = nn.ModuleList([
                ScaledStdConv3d(in_channels, channels, 1, gamma=before),
                ScaledStdConv3d(channels, channels, 3, stride, gamma=RELU_GAIN),
                ScaledStdConv3d(channels, out, 1, gamma=RELU_GAIN),
            ])  # fmt: skip
        else:
            out = channels
            self.residual = nn.ModuleList([
                ScaledStdConv3d(in_channels, channels, 3, stride, gamma=before),
                ScaledStdConv3d(channels, channels, 3, gamma=RELU_GAIN),
            ])  # fmt: skip
        self.stride = stride
        changes = stride != 1 or in_channels != out
        self.downsample = ScaledStdConv3d(in_channels, out, 1, gamma=before) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, *size) -> (B, out, *size / stride), rounded up."""
        y = F.relu(x)
        if self.downsample is not None:
            x = self.downsample(_halved(y) if self.stride == 2 else y)
        first, *others = self.residual
        y = first(y)
        for convolution in others:
            y = convolution(F.relu(y))
        return torch.add(x, y, alpha=RESIDUAL_SCALE)


def _halved(x: Tensor) -> Tensor:
    """The mean over 2³ neighbours, and over fewer at an odd end: (B, C, *size) -> (B, C, *size / 2), rounded up."""
    edges = [min(2, length) for length in x.shape[2:]]
    return F.avg_pool3d(x, edges, edges, ceil_mode=True, count_include_pad=False)


class NFVolumeResNet(StagedNetwork):
    """A normalizer-free residual network (B, in_channels, *size) -> (B, features), shaped like `VolumeResNet`.

    >>> network = NFVolumeResNet("resnet10_3d", in_channels=1, features=8, width=0.125)
    >>> network(torch.rand(2, 1, 20, 24, 17)).shape
    torch.Size([2, 8])
    """

    def __init__(self, name: str, *, in_channels: int, features: int, width: float = 1.0) -> None:
        super().__init__()
        block, depths = BLOCKS[name]
        bottleneck = block is not BasicBlock
        self.num_features = features
        channels = [int(count * width) for count in CHANNELS]
        self.conv1 = ScaledStdConv3d(in_channels, channels[0], 7, 2, gamma=INPUT_SCALE)
        self.maxpool = HalvingMaxPool3d()
        before, variance = channels[0], 1.0
        for i, depth in enumerate(depths):
            blocks: list[NFBlock] = []
            for j in range(depth):
                stride = 2 if i > 0 and j == 0 else 1
                blocks.append(NFBlock(before, channels[i], stride, bottleneck, math.sqrt(variance)))
                variance = RESIDUAL_SCALE**2 + (1.0 if blocks[-1].downsample is not None else variance)
                before = channels[i] * block.expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.last_gain = RELU_GAIN / math.sqrt(variance)
        self.penalty = ActivationPenalty(PENALTY)
        self.fc = nn.Linear(before, features)
        nn.init.zeros_(self.fc.bias)

    def stem(self, x: Tensor) -> Tensor:
        return self.maxpool(F.relu(self.conv1(x)))  # type: ignore[no-any-return]

    def forward_features(self, x: Tensor) -> Tensor:
        """The last feature map, before pooling: (B, in_channels, *size) -> (B, channels, *size / 32), rounded up."""
        x = self.stem(x)
        for stage in self.stages:
            x = self.penalty(stage(x))
        return F.relu(x) * self.last_gain

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.forward_features(x).mean((2, 3, 4)))  # type: ignore[no-any-return]
