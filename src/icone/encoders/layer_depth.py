"""How deep in an encoder a parameter lies, for learning rates that fall towards the input."""

from __future__ import annotations

from typing import Any

from torch import nn


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
