"""Residual networks for volumes: those of He et al. (2015), arXiv 1512.03385, in 3D as Hara et al. (2017), 1711.09577.

Parameter names, initialisation and the order of random numbers are those of MONAI's class `ResNet`, so that weights can
be exchanged with it. A test compares the two.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from icone.encoders.layers import HalvingMaxPool3d, SmallMapConv3d, StemConv3d

Norm = Callable[[int], nn.Module]
"""Channels -> a normalisation layer."""
CHANNELS = (64, 128, 256, 512)
"""Channels of the four stages, before they are widened."""


class BasicBlock(nn.Module):
    """relu(f(x) + shortcut(x)), f of two 3³ convolutions: (B, in_channels, …) -> (B, channels, … / stride)."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int, norm: Norm, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = SmallMapConv3d(in_channels, channels, stride)
        self.bn1 = norm(channels)
        self.act = nn.ReLU(inplace=True)
        self.conv2 = SmallMapConv3d(channels, channels)
        self.bn2 = norm(channels)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.act(y)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """relu(f(x) + shortcut(x)), f of 1³, 3³ and 1³ convolutions: (B, in_channels, …) -> (B, 4·channels, … / stride)."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int, norm: Norm, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(in_channels, channels, 1, bias=False)
        self.bn1 = norm(channels)
        self.conv2 = SmallMapConv3d(channels, channels, stride)
        self.bn2 = norm(channels)
        self.conv3 = nn.Conv3d(channels, channels * self.expansion, 1, bias=False)
        self.bn3 = norm(channels * self.expansion)
        self.act = nn.ReLU(inplace=True)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.bn2(self.conv2(self.act(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.act(y)  # type: ignore[no-any-return]


BLOCKS: dict[str, tuple[type[BasicBlock | Bottleneck], tuple[int, ...]]] = {
    "resnet10_3d": (BasicBlock, (1, 1, 1, 1)),
    "resnet18_3d": (BasicBlock, (2, 2, 2, 2)),
    "resnet34_3d": (BasicBlock, (3, 4, 6, 3)),
    "resnet50_3d": (Bottleneck, (3, 4, 6, 3)),
}
"""Kind of block, and blocks of every stage."""


class StagedNetwork(nn.Module):
    """What our networks for volumes share: a stem, four stages of blocks `layer1` to `layer4`, and a feature map."""

    num_features: int

    @abstractmethod
    def stem(self, x: Tensor) -> Tensor:
        """Everything before the first stage."""

    @property
    def stages(self) -> list[nn.Module]:
        return [self.get_submodule(f"layer{i + 1}") for i in range(len(CHANNELS))]

    def forward_features(self, x: Tensor) -> Tensor:
        """The last feature map, before pooling: (B, in_channels, *size) -> (B, channels, *size / 32), rounded up."""
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return x


class VolumeResNet(StagedNetwork):
    """A residual network (B, in_channels, *size) -> (B, features): stem of 7³ with stride 2, max-pool, four stages."""

    def __init__(
        self, name: str, *, in_channels: int, features: int, width: float = 1.0, norm: Norm = nn.BatchNorm3d
    ) -> None:
        super().__init__()
        block, depths = BLOCKS[name]
        channels = [int(count * width) for count in CHANNELS]
        self.num_features = features
        self.conv1 = StemConv3d(in_channels, channels[0])
        self.bn1 = norm(channels[0])
        self.act = nn.ReLU(inplace=True)
        self.maxpool = HalvingMaxPool3d()
        before = [channels[0], *(count * block.expansion for count in channels)]
        for i, depth in enumerate(depths):
            self.add_module(f"layer{i + 1}", _stage(block, before[i], channels[i], depth, 1 if i == 0 else 2, norm))
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.fc = nn.Linear(before[-1], features)
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.fc.bias)

    def stem(self, x: Tensor) -> Tensor:
        return self.maxpool(self.act(self.bn1(self.conv1(x))))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.forward_features(x)).flatten(1))  # type: ignore[no-any-return]


def _stage(
    block: type[BasicBlock | Bottleneck], in_channels: int, channels: int, depth: int, stride: int, norm: Norm
) -> nn.Sequential:
    """Blocks in a row; the first one takes the stride, and a shortcut of 1³ where the shape changes."""
    out = channels * block.expansion
    shortcut = None
    if stride != 1 or in_channels != out:
        shortcut = nn.Sequential(nn.Conv3d(in_channels, out, 1, stride, bias=False), norm(out))
    first = block(in_channels, channels, stride, norm, shortcut)
    rest = [block(out, channels, 1, norm, None) for _ in range(depth - 1)]
    return nn.Sequential(first, *rest)
