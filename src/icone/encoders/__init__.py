"""Networks that turn samples into representations, by name."""

from icone.encoders.regions import Region, regions
from icone.encoders.registry import (
    DEFAULT_ENCODER,
    DEFAULT_FEATURES,
    MLP,
    VOLUME_ENCODERS,
    adopt_encoder,
    build_encoder,
    check_batch_norm,
    num_features,
)

__all__ = [
    "DEFAULT_ENCODER",
    "DEFAULT_FEATURES",
    "MLP",
    "VOLUME_ENCODERS",
    "Region",
    "adopt_encoder",
    "build_encoder",
    "check_batch_norm",
    "num_features",
    "regions",
]
