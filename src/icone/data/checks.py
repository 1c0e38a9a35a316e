"""Whether samples fit together, and whether they fit an encoder."""

from __future__ import annotations

from collections.abc import Sequence

from icone.config import DataConfig
from icone.data.inspection import Facts
from icone.data.prepare import Preparation
from icone.data.sources.base import Source
from icone.data.sources.folder import mixed_dimensions
from icone.errors import InputError


def check_alike(source: Source, facts: Sequence[Facts], config: DataConfig) -> None:
    """Refuse training data that mixes dimensions or channel counts, or lacks the spacing asked for."""
    by_dims = {len(fact.shape) - 1: source.where(fact.position) for fact in facts}
    if len(by_dims) > 1:
        raise mixed_dimensions(by_dims[2], by_dims[3])
    by_channels = {fact.shape[0]: source.where(fact.position) for fact in facts}
    if config.channels == "auto" and len(by_channels) > 1:
        (one, first), (other, second), *_ = sorted(by_channels.items())
        raise InputError(
            f"the samples differ in their channels: {first} has {one} and {second} has {other}; "
            "turn all into one kind with --channels gray or --channels rgb"
        )
    odd = next((c for c in by_channels if c not in (1, 3)), None)
    if config.channels != "auto" and odd is not None and source.spatial_dims > 0:
        raise InputError(f"{by_channels[odd]} has {odd} channels and cannot be turned into {config.channels}")
    if config.spacing is not None:
        _check_spacing(source, facts)


def check_matches(source: Source, facts: Sequence[Facts], preparation: Preparation) -> None:
    """Refuse samples that a trained encoder cannot take: other dimensions or channels, or no spacing."""
    accepted = {preparation.channels} if preparation.colour == "auto" else {1, 3}
    for fact in facts:
        dims, channels, where = len(fact.shape) - 1, fact.shape[0], source.where(fact.position)
        if dims != preparation.spatial_dims:
            raise InputError(
                f"{where} has {dims} spatial axes, but the encoder was trained on {preparation.spatial_dims}"
            )
        if channels not in accepted:
            counts = " or ".join(str(count) for count in sorted(accepted))
            raise InputError(f"{where} has {channels} channels, but the encoder takes {counts}")
    if preparation.spacing is not None:
        _check_spacing(source, facts)


def _check_spacing(source: Source, facts: Sequence[Facts]) -> None:
    silent = next((fact for fact in facts if fact.spacing is None), None)
    if silent is not None:
        where = source.where(silent.position)
        raise InputError(f"{where} does not say its spacing, so --spacing cannot resample it; leave that out")
