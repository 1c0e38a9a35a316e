"""Looking at every sample once before training: is it readable, and what does it hold?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from icone.config import DataConfig
from icone.data.readers import quiet_readers
from icone.data.source import Array, Source
from icone.data.threads import read_ahead
from icone.errors import InputError

Progress = Callable[[int, int], None]
"""Called with (done, total) while samples are read."""

MAX_VALUES = 2**22
"""Values kept over all samples for the percentiles, at most 4096 of each."""


class Facts(NamedTuple):
    """What one sample holds."""

    position: int
    shape: tuple[int, ...]
    dtype: str
    spacing: tuple[float, ...] | None
    low: float
    high: float
    values: Array
    """Some of its values, at places that depend on the position only."""


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
    keep = max(16, min(4096, MAX_VALUES // max(1, len(chosen))))
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
            array, spacing = source.read(position)
    except InputError as error:
        return Problem(name, str(error))
    if array.size == 0:
        return Problem(name, f"{source.where(position)} is empty: its shape is {array.shape}")
    low, high = float(array.min()), float(array.max())
    if not np.isfinite(low) or not np.isfinite(high):
        return Problem(name, f"{source.where(position)} holds NaN or infinite values")
    if low == high and source.spatial_dims > 0:
        return Problem(name, f"{source.where(position)} is constant: every value is {low:g}")
    places = np.random.default_rng(position).integers(0, array.size, keep)
    values = np.asarray(array.flat[places], dtype=np.float32)
    return Facts(position, array.shape, array.dtype.newbyteorder("=").name, spacing, low, high, values)
