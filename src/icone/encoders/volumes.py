"""Encoders of segmentation networks for volumes: MONAI's, and that of nnU-Net with residual blocks.

Each keeps the parameter names that its layers have in the whole network, so that the trained encoder can be put into
that network, and weights of that network into the encoder. The features are the mean over the last feature map.
"""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from icone.errors import InputError, optional


class VolumeEncoder(nn.Module):
    """A network (B, C, *size) -> (B, num_features): the mean over its last feature map, and perhaps a linear layer."""

    num_features: int

    def project(self, channels: int, features: int | None) -> None:
        """Say how many features there are, and make the last layer; called when the others are there."""
        self.num_features = features or channels
        self.projection = nn.Linear(channels, features) if features else nn.Identity()

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """The last feature map, (B, channels, *grid)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(self.forward_features(x).flatten(2).mean(2))  # type: ignore[no-any-return]


class SwinEncoder(VolumeEncoder):
    """The Swin transformer of SwinUNETR (Hatamizadeh et al. 2022, arXiv:2201.01266)."""

    edge = 32
    released_names = ((r"\bmlp\.fc([12])\b", r"mlp.linear\1"), (r"\b(layers[1-4]\.0)\.0\.", r"\1."))
    """Of MONAI's two releases that were trained without labels: `model_swinvit.pt`, `ssl_pretrained_weights.pth`."""

    def __init__(self, in_channels: int, width: float, features: int | None) -> None:
        nets = _monai_networks()
        size = _multiple(48 * width, 12, "monai:SwinUNETR")
        network = nets.SwinUNETR(in_channels=in_channels, out_channels=2, feature_size=size)
        super().__init__()
        self.swinViT = network.swinViT
        self.project(16 * size, features)

    @property
    def stages(self) -> list[nn.Module]:
        return [getattr(self.swinViT, f"layers{i}") for i in range(1, 5)]

    def forward_features(self, x: Tensor) -> Tensor:
        maps: list[Tensor] = self.swinViT(x, True)
        return maps[-1]


class SegResNetEncoder(VolumeEncoder):
    """The encoder of SegResNet (Myronenko 2018, arXiv:1810.11654), with GroupNorm."""

    edge = 8

    def __init__(self, in_channels: int, width: float, features: int | None) -> None:
        nets = _monai_networks()
        filters = _multiple(32 * width, 8, "monai:SegResNet")
        network = nets.SegResNet(in_channels=in_channels, init_filters=filters, blocks_down=(1, 2, 2, 4))
        super().__init__()
        self.convInit, self.down_layers = network.convInit, network.down_layers
        self.project(8 * filters, features)

    @property
    def stages(self) -> list[nn.Module]:
        return list(self.down_layers)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.convInit(x)
        for layer in self.down_layers:
            x = layer(x)
        return x


MEDNEXT = {
    "S": ((2, 2, 2, 2, 2), (2, 2, 2, 2, 2)),
    "B": ((2, 2, 2, 2, 2), (2, 3, 4, 4, 4)),
    "M": ((3, 4, 4, 4, 4), (2, 3, 4, 4, 4)),
    "L": ((3, 4, 8, 8, 8), (3, 4, 8, 8, 8)),
}
"""Blocks and expansion ratios of four stages and the bottleneck, from table 1 of the paper."""


class MedNeXtEncoder(VolumeEncoder):
    """The encoder of MedNeXt (Roy et al. 2023, arXiv:2303.09975) in the sizes of its paper."""

    edge = 16

    def __init__(self, size: str, in_channels: int, width: float, features: int | None) -> None:
        nets = _monai_networks()
        filters = _multiple(32 * width, 4, f"monai:MedNeXt{size}")
        blocks, ratios = MEDNEXT[size]
        network = nets.MedNeXt(
            in_channels=in_channels,
            init_filters=filters,
            encoder_expansion_ratio=ratios[:4],
            bottleneck_expansion_ratio=ratios[4],
            blocks_down=blocks[:4],
            blocks_bottleneck=blocks[4],
            kernel_size=3,
            use_residual_connection=True,
        )
        super().__init__()
        self.stem, self.enc_stages, self.down_blocks = network.stem, network.enc_stages, network.down_blocks
        self.bottleneck = network.bottleneck
        self.project(16 * filters, features)

    @property
    def stages(self) -> list[nn.Module]:
        pairs = zip(self.enc_stages, self.down_blocks, strict=True)
        return [*(nn.ModuleList(pair) for pair in pairs), self.bottleneck]

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage, down in zip(self.enc_stages, self.down_blocks, strict=True):
            x = down(stage(x))
        return self.bottleneck(x)  # type: ignore[no-any-return]


class DenseNetEncoder(VolumeEncoder):
    """DenseNet (Huang et al. 2016, arXiv:1608.06993) in 3D, with BatchNorm."""

    edge = 32

    def __init__(self, depth: int, in_channels: int, width: float, features: int | None) -> None:
        nets = _monai_networks()
        growth = _multiple(32 * width, 4, f"monai:DenseNet{depth}")
        builder: Callable[..., Any] = getattr(nets, f"DenseNet{depth}")
        network = builder(
            spatial_dims=3, in_channels=in_channels, out_channels=1, init_features=2 * growth, growth_rate=growth
        )
        super().__init__()
        self.features = network.features
        self.project(network.class_layers.out.in_features, features)

    @property
    def stages(self) -> list[nn.Module]:
        return [module for name, module in self.features.named_children() if name.startswith("denseblock")]

    def forward_features(self, x: Tensor) -> Tensor:
        return F.relu(self.features(x))


class ViTEncoder(VolumeEncoder):
    """A vision transformer on patches of 16³, that of UNETR (Hatamizadeh et al. 2021, arXiv:2103.10504): ViT-B."""

    edge = 16

    def __init__(self, in_channels: int, size: tuple[int, ...], width: float, features: int | None) -> None:
        nets = _monai_networks()
        hidden = _multiple(768 * width, 96, "monai:ViT")
        network = nets.ViT(
            in_channels, size, patch_size=16, hidden_size=hidden, mlp_dim=4 * hidden, num_heads=hidden // 64 or 1
        )
        super().__init__()
        self.grid_size = tuple(edge // 16 for edge in size)
        self.patch_embedding, self.blocks, self.norm = network.patch_embedding, network.blocks, network.norm
        self.project(hidden, features)

    @property
    def stages(self) -> list[nn.Module]:
        return list(self.blocks)

    def forward_features(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.patch_embedding(x)
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.norm(tokens)
        return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, *self.grid_size)


class ResEncEncoder(VolumeEncoder):
    """The residual encoder of nnU-Net's presets M, L and XL (Isensee et al. 2024, arXiv:2404.09556).

    As nnU-Net plans it, an axis is halved as long as four voxels are left, and there are six stages at most.
    """

    edge = 4
    channels = (32, 64, 128, 256, 320, 320)
    blocks = (1, 3, 4, 6, 6, 6)

    def __init__(self, in_channels: int, size: tuple[int, ...], width: float, features: int | None) -> None:
        from dynamic_network_architectures.building_blocks.residual_encoders import ResidualEncoder

        plan = resenc_plan(size, width)
        network = ResidualEncoder(in_channels, **plan)
        super().__init__()
        self.stem, self.stages = network.stem, network.stages
        self.project(plan["features_per_stage"][-1], features)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return x


VOLUME_ENCODERS: dict[str, Callable[..., VolumeEncoder]] = {
    "monai:SwinUNETR": SwinEncoder,
    "monai:SegResNet": SegResNetEncoder,
    "monai:ViT": ViTEncoder,
    **{f"monai:DenseNet{depth}": partial(DenseNetEncoder, depth) for depth in (121, 169, 201, 264)},
    **{f"monai:MedNeXt{size}": partial(MedNeXtEncoder, size) for size in "SBML"},
    "nnunet:ResEncL": ResEncEncoder,
}
"""Encoders by the name of the network that they are from, behind that of the library."""


def resenc_plan(size: tuple[int, ...], width: float) -> dict[str, Any]:
    """The arguments of nnU-Net's networks with residual encoders, as its planner sets them for a patch of this size."""
    strides, left = [(1,) * len(size)], list(size)
    while len(strides) < len(ResEncEncoder.channels):
        step = tuple(2 if edge % 2 == 0 and edge // 2 >= ResEncEncoder.edge else 1 for edge in left)
        if max(step) == 1:
            break
        strides.append(step)
        left = [edge // factor for edge, factor in zip(left, step, strict=True)]
    stages = len(strides)
    return {
        "n_stages": stages,
        "features_per_stage": [_multiple(c * width, 4, "nnunet:ResEncL") for c in ResEncEncoder.channels[:stages]],
        "conv_op": nn.Conv3d,
        "kernel_sizes": [[3, 3, 3]] * stages,
        "strides": [list(step) for step in strides],
        "n_blocks_per_stage": list(ResEncEncoder.blocks[:stages]),
        "conv_bias": True,
        "norm_op": nn.InstanceNorm3d,
        "norm_op_kwargs": {"eps": 1e-5, "affine": True},
        "nonlin": nn.LeakyReLU,
        "nonlin_kwargs": {"inplace": True},
    }


def _monai_networks() -> Any:
    return importlib.import_module("monai.networks.nets")


def _multiple(channels: float, of: int, name: str) -> int:
    if channels % of or channels < of:
        raise InputError(f"--width makes {channels:g} channels of {name}, which needs a multiple of {of}")
    return int(channels)


def build_volume_encoder(
    kind: Callable[..., VolumeEncoder],
    name: str,
    *,
    in_channels: int,
    size: tuple[int, ...],
    width: float,
    features: int | None,
) -> nn.Module:
    """One of the encoders of this file; its size must survive the strides."""
    network: Any = getattr(kind, "func", kind)
    edge: int = network.edge
    if any(length % edge for length in size):
        raise InputError(
            f"encoder {name} needs edges that are multiples of {edge}, got {'×'.join(map(str, size))}: "
            f"--size={max(edge, edge * math.ceil(size[0] / edge))}"
        )
    extra = "nnunet" if name.startswith("nnunet:") else "monai"
    with optional(extra, f"encoder {name}"):
        if kind in (ViTEncoder, ResEncEncoder):
            return kind(in_channels=in_channels, size=size, width=width, features=features)
        return kind(in_channels=in_channels, width=width, features=features)
