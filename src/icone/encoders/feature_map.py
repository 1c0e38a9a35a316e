"""Dense features: what a network has before it pools, with a place for every patch or voxel of its last grid."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from icone.errors import InputError, UndefinedError


def feature_map(network: nn.Module, x: Tensor) -> Tensor:
    """The feature map (B, channels, *grid) of samples (B, C, *size), before pooling and head.

    The network gives it as `forward_features`, as all of timm, our 3D networks and those of `icone.encoders.volumes`
    do. Tokens (B, prefix + positions, channels) are laid out on the grid of their patches, without class and register
    tokens.
    """
    name = type(network).__name__
    forward: Any = getattr(network, "forward_features", None)
    if forward is None or x.ndim < 4:
        raise InputError(
            f"{name} has no feature map: dense features need images or volumes, and a network with a method "
            "forward_features(x) -> (B, channels, *grid)"
        )
    found = forward(x)
    if isinstance(found, Tensor) and found.ndim == 3:
        return _on_grid(found, network, name)
    if not isinstance(found, Tensor) or found.ndim != x.ndim:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{name}.forward_features returns {shape}, but a feature map is (B, channels, *grid)")
    return found.movedim(-1, 1) if "NHWC" in str(getattr(network, "output_fmt", "")) else found


def _on_grid(tokens: Tensor, network: nn.Module, name: str) -> Tensor:
    """(B, prefix + positions, channels) -> (B, channels, *grid)."""
    grid = tuple(getattr(getattr(network, "patch_embed", None), "grid_size", None) or ())
    positions = tokens[:, getattr(network, "num_prefix_tokens", 0) :]
    if positions.shape[1] != math.prod(grid):
        raise InputError(f"{name} does not say on which grid its {positions.shape[1]} tokens lie")
    return positions.transpose(1, 2).reshape(len(tokens), -1, *grid)


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
    except (InputError, AttributeError, RuntimeError) as error:
        raise without from error
    finally:
        encoder.train(training)
    if found.ndim != len(shape) + 1:
        raise without
    return tuple(found.shape[1:])
