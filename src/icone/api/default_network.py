"""What `--encoder auto` is: decided once, when a run begins, and then part of its configuration."""

from __future__ import annotations

import dataclasses

from icone.config import EncoderConfig, PretrainConfig
from icone.encoders.registry import PAPER_NAMES
from icone.recipe import VOLUME_ENCODER


def with_default_network(config: PretrainConfig, spatial_dims: int) -> PretrainConfig:
    """The configuration of a new run, with the name of the recipe's network for volumes where `--encoder` is auto.

    The paper's network stays where something asks for it: its recipe, weights, which were published for it, or a
    normalisation layer. A stored configuration that says auto means the paper's network, as it always did.

    >>> with_default_network(PretrainConfig(source="scans"), 3).encoder
    'nf_resnet18_3d'
    >>> with_default_network(PretrainConfig(source="scans", recipe="paper"), 3).encoder
    'auto'
    """
    is_open = config.encoder == EncoderConfig.encoder and config.norm == EncoderConfig.norm and config.weights is None
    if spatial_dims != 3 or not is_open or config.recipe == "paper":
        return config
    return dataclasses.replace(config, encoder=VOLUME_ENCODER)


def with_network_of_before(config: PretrainConfig, before: PretrainConfig) -> PretrainConfig:
    """The configuration of a run that goes on: auto is what it was when the run began."""
    was_decided = config.encoder == EncoderConfig.encoder and before.encoder == VOLUME_ENCODER
    both_the_paper_s = config.encoder in PAPER_NAMES and before.encoder in PAPER_NAMES
    return dataclasses.replace(config, encoder=before.encoder) if was_decided or both_the_paper_s else config
