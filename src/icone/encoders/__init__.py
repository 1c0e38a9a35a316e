"""Networks that turn samples into representations, by name."""

from icone.encoders.registry import (
    DEFAULT_ENCODER,
    DEFAULT_FEATURES,
    MLP,
    VOLUME_ENCODERS,
    build_encoder,
    check_batch_norm,
    num_features,
)
from icone.encoders.layers import arrange_for_cuda
from icone.encoders.regions import Region, regions

__all__ = [
    "DEFAULT_ENCODER",
    "DEFAULT_FEATURES",
    "MLP",
    "VOLUME_ENCODERS",
    "Region",
    "arrange_for_cuda",
    "build_encoder",
    "check_batch_norm",
    "num_features",
    "regions",
]
