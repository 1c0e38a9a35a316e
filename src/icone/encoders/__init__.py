"""Networks that turn samples into representations, by name."""

from icone.encoders.feature_map import feature_map, map_shape
from icone.encoders.regions import Region, checkpoint_activations, freeze_patch_embed, regions
from icone.encoders.registry import (
    DEFAULT_FEATURES,
    ENCODERS,
    MLP,
    PAPER_ENCODER,
    adopt_encoder,
    build_encoder,
    check_batch_norm,
    forward_flops,
    num_features,
    register_encoder,
)

DEFAULT_ENCODER = PAPER_ENCODER
"""The name of `PAPER_ENCODER` in version 0.1."""

__all__ = [
    "DEFAULT_ENCODER",
    "DEFAULT_FEATURES",
    "ENCODERS",
    "MLP",
    "PAPER_ENCODER",
    "Region",
    "adopt_encoder",
    "build_encoder",
    "check_batch_norm",
    "checkpoint_activations",
    "feature_map",
    "forward_flops",
    "freeze_patch_embed",
    "map_shape",
    "num_features",
    "regions",
    "register_encoder",
]
