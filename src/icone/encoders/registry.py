"""Encoders by name: timm for images, residual networks for volumes, an MLP for points, and your own.

Adding one: `register_encoder(name, builder, spatial_dims)`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from icone.encoders.layers import PatchConv2d
from icone.encoders.volumes import VOLUME_ENCODERS, build_volume_encoder
from icone.errors import OWN_CODE, InputError, UndefinedError, nearest_names, plain_spelling, unknown_name
from icone.views.custom import kept_random_states

PAPER_ENCODER = {0: "mlp", 2: "vit_small_patch16", 3: "resnet18_3d"}
"""The paper's network, by the number of spatial dimensions."""
PAPER_NAMES = ("paper", "auto")
"""Names of the paper's network. `icone.pretrain` puts the recipe's in the place of auto where a run begins."""
DEFAULT_FEATURES = {0: 64, 2: 384, 3: 512}
"""Size of the representation of the default encoders."""
KINDS = {0: "points", 2: "images", 3: "volumes"}
Builder = Callable[..., nn.Module]
SMALLEST_VOLUME = 16
"""The networks halve a volume five times; from a smaller one the last two stages would see a single voxel."""

RESNET3D_STRIDE = 32
"""Voxels of a volume along one edge of a voxel of the last feature map."""
RESNETS_3D = ("resnet10_3d", "resnet18_3d", "resnet34_3d", "resnet50_3d")
NF = "nf_"
"""What the names of normalizer-free networks begin with, as in timm."""
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

    `spatial_dims` is 0 for points, 2 for images, 3 for volumes, and `size` the edges of images or volumes. `auto` and
    `paper` are the paper's network for it. What `icone.pretrain` takes for volumes is `icone.recipe.VOLUME_ENCODER`.

    >>> encoder = build_encoder(in_channels=1, spatial_dims=3, size=32, width=0.25)
    >>> encoder.num_features, encoder(torch.zeros(2, 1, 32, 32, 32)).shape
    (512, torch.Size([2, 512]))
    """
    if spatial_dims not in PAPER_ENCODER:
        raise InputError(f"spatial_dims must be 0 (points), 2 (images) or 3 (volumes), got {spatial_dims}")
    name = encoder_name(name, spatial_dims)
    shape = (size,) * spatial_dims if isinstance(size, int) else tuple(size)
    if spatial_dims and len(shape) != spatial_dims:
        edges = f"one edge, or a tuple of {spatial_dims}"
        raise InputError(f"an encoder for {KINDS[spatial_dims]} needs their size ({edges}): got size={size!r}")
    builder = ENCODERS[spatial_dims].get(name)
    if builder is None and spatial_dims == 3 and timm_name(name) is not None:
        known = ", ".join(sorted(ENCODERS[3]))
        meant = "".join(f" (did you mean {near}?)" for near in nearest_names(name, ENCODERS[3], most=1))
        raise InputError(
            f"{name} is an encoder for images, and the samples are taken for volumes{meant}; if one of their axes "
            f"holds channels, --axes=CYX or --axes=YXC says so. Encoders for volumes: {known}"
        )
    if builder is None and spatial_dims != 2:
        raise unknown_name(f"encoder for {KINDS[spatial_dims]}", name, ENCODERS[spatial_dims], OWN_CODE)
    if builder is None:
        builder = partial(_timm, name)  # any of timm's names works for images
    settings = {"in_channels": in_channels, "size": shape, "norm": norm, "width": width, "features": features}
    taken = inspect.signature(builder).parameters
    network = builder(**{setting: value for setting, value in settings.items() if setting in taken})
    if not isinstance(getattr(network, "num_features", None), int):
        raise InputError(f"encoder {name} does not say how many features it has: set its attribute num_features")
    return network


def encoder_name(name: str, spatial_dims: int) -> str:
    """The name of the encoder that `paper` and `auto` stand for; any other name as it is.

    >>> encoder_name("auto", 2)
    'vit_small_patch16'
    """
    return PAPER_ENCODER[spatial_dims] if name in PAPER_NAMES else name


def register_encoder(name: str, builder: Builder, spatial_dims: int) -> None:
    """Add an encoder of your own for points (0), images (2) or volumes (3) under a name.

    `builder` is called with those of the keyword arguments in_channels, size, norm, width and features that it takes,
    and returns an untrained module `(B, in_channels, *size) -> (B, num_features)` with the attribute `num_features`.
    """
    if spatial_dims not in ENCODERS:
        raise InputError(f"spatial_dims must be 0 (points), 2 (images) or 3 (volumes), got {spatial_dims}")
    if name in ENCODERS[spatial_dims] or name in PAPER_NAMES:
        raise InputError(f"there is an encoder {name} for {KINDS[spatial_dims]} already: give yours another name")
    ENCODERS[spatial_dims][name] = builder


def timm_name(name: str) -> str | None:
    """What timm calls an encoder for images, where it is one of timm's.

    >>> timm_name("auto"), timm_name("resnet18"), timm_name("resnet18_3d")
    ('vit_small_patch16_224', 'resnet18', None)
    """
    import timm

    builder = ENCODERS[2].get(encoder_name(name, 2))
    if isinstance(builder, partial) and builder.func is _timm:
        return str(builder.args[0])
    return name if builder is None and timm.is_model(name) else None


def _timm(name: str, *, in_channels: int, size: tuple[int, ...], features: int | None) -> nn.Module:
    import timm

    others = ((one, KINDS[dims]) for dims, known in ENCODERS.items() for one in known if dims != 2)
    for one, kind in others:
        if plain_spelling(one) == plain_spelling(name):
            raise InputError(
                f"encoder {one} is for {kind} and not for 2D images; the default is {PAPER_ENCODER[2]}, "
                "any timm name works"
            )
    architecture, _, tag = name.partition(".")
    if tag and timm.is_model(architecture):
        raise InputError(
            f"encoder {name}: {tag} names trained weights, but an encoder begins here with random ones; "
            f"to start from them give --encoder={architecture} --weights=timm:{tag}, else write {architecture}"
        )
    if not timm.is_model(name):
        raise unknown_name("encoder", name, [*ENCODERS[2], *timm.list_models()], OWN_CODE)
    outputs = features or 0
    try:
        network = timm.create_model(name, in_chans=in_channels, num_classes=outputs, img_size=size)
    except TypeError:  # convolutional networks take any size and no such argument
        network = timm.create_model(name, in_chans=in_channels, num_classes=outputs)
    except (AssertionError, ValueError) as error:
        raise InputError(f"encoder {name} cannot take images of {_edges(size)}: {error}") from error
    embedding = cast(Any, getattr(network, "patch_embed", None))
    patches = getattr(embedding, "proj", None)
    if isinstance(patches, nn.Conv2d) and patches.kernel_size == patches.stride:
        if any(edge % patch for edge, patch in zip(size, patches.kernel_size, strict=True)):
            raise InputError(
                f"encoder {name} cuts images into patches of {_edges(patches.kernel_size)}, which {_edges(size)} does "
                "not divide into: choose a --size that is a multiple of the patch"
            )
        embedding.proj = PatchConv2d.of(patches)
    network.num_features = cast(Any, _try_out(network, name, (in_channels, *size)))
    return network


def _resnet3d(
    name: str, *, in_channels: int, size: tuple[int, ...], norm: str, width: float, features: int | None
) -> nn.Module:
    from icone.encoders.resnet3d import VolumeResNet

    _check_resnet3d(name, size, width)
    if norm not in NORMS:
        raise unknown_name("norm", norm, NORMS)
    if norm == "instance" and max(size) <= RESNET3D_STRIDE:
        raise InputError(
            f"--norm=instance is not defined for {name} and volumes of {_edges(size)}: its last feature map has one "
            f"voxel, and one value cannot be normalised. Give a --size above {RESNET3D_STRIDE}, or --norm=group"
        )
    outputs = features or DEFAULT_FEATURES[3]
    return VolumeResNet(name, in_channels=in_channels, features=outputs, width=width, norm=NORMS[norm])


def _nf_resnet3d(
    name: str, *, in_channels: int, size: tuple[int, ...], norm: str, width: float, features: int | None
) -> nn.Module:
    from icone.encoders.nf_resnet3d import NFVolumeResNet

    if norm != "batch":
        raise InputError(
            f"{name} has no normalisation layers: leave --norm={norm} out, or take {name.removeprefix(NF)}"
        )
    _check_resnet3d(name, size, width)
    shape = name.removeprefix(NF)
    return NFVolumeResNet(shape, in_channels=in_channels, features=features or DEFAULT_FEATURES[3], width=width)


def _check_resnet3d(name: str, size: tuple[int, ...], width: float) -> None:
    if min(size) < SMALLEST_VOLUME:
        raise InputError(
            f"a volume of {_edges(size)} does not survive the strides of {name}: "
            f"every edge needs {SMALLEST_VOLUME} voxels or more (--size={SMALLEST_VOLUME})"
        )
    if not (0 < width <= 4 and (width * 8).is_integer()):
        raise InputError(f"width multiplies the channels and must be a multiple of 1/8 up to 4, got {width}")


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


def _mlp(*, in_channels: int, features: int | None) -> nn.Module:
    return MLP(in_channels, features or DEFAULT_FEATURES[0])


ENCODERS: dict[int, dict[str, Builder]] = {
    0: {"mlp": _mlp},
    2: {"vit_small_patch16": partial(_timm, "vit_small_patch16_224")},
    3: {
        **{name: partial(_resnet3d, name) for name in RESNETS_3D},
        **{NF + name: partial(_nf_resnet3d, NF + name) for name in RESNETS_3D},
        **{name: partial(build_volume_encoder, kind, name) for name, kind in VOLUME_ENCODERS.items()},
    },
}
"""Builders by number of spatial dimensions and name; for images also all names of timm."""


@torch.no_grad()
def _try_out(network: nn.Module, name: str, shape: tuple[int, ...]) -> int:
    """Pass one blank image and return how many features it gets; timm's own numbers are often those before a head.

    A size that the network cannot take is refused so before any data is read.
    """
    network.eval()
    try:
        features: Any = network(torch.zeros(1, *shape))
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"encoder {name} cannot take images of {_edges(shape[1:])}: {error}") from error
    if not isinstance(features, Tensor) or features.ndim != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else f"a {type(features).__name__}"
        raise InputError(f"encoder {name} returns {found} for an image, but features are (1, n): take another encoder")
    network.train()
    return int(features.shape[1])


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
        layer.register_forward_pre_hook(lambda _, args, name=name: counts.append((name, _per_channel(args[0]))))
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
                "Use a larger batch or a larger --size, or for volumes --encoder=nf_resnet18_3d or --norm=group"
            )
    return 1 + 2 // min((count for _, count in counts), default=3)


def _per_channel(x: Tensor) -> int:
    """Values of each channel; of one sample (B, C, *map), or of its tokens, which may lie along the first axis."""
    return x.numel() // x.shape[1]


def forward_flops(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """Floating-point operations of a forward pass for one sample of this shape (C, *size): 2 for a multiply and an add.

    They are counted without computing anything, on the device "meta". A network that cannot run there counts as 0.

    >>> forward_flops(nn.Linear(8, 5), (8,))
    80
    """
    counter = FlopCounterMode(display=False)
    try:
        network = copy.deepcopy(encoder).to("meta").eval()
        with counter, torch.no_grad():
            network(torch.empty(1, *shape, device="meta"))
    except Exception:  # a user's network may do anything, such as look at values
        return 0
    return counter.get_total_flops()


def num_features(encoder: nn.Module) -> int:
    """Size of an encoder's representation: the attribute that every encoder here carries."""
    found = getattr(encoder, FEATURES, None)
    return cast(int, encoder.num_features if found is None else found)


FEATURES = "icone_num_features"
"""The attribute that `adopt_encoder` gives its copy; a user's own `num_features` may mean something else."""


def adopt_encoder(network: nn.Module, *, in_channels: int, size: tuple[int, ...]) -> nn.Module:
    """Our own copy of a user's network `(B, in_channels, *size) -> (B, features)`, on the CPU, in training mode.

    The number of features is found by a forward pass. The user's network is left as it is.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    >>> num_features(adopt_encoder(network, in_channels=1, size=(8, 8)))
    5
    """
    name = type(network).__name__
    try:
        encoder = copy.deepcopy(network).cpu()
    except Exception as error:  # hooks, locks and handles cannot be copied
        raise InputError(f"the encoder {name} cannot be copied: {error}; build it without hooks") from error
    encoder.eval()
    try:
        with torch.no_grad():
            features: Any = encoder(torch.zeros(2, in_channels, *size))
    except Exception as error:  # it is the user's code: whatever it raises
        raise InputError(
            f"the encoder {name} cannot take samples of shape {(in_channels, *size)}: "
            f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        ) from error
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        pool = f"nn.AdaptiveAvgPool{len(size)}d(1), nn.Flatten()" if size else "a linear layer"
        raise InputError(
            f"the encoder {name} returns {found} for 2 samples, but features are a tensor (2, features): "
            f"wrap it, for example as nn.Sequential(encoder, {pool})"
        )
    _check_training_mode(encoder, features.shape, (in_channels, *size))
    setattr(encoder, FEATURES, features.shape[1])
    return encoder.train()


@torch.no_grad()
def _check_training_mode(encoder: nn.Module, expected: torch.Size, shape: tuple[int, ...]) -> None:
    """Refuse a network that returns something else while it trains, such as features and those of a helper.

    It runs in a copy, because running changes statistics and draws random numbers. What it cannot take here, such as
    a batch of two, training would say.
    """
    trained = copy.deepcopy(encoder).train()
    try:
        with kept_random_states():
            features: Any = trained(torch.zeros(len(expected), *shape))
    except Exception:  # it is the user's code: whatever it raises
        return
    if not isinstance(features, Tensor) or features.shape != expected:
        found = tuple(features.shape) if isinstance(features, Tensor) else f"a {type(features).__name__}"
        raise InputError(
            f"the encoder {type(encoder).__name__} returns {found} for 2 samples in training mode, and features "
            f"{tuple(expected)} in evaluation mode: give a network that returns the same in both, for example a "
            "module around it that returns its features alone"
        )


def _edges(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
