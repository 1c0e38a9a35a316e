"""Networks that turn samples into representations, by name."""

from icone.encoders.building import (
    DEFAULT_ENCODER,
    DEFAULT_FEATURES,
    MLP,
    VOLUME_ENCODERS,
    build_encoder,
    check_batch_norm,
    num_features,
)
from icone.encoders.layers import use_channels_last
from icone.encoders.regions import Region, regions
from icone.encoders.windows import Windows, window_batch_norm

__all__ = [
    "DEFAULT_ENCODER",
    "DEFAULT_FEATURES",
    "MLP",
    "VOLUME_ENCODERS",
    "Region",
    "Windows",
    "build_encoder",
    "check_batch_norm",
    "num_features",
    "regions",
    "use_channels_last",
    "window_batch_norm",
]
