"""The parts of an encoder that are compiled, and updated, one by one."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn


class Region(NamedTuple):
    """A module and the name of its method that computes it."""

    module: nn.Module
    method: str = "forward"


def regions(encoder: nn.Module) -> list[Region]:
    """The blocks of a transformer, stem and blocks of our 3D networks, and any other encoder as a whole.

    Blocks that look alike are compiled once, and the weights of one can be updated while the gradients of those
    before it are still being computed.
    """
    from timm.models.vision_transformer import VisionTransformer

    from icone.encoders.resnet3d import VolumeResNet

    if isinstance(encoder, VolumeResNet):
        return [Region(encoder, "stem"), *(Region(block) for stage in encoder.stages for block in stage.children())]
    if isinstance(encoder, VisionTransformer):
        around = [Region(encoder.patch_embed), Region(encoder, "_pos_embed"), Region(encoder, "forward_head")]
        return [*around, *(Region(block) for block in encoder.blocks)]
    return [Region(encoder)]
