"""Looking at every sample once before training: is it readable, and what does it hold?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from icone.config import DataConfig
from icone.data.formats.registry import quiet_readers
from icone.data.sources.base import Array, Source
from icone.data.threads import read_ahead
from icone.errors import InputError

Progress = Callable[[int, int], None]
"""Called with (done, total) while samples are read."""

MAX_VALUES = 2**22
"""Values kept over all samples for the percentiles, at most 4096 of each channel of each sample."""


class Facts(NamedTuple):
    """What one sample holds."""

    position: int
    shape: tuple[int, ...]
    dtype: str
    spacing: tuple[float, ...] | None
    is_colour: bool
    low: tuple[float, ...]
    """The smallest value of each channel."""
    high: tuple[float, ...]
    """The largest value of each channel."""
    values: Array
    """Some values of each channel, (C, n), at places that depend on the position only."""


class Problem(NamedTuple):
    """A sample that cannot be used."""

    id: str
    reason: str


class Inspection(NamedTuple):
    """The samples that can be used, and those that cannot."""

    facts: list[Facts]
    skipped: list[Problem]


def inspect_source(
    source: Source,
    config: DataConfig,
    workers: int = 2,
    progress: Progress | None = None,
    positions: Sequence[int] | None = None,
    known: Mapping[int, Facts] | None = None,
) -> Inspection:
    """Read the samples (all, or those at `positions`) and find the unreadable, non-finite and constant ones.

    With `skip_unreadable` these are left out and listed, else they are an error. What an earlier inspection of
    the same samples found, by position, is taken from `known` instead of being read.
    """
    chosen = range(len(source)) if positions is None else positions
    keep = MAX_VALUES // max(1, len(chosen))
    facts: list[Facts] = []
    problems: list[Problem] = []
    known = known or {}
    unknown = [position for position in chosen if position not in known]
    with quiet_readers():
        look = read_ahead(partial(_look, source, keep), unknown, workers, ahead=4 * workers)
        for position in chosen:
            found = known[position] if position in known else next(look)
            if isinstance(found, Facts):
                facts.append(found)
            else:
                problems.append(found)
            if progress is not None:
                progress(len(facts) + len(problems), len(chosen))
    if problems and not config.skip_unreadable:
        others = f" ({len(problems) - 1} more of {len(chosen)} samples have problems)"
        raise InputError(
            f"{problems[0].reason}{others if len(problems) > 1 else ''}; "
            "mend or remove it, or go on without such samples: --skip-unreadable"
        )
    return Inspection(facts, problems)


def _look(source: Source, keep: int, position: int) -> Facts | Problem:
    name = source.ids[position]
    try:
        with source.room(position):
            sample = source.read(position)
    except InputError as error:
        return Problem(name, str(error))
    array = sample.array
    if array.size == 0:
        return Problem(name, f"{source.where(position)} is empty: its shape is {array.shape}")
    channels = array if array.ndim > 1 else array[:, None]
    axes = tuple(range(1, channels.ndim))
    low, high = (tuple(map(float, end)) for end in (channels.min(axes), channels.max(axes)))
    if not np.isfinite([low, high]).all():
        return Problem(name, f"{source.where(position)} holds NaN or infinite values")
    if min(low) == max(high) and source.spatial_dims > 0:
        return Problem(name, f"{source.where(position)} is constant: every value is {low[0]:g}")
    size, count = channels[0].size, max(16, min(4096, keep // len(channels)))
    places = np.random.default_rng(position).integers(0, size, count)
    chosen: Any = (slice(None), *np.unravel_index(places, channels.shape[1:]))
    values = np.asarray(channels[chosen], dtype=np.float32)
    dtype = array.dtype.newbyteorder("=").name
    return Facts(position, array.shape, dtype, sample.spacing, sample.is_colour, low, high, values)
