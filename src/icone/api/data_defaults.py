"""Defaults that are decided once, when a run begins, and then are part of its configuration; some follow the data."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from icone.api.batching import AUTO_BATCH, check_micro_batch_size
from icone.config import EncoderConfig, PretrainConfig
from icone.encoders.registry import PAPER_NAMES
from icone.methods import Method
from icone.nn.ranks import Ranks
from icone.recipe import BASE_LR, IMAGE_BATCH, VOLUME_ENCODER, WARMUP
from icone.training.distributed import check_batch_size

HIGH_RATE = 30.0
"""Times the default learning rate from which on a run says so. Ten times is usual for the smallest networks."""
BatchChoice = Literal["given", "by data", "by plan"]
"""How the batch size is chosen: by the user, by the kind of data where the user names none, or by a plan ("auto")."""


def with_data_defaults(
    config: PretrainConfig,
    choice: BatchChoice,
    spatial_dims: int,
    samples: int,
    built: Method | None = None,
    ranks: Ranks | None = None,
) -> PretrainConfig:
    """The configuration of a new run on so many samples, with its warm-up, and what its data decides: the network and
    the batch size.

    A method that is `built` has a batch size of its own. Each of several processes takes a sample at least.

    >>> def decided(dims):
    ...     config = with_data_defaults(PretrainConfig(source="scans"), "by data", dims, samples=500)
    ...     return config.encoder, config.batch_size
    >>> decided(2), decided(3)
    (('auto', 16), ('nf_resnet18_3d', 1))
    """
    config = with_default_warmup(with_default_network(config, spatial_dims))
    if choice == "given":
        return config
    of_data = AUTO_BATCH if choice == "by plan" else IMAGE_BATCH if spatial_dims == 2 else 1
    of_ranks = 1 if ranks is None else ranks.size
    batch = min(max(of_data, of_ranks), samples) if built is None else built.setting.batch_size
    config = dataclasses.replace(config, batch_size=batch)
    if choice == "by data":  # a plan says by itself what it does with micro-batches
        check_batches(config, ranks)
    return config


def high_rate(config: PretrainConfig) -> str:
    """A sentence where the learning rate is far above the default, as after a slip; nothing elsewhere.

    >>> high_rate(PretrainConfig(source="scans", lr=0.1))
    '--lr=0.1 is 1,000 times the default of 0.0001: features are often lost at such a rate'
    >>> high_rate(PretrainConfig(source="scans", lr=1e-3))
    ''
    """
    times = config.lr / BASE_LR
    if times < HIGH_RATE:
        return ""
    rate = f"--lr={config.lr:g} is {times:,.0f} times the default of {BASE_LR:g}"
    return f"{rate}: features are often lost at such a rate"


def check_batches(config: PretrainConfig, ranks: Ranks | None = None) -> None:
    """Refuse a batch that is too small for its processes or for its micro-batches."""
    check_batch_size(config.batch_size, ranks)
    check_micro_batch_size(config, ranks)


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


def with_default_warmup(config: PretrainConfig) -> PretrainConfig:
    """The configuration of a new run, with the recipe's warm-up where `--warmup` is not given.

    A stored configuration without one means none, or the recipe's with `--weights`, as it always did.

    >>> with_default_warmup(PretrainConfig(source="scans")).warmup
    0.05
    >>> with_default_warmup(PretrainConfig(source="scans", recipe="paper")).warmup is None
    True
    """
    if config.warmup is not None or config.recipe == "paper":
        return config
    return dataclasses.replace(config, warmup=WARMUP)


def with_defaults_of_before(config: PretrainConfig, before: PretrainConfig) -> PretrainConfig:
    """The configuration of a run that goes on: the network and the warm-up are what they were when the run began,
    where nothing else is given."""
    config = with_network_of_before(config, before)
    return dataclasses.replace(config, warmup=before.warmup) if config.warmup is None else config


def with_network_of_before(config: PretrainConfig, before: PretrainConfig) -> PretrainConfig:
    """The configuration of a run that goes on: auto is what it was when the run began."""
    was_decided = config.encoder == EncoderConfig.encoder and before.encoder == VOLUME_ENCODER
    both_the_paper_s = config.encoder in PAPER_NAMES and before.encoder in PAPER_NAMES
    return dataclasses.replace(config, encoder=before.encoder) if was_decided or both_the_paper_s else config


def with_batch_of_before(config: PretrainConfig, before: PretrainConfig, choice: BatchChoice) -> PretrainConfig:
    """The configuration of a run that goes on: a batch size that is not given is what it was, and its micro-batches."""
    if choice == "given":
        return config
    decided: dict[str, Any] = {"batch_size": before.batch_size}
    for name in ("micro_batch", "checkpoint_activations"):
        if choice == "by plan" or getattr(config, name) == getattr(PretrainConfig, name):
            decided[name] = getattr(before, name)
    return dataclasses.replace(config, **decided)
