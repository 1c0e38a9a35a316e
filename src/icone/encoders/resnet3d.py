"""MONAI's 3D residual networks with the standard stem."""

from __future__ import annotations

from typing import cast

from monai.networks.nets.resnet import ResNet, ResNetBlock, ResNetBottleneck, get_inplanes
from torch import Tensor, nn

from icone.encoders.layers import HalvingMaxPool3d, SmallMapConv3d, StemConv3d

BLOCKS: dict[str, tuple[type[ResNetBlock | ResNetBottleneck], list[int]]] = {
    "resnet10_3d": (ResNetBlock, [1, 1, 1, 1]),
    "resnet18_3d": (ResNetBlock, [2, 2, 2, 2]),
    "resnet34_3d": (ResNetBlock, [3, 4, 6, 3]),
    "resnet50_3d": (ResNetBottleneck, [3, 4, 6, 3]),
}


class VolumeResNet(ResNet):
    """A residual network (B, in_channels, *size) -> (B, features): stem of 7³ with stride 2, max-pool, four stages."""

    def __init__(self, name: str, *, in_channels: int, features: int, width: float) -> None:
        block, layers = BLOCKS[name]
        super().__init__(
            block,
            layers,
            get_inplanes(),
            spatial_dims=3,
            n_input_channels=in_channels,
            num_classes=features,
            conv1_t_size=7,
            conv1_t_stride=2,
            widen_factor=width,
            shortcut_type="B",
            bias_downsample=False,
        )
        self.num_features = features
        self.conv1 = StemConv3d.of(cast(nn.Conv3d, self.conv1))
        self.maxpool = HalvingMaxPool3d()
        for module in list(self.modules()):
            for child, conv in module.named_children():
                if isinstance(conv, nn.Conv3d) and conv.kernel_size == (3, 3, 3):
                    setattr(module, child, SmallMapConv3d.of(conv))

    def stem(self, x: Tensor) -> Tensor:
        """Everything before the first stage."""
        return cast(Tensor, self.maxpool(self.act(self.bn1(self.conv1(x)))))

    @property
    def stages(self) -> list[nn.Module]:
        return [self.layer1, self.layer2, self.layer3, self.layer4]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return cast(Tensor, cast(nn.Linear, self.fc)(self.avgpool(x).flatten(1)))
