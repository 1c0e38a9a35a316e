"""Encoders by name: timm for images, residual networks for volumes, an MLP for points."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from icone.encoders.layers import PatchConv2d
from icone.errors import InputError, UndefinedError, unknown_name

DEFAULT_ENCODER = {0: "mlp", 2: "vit_small_patch16", 3: "resnet18_3d"}
DEFAULT_FEATURES = {0: 64, 2: 384, 3: 512}
"""Size of the representation of the default encoders."""
VOLUME_ENCODERS = ("resnet10_3d", "resnet18_3d", "resnet34_3d", "resnet50_3d")
SMALLEST_VOLUME = 16
"""The networks halve a volume five times; from a smaller one the last two stages would see a single voxel."""

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm3d,
    "group": partial(nn.GroupNorm, 8),
    "instance": partial(nn.InstanceNorm3d, affine=True),
}


def build_encoder(
    name: str = "auto",
    *,
    in_channels: int,
    spatial_dims: int,
    size: int | tuple[int, ...] = (),
    norm: str = "batch",
    width: float = 1.0,
    features: int | None = None,
) -> nn.Module:
    """Build an untrained encoder `(B, in_channels, *size) -> (B, num_features)`.

    `spatial_dims` is 0 for points, 2 for images, 3 for volumes; `auto` takes the paper's network for it.

    >>> encoder = build_encoder(in_channels=1, spatial_dims=3, size=32, width=0.25)
    >>> encoder.num_features, encoder(torch.zeros(2, 1, 32, 32, 32)).shape
    (512, torch.Size([2, 512]))
    """
    if spatial_dims not in DEFAULT_ENCODER:
        raise InputError(f"spatial_dims must be 0 (points), 2 (images) or 3 (volumes), got {spatial_dims}")
    name = DEFAULT_ENCODER[spatial_dims] if name == "auto" else name
    shape = (size,) * spatial_dims if isinstance(size, int) else tuple(size)
    if spatial_dims == 0:
        return _points(name, in_channels, features)
    if spatial_dims == 3:
        return _volumes(name, in_channels, shape, norm, width, features)
    return _images(name, in_channels, shape, features)


def _images(name: str, in_channels: int, shape: tuple[int, ...], features: int | None) -> nn.Module:
    import timm

    if name in VOLUME_ENCODERS or name == "mlp":
        raise InputError(
            f"encoder {name} is not for 2D images; the default is {DEFAULT_ENCODER[2]}, any timm name works"
        )
    if name == DEFAULT_ENCODER[2]:
        name = "vit_small_patch16_224"
    architecture, _, tag = name.partition(".")
    if tag and timm.is_model(architecture):
        raise InputError(
            f"encoder {name}: {tag} names trained weights, but an encoder begins here with random ones; "
            f"write {architecture}"
        )
    if not timm.is_model(name):
        raise unknown_name("encoder", name, [DEFAULT_ENCODER[2], *timm.list_models()])
    outputs = features or 0
    try:
        network = timm.create_model(name, in_chans=in_channels, num_classes=outputs, img_size=shape)
    except TypeError:  # convolutional networks take any size and no such argument
        network = timm.create_model(name, in_chans=in_channels, num_classes=outputs)
    except (AssertionError, ValueError) as error:
        raise InputError(f"encoder {name} cannot take images of {_edges(shape)}: {error}") from error
    if features:
        network.num_features = cast(Any, features)
    embedding = cast(Any, getattr(network, "patch_embed", None))
    patches = getattr(embedding, "proj", None)
    if isinstance(patches, nn.Conv2d) and patches.kernel_size == patches.stride:
        embedding.proj = PatchConv2d.of(patches)
    patch = getattr(getattr(network, "patch_embed", None), "patch_size", (1, 1))
    if any(edge % p for edge, p in zip(shape, patch, strict=True)):
        raise InputError(
            f"encoder {name} cuts images into patches of {_edges(patch)}, which {_edges(shape)} does not "
            "divide into: choose a --size that is a multiple of the patch"
        )
    _try_out(network, name, (in_channels, *shape))
    return network


def _volumes(
    name: str, in_channels: int, shape: tuple[int, ...], norm: str, width: float, features: int | None
) -> nn.Module:
    from icone.encoders.resnet3d import VolumeResNet

    if name not in VOLUME_ENCODERS:
        raise unknown_name("encoder for volumes", name, VOLUME_ENCODERS)
    if min(shape) < SMALLEST_VOLUME:
        raise InputError(
            f"a volume of {_edges(shape)} does not survive the strides of {name}: "
            f"every edge needs {SMALLEST_VOLUME} voxels or more (--size {SMALLEST_VOLUME})"
        )
    if norm not in NORMS:
        raise unknown_name("norm", norm, NORMS)
    if not (0 < width <= 4 and (width * 8).is_integer()):
        raise InputError(f"width multiplies the channels and must be a multiple of 1/8 up to 4, got {width}")
    size = features or DEFAULT_FEATURES[3]
    return VolumeResNet(name, in_channels=in_channels, features=size, width=width, norm=NORMS[norm])


class MLP(nn.Module):
    """Two hidden layers for points, as in the paper's synthetic study (2 -> 64 -> 64 -> features)."""

    def __init__(self, in_channels: int, num_features: int = 64, hidden: int = 64) -> None:
        super().__init__()
        self.num_features = num_features
        self.layers = nn.Sequential(
            nn.Linear(in_channels, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, num_features),
        )

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x)
        return output


def _points(name: str, in_channels: int, features: int | None) -> nn.Module:
    if name != "mlp":
        raise InputError(f"encoder {name} is not for points; the only one is mlp")
    return MLP(in_channels, features or DEFAULT_FEATURES[0])


@torch.no_grad()
def _try_out(network: nn.Module, name: str, shape: tuple[int, ...]) -> None:
    """Pass one blank image, so that a size the network cannot take is refused before any data is read."""
    network.eval()
    try:
        network(torch.zeros(1, *shape))
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"encoder {name} cannot take images of {_edges(shape[1:])}: {error}") from error
    network.train()


@torch.no_grad()
def check_batch_norm(encoder: nn.Module, shape: tuple[int, ...], rows: int) -> int:
    """Refuse BatchNorm layers that would see two values or fewer per channel.

    Two values are normalised to exactly ±1 whatever they were, so hardly any gradient passes. `shape` is that
    of one sample, `rows` the number of views in a batch (B·V). Returns the fewest rows that would not be refused.
    """
    counts: list[tuple[str, int]] = []
    layers = [
        (name, module)
        for name, module in encoder.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, name=name: counts.append((name, args[0][0, 0].numel())))
        for name, layer in layers
    ]
    if not hooks:
        return 1
    encoder.eval()
    encoder(torch.zeros(1, *shape))
    encoder.train()
    for hook in hooks:
        hook.remove()
    for name, count in counts:
        if count * rows <= 2:
            raise UndefinedError(
                f"BatchNorm layer {name} would see {count * rows} values per channel with {rows} views of "
                f"{_edges(shape[1:])}: it then outputs ±1 whatever the input. "
                "Use a larger batch or a larger --size, or --norm group (3D)"
            )
    return 1 + 2 // min((count for _, count in counts), default=3)


def num_features(encoder: nn.Module) -> int:
    """Size of an encoder's representation: the attribute that every encoder here carries."""
    return cast(int, encoder.num_features)


def _edges(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
