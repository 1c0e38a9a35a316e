"""The last feature map of an encoder, before pooling: what reconstruction reads."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from icone.errors import UndefinedError


def feature_map(encoder: nn.Module, images: Tensor) -> Tensor:
    """The last feature map, (B, C, *size) -> (B, channels, *cells), by the encoder's `forward_features`.

    Our 3D networks and all of timm's have that method. The tokens of a vision transformer are laid out as its patches.

    >>> from icone.encoders import build_encoder
    >>> encoder = build_encoder("test_vit", in_channels=1, spatial_dims=2, size=64)
    >>> feature_map(encoder, torch.zeros(2, 1, 64, 64)).shape
    torch.Size([2, 64, 4, 4])
    """
    network = cast(Any, encoder)
    found: Tensor = network.forward_features(images)
    if found.ndim == 3 and images.ndim == 4:
        patches = found[:, network.num_prefix_tokens :].transpose(1, 2)
        return patches.reshape(*patches.shape[:2], *network.patch_embed.grid_size)
    if "NHWC" in str(getattr(network, "output_fmt", "")):
        return found.movedim(-1, 1)
    return found


@torch.no_grad()
def map_shape(encoder: nn.Module, shape: tuple[int, ...], asked_by: str) -> tuple[int, ...]:
    """Channels and cells of the feature map for samples of this shape (C, *size); refuses encoders without one."""
    without = UndefinedError(
        f"{asked_by} reconstructs samples from a feature map, and the encoder {type(encoder).__name__} has none: it "
        "needs a method forward_features(images) -> (B, channels, *cells), as timm's networks and our 3D ones have"
    )
    if not hasattr(encoder, "forward_features"):
        raise without
    device = next(encoder.parameters()).device
    training = encoder.training
    encoder.eval()
    try:
        found = feature_map(encoder, torch.zeros(1, *shape, device=device))
    except (AttributeError, RuntimeError) as error:
        raise without from error
    finally:
        encoder.train(training)
    if found.ndim != len(shape) + 1:
        raise without
    return tuple(found.shape[1:])
