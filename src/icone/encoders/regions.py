"""The parts of an encoder: how deep each lies, and what is compiled, updated or computed again one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from icone.errors import InputError
from icone.nn import Recomputation

PATCH_PROJECTIONS = ("patch_embed", "patch_embeddings")
"""What timm and MONAI call the layer that turns patches into tokens."""


class Region(NamedTuple):
    """An object, most often a module, and the name of its method that computes it."""

    module: Any
    method: str = "forward"

    def replace_function(self, change: Callable[[Any], Any]) -> None:
        """Let the module compute by another function; inside of what computes it again, where there is such."""
        present = getattr(self.module, self.method)
        if isinstance(present, Recomputation):
            present.function = change(present.function)
        else:
            setattr(self.module, self.method, change(present))

    def restore(self) -> None:
        """Let the module compute by its own method again."""
        present = self.module.__dict__.pop(self.method, None)
        if isinstance(present, Recomputation):
            self.recompute()

    def recompute(self) -> None:
        """Let the backward pass compute the region again, instead of keeping its activations."""
        present = getattr(self.module, self.method)
        if not isinstance(present, Recomputation):
            setattr(self.module, self.method, Recomputation(self.module, present))


def regions(encoder: nn.Module) -> list[Region]:
    """The blocks of a transformer, stem and blocks of our 3D networks, and any other encoder as a whole.

    Blocks that look alike are compiled once, and the weights of one can be updated while the gradients of those
    before it are still being computed.
    """
    from timm.models.vision_transformer import VisionTransformer

    from icone.encoders.resnet3d import StagedNetwork

    if isinstance(encoder, StagedNetwork):
        return [Region(encoder, "stem"), *(Region(block) for stage in encoder.stages for block in stage.children())]
    if isinstance(encoder, VisionTransformer):
        around = [Region(encoder.patch_embed), Region(encoder, "_pos_embed"), Region(encoder, "forward_head")]
        return [*around, *(Region(block) for block in encoder.blocks)]
    # A compiler must not look into what is computed again.
    again = [part for part in _listed(encoder) if isinstance(part.forward, Recomputation)]
    return [Region(part) for part in again] or [Region(encoder)]


def recomputed_regions(encoder: nn.Module) -> list[Region]:
    """The parts whose activations are worth computing again.

    Of our 3D networks that is the stem and the first two stages: the activations of a stage take a quarter of the
    memory of the one before it, and so the last two take a twentieth of all. Of any other network it is the modules
    that are listed in its outermost `nn.Sequential` or `nn.ModuleList` containers and have parts of their own, such as
    the blocks of a transformer. A network without any is a single part, and computing that again saves little.
    """
    from icone.encoders.resnet3d import StagedNetwork

    if isinstance(encoder, StagedNetwork):
        stages = encoder.stages[:2]
        return [Region(encoder, "stem"), *(Region(block) for stage in stages for block in stage.children())]
    return [Region(part) for part in _listed(encoder)] or [Region(encoder)]


def _listed(network: nn.Module) -> list[nn.Module]:
    if isinstance(network, (nn.Sequential, nn.ModuleList)) and len(network) > 1:
        return [part for part in network if any(True for _ in part.children()) and any(True for _ in part.parameters())]
    return [part for child in network.children() for part in _listed(child)]


def checkpoint_activations(encoder: nn.Module) -> str | None:
    """Let the backward pass compute the activations of an encoder of our own again; a note where that saves little."""
    parts = recomputed_regions(encoder)
    for region in parts:
        region.recompute()
    if [region.module for region in parts] == [encoder]:
        return (
            f"the encoder {type(encoder).__name__} lists no blocks (nn.Sequential, nn.ModuleList), so that its "
            "activations are computed again as a whole, which saves little memory"
        )
    return None


def freeze_patch_embed(encoder: nn.Module) -> None:
    """Let the projection of a transformer's patches keep its weights.

    Chen et al. 2021 (arXiv:2104.02057, section 4.2) found that layer to be where the training of vision transformers
    without labels becomes unstable. Position embeddings and the class token go on learning.
    """
    found = [part for name, part in encoder.named_modules() if name.rpartition(".")[2] in PATCH_PROJECTIONS]
    if not found:
        raise InputError(
            f"the encoder {type(encoder).__name__} has no projection of patches ({' or '.join(PATCH_PROJECTIONS)}): "
            "leave --freeze-patch-embed out, or take a transformer"
        )
    for part in found:
        part.requires_grad_(False)


def layer_depths(network: nn.Module) -> dict[nn.Parameter, int]:
    """The depth of every parameter: 0 at the input, the same for all of a block or stage.

    timm says it for its networks. Of others, `stages` lists the modules in their order: what no stage holds is the stem
    if it comes before the first, and else the head. A network that has neither is of one depth.

    >>> from icone.encoders import build_encoder
    >>> encoder = build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=16, width=0.125)
    >>> sorted(set(layer_depths(encoder).values()))
    [0, 1, 2, 3, 4, 5]
    """
    matcher: Any = getattr(network, "group_matcher", None)
    if matcher is not None:
        from timm.models import group_parameters

        by_name = group_parameters(network, matcher(coarse=False), reverse=True)
        numbers = {number: rank for rank, number in enumerate(sorted(set(by_name.values())))}
        return {parameter: numbers[by_name[name]] for name, parameter in network.named_parameters()}
    stages: Any = getattr(network, "stages", None)
    if not isinstance(stages, (list, nn.ModuleList, nn.Sequential)):
        return dict.fromkeys(network.parameters(), 0)
    inside = {parameter: depth for depth, stage in enumerate(stages, 1) for parameter in stage.parameters()}
    depths: dict[nn.Parameter, int] = {}
    outside = 0
    for parameter in network.parameters():
        if parameter in inside:
            outside = len(stages) + 1
        depths[parameter] = inside.get(parameter, outside)
    return depths
