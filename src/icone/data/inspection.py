"""Looking at every sample once before training: is it readable, what does it hold, does it fit the others?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from icone.config import DataConfig
from icone.data.formats.lazy import LazyImage
from icone.data.formats.registry import quiet_readers
from icone.data.sources.base import Array, Sample, Source
from icone.data.sources.folder import mixed_dimensions
from icone.data.threads import in_chunks, read_ahead
from icone.errors import InputError, one_line
from icone.terminal import counted, either

Progress = Callable[[str, int, int], None]
"""Called with (what is done, samples done, total), as `icone.training.progress.ProgressBar` is."""

MAX_VALUES = 2**22
"""Values kept over all samples for the percentiles, at most 4096 of each channel of each sample."""
MOSTLY = 0.5
"""Share of values outside of --window from which on a note says so; of CT scans much is air."""
SMALL = 2**18
"""Bytes up to which samples of one shape are looked at together: one call for all costs as much as one for each."""


class Facts(NamedTuple):
    """What one sample holds."""

    position: int
    shape: tuple[int, ...]
    dtype: str
    spacing: tuple[float, ...] | None
    is_colour: bool | None
    low: tuple[float, ...]
    """The smallest value of each channel."""
    high: tuple[float, ...]
    """The largest value of each channel; NaN, as its smallest, where the sample lacks it."""
    values: Array
    """Some values of each channel, (C, n), at places that depend on the position only."""
    names: tuple[str, ...] = ()
    """The names of the channels, where the file says them."""
    notes: tuple[str, ...] = ()
    """What was guessed or left out when it was read."""


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
        chunks = in_chunks(unknown, workers, source.chunk)
        look = chain.from_iterable(read_ahead(partial(_look, source, keep), chunks, workers, ahead=4 * workers))
        for position in chosen:
            found = known[position] if position in known else next(look)
            if isinstance(found, Facts):
                facts.append(found)
            else:
                problems.append(found)
            if progress is not None:
                progress("looking at the samples", len(facts) + len(problems), len(chosen))
    if problems and not config.skip_unreadable:
        others = (
            f" ({len(problems) - 1} more of {len(chosen)} samples {either(len(problems) - 1, 'has', 'have')} problems)"
        )
        raise InputError(
            f"{problems[0].reason}{others if len(problems) > 1 else ''}; "
            "mend or remove it, or go on without such samples: --skip-unreadable"
        )
    return Inspection(facts, problems)


def find_unusable(
    source: Source, workers: int = 2, progress: Progress | None = None, positions: Sequence[int] = ()
) -> list[Problem]:
    """Those of the samples at these positions that cannot be used, of parts of huge files, of which no more is kept."""
    problems: list[Problem] = []
    done = 0
    with quiet_readers():
        chunks = in_chunks(positions, workers, source.chunk)
        for found in read_ahead(partial(_look, source, 0), chunks, workers, ahead=4 * workers):
            problems += [one for one in found if isinstance(one, Problem)]
            done += len(found)
            if progress is not None:
                progress("looking at the samples", done, len(positions))
    return problems


def _look(source: Source, keep: int, positions: Sequence[int]) -> list[Facts | Problem]:
    """What each of these samples holds; small ones of the same shape and type are looked at together."""
    found = {position: fact for position in positions if (fact := _look_at_regions(source, keep, position)) is not None}
    alike: dict[tuple[Any, ...], list[tuple[int, Sample]]] = {}
    whole = [position for position in positions if position not in found]
    for position, sample in zip(whole, source.each(whole), strict=True):
        if isinstance(sample, InputError):
            found[position] = Problem(source.ids[position], str(sample))
        elif sample.array.size == 0:
            what = f"{source.where(position)} is empty: its shape is {sample.array.shape}"
            found[position] = Problem(source.ids[position], what)
        elif sample.array.nbytes > SMALL:
            found |= _look_at(source, keep, [(position, sample)])
        else:
            alike.setdefault((sample.array.shape, sample.array.dtype), []).append((position, sample))
    for samples in alike.values():
        found |= _look_at(source, keep, samples)
    return [found[position] for position in positions]


def _look_at(source: Source, keep: int, samples: Sequence[tuple[int, Sample]]) -> dict[int, Facts | Problem]:
    """What samples of one shape and type hold, by position."""
    shape, dtype = samples[0][1].array.shape, samples[0][1].array.dtype.newbyteorder("=").name
    arrays: Array = samples[0][1].array[None] if len(samples) == 1 else np.stack([one.array for _, one in samples])
    spatial = tuple(range(2, arrays.ndim))
    ends: Array = np.stack([arrays.min(spatial), arrays.max(spatial)], axis=1).astype(float)
    are_finite = [bool(np.isfinite(one).all()) for one in ends]
    found: dict[int, Facts | Problem] = {}
    for (position, sample), array, (low, high), is_finite in zip(
        samples, arrays, ends.tolist(), are_finite, strict=True
    ):
        there = [channel for channel in range(len(low)) if channel not in sample.missing]
        is_constant = min(low[c] for c in there) == max(high[c] for c in there)
        if not is_finite:
            found[position] = Problem(source.ids[position], f"{source.where(position)} holds NaN or infinite values")
            continue
        if is_constant and source.spatial_dims > 0 and not source.is_sampled:
            what = f"{source.where(position)} is constant: every value is {low[0]:g}"
            found[position] = Problem(source.ids[position], what)
            continue
        values = _values_at(array, _places(position, shape, keep)).astype(np.float32)
        if sample.missing:
            low, high = ([v if c in there else np.nan for c, v in enumerate(end)] for end in (low, high))
            values[list(sample.missing)] = np.nan
        about = (shape, dtype, sample.spacing, sample.is_colour, tuple(low), tuple(high))
        found[position] = Facts(position, *about, values, sample.names, sample.notes)
    return found


def _places(position: int, shape: tuple[int, ...], keep: int) -> Array:
    """Some places in a sample (C, *spatial), as positions in its flat channels."""
    count = max(16, min(4096, keep // shape[0]))
    return np.random.default_rng(position).integers(0, math.prod(shape[1:]), count)


def _values_at(array: Array, places: Array) -> Array:
    """Values (C, n) at places in the flat channels, without a copy of a large sample that lies in another order."""
    if array.flags.c_contiguous or array.ndim == 1:  # points have no axes to unravel
        return array.reshape(len(array), -1)[:, places]
    index: tuple[Any, ...] = (slice(None), *np.unravel_index(places, array.shape[1:]))
    found: Array = array[index]
    return found


def _look_at_regions(source: Source, keep: int, position: int) -> Facts | Problem | None:
    """What a sample holds that is read region by region; None where it is read whole."""
    try:
        image = source.regions(position)
        if image is None:
            return None
        where = source.where(position)
        low, high, values = _over_regions(image, _places(position, image.shape, keep), where)
    except InputError as error:
        return Problem(source.ids[position], str(error))
    if not np.isfinite([low, high]).all():
        return Problem(source.ids[position], f"{where} holds NaN or infinite values")
    if min(low) == max(high):
        return Problem(source.ids[position], f"{where} is constant: every value is {low[0]:g}")
    dtype = image.dtype.newbyteorder("=").name
    about = (image.shape, dtype, image.millimetres, image.is_colour, low, high)
    return Facts(position, *about, values, image.names, image.guesses)


def _over_regions(image: LazyImage, chosen: Array, where: str) -> tuple[tuple[float, ...], tuple[float, ...], Array]:
    """The lowest and highest value of every channel, and the values at the chosen places."""
    places = np.stack(np.unravel_index(chosen, image.shape[1:]), axis=1)
    values: Array = np.empty((image.channels, len(places)), np.float32)
    lows, highs = [], []
    for start, stop in image.blocks():
        try:
            region = image.read(start, stop)
        except Exception as error:  # decoders raise anything
            raise InputError(f"cannot read {where}: {one_line(error)}") from error
        axes = tuple(range(1, region.ndim))
        lows.append(region.min(axes))
        highs.append(region.max(axes))
        inside = ((places >= start) & (places < stop)).all(axis=1)
        values[:, inside] = region[(slice(None), *(places[inside] - start).T)]
    low, high = (tuple(map(float, end)) for end in (np.min(lows, axis=0), np.max(highs, axis=0)))
    return low, high, values


def check_alike(source: Source, facts: Sequence[Facts], config: DataConfig) -> None:
    """Refuse training data that mixes dimensions or channel counts, or lacks the spacing asked for."""
    by_dims = {len(fact.shape) - 1: source.where(fact.position) for fact in facts}
    if len(by_dims) > 1:
        raise mixed_dimensions(by_dims[2], by_dims[3])
    by_channels = {fact.shape[0]: source.where(fact.position) for fact in facts}
    if config.channels == "auto" and len(by_channels) > 1:
        (one, first), (other, second), *_ = sorted(by_channels.items())
        way_out = (
            "turn all into one kind with --channels=gray or --channels=rgb, or leave files of another kind, such as "
            "masks, out with --exclude"
            if by_channels.keys() == {1, 3}
            else "leave one kind out with --exclude; or write every channel to a file of its own, for --channels-from "
            "and --missing-channels=zero"
        )
        raise InputError(f"the samples differ in their channels: {first} has {one} and {second} has {other}; {way_out}")
    _check_order(source, facts)
    odd = next((c for c in by_channels if c not in (1, 3)), None)
    if config.channels != "auto" and odd is not None and source.spatial_dims > 0:
        raise InputError(
            f"{by_channels[odd]} has {counted(odd, 'channel')} and cannot be turned into {config.channels}"
        )
    if config.spacing is not None:
        check_spacing(source, facts)


def _check_order(source: Source, facts: Sequence[Facts]) -> None:
    """Refuse files that hold the same channels in another order: one would be learned as the other."""
    first: dict[frozenset[str], Facts] = {}
    for fact in facts:
        one = first.setdefault(frozenset(fact.names), fact)
        if fact.names and fact.names != one.names and len(set(fact.names)) == len(fact.names):
            raise InputError(
                f"the channels are in another order in some files: {', '.join(one.names)} in "
                f"{source.where(one.position)}, and {', '.join(fact.names)} in {source.where(fact.position)}; write "
                "them in one order, or leave one kind out with --exclude"
            )


def check_spacing(source: Source, facts: Sequence[Facts]) -> None:
    """Refuse samples that do not say the spacing by which they should be resampled."""
    silent = next((fact for fact in facts if fact.spacing is None), None)
    if silent is not None:
        where = source.where(silent.position)
        raise InputError(f"{where} does not say its spacing, so --spacing cannot resample it; leave that out")


def check_window(source: Source, facts: Sequence[Facts], config: DataConfig) -> None:
    """Refuse a window that leaves nothing to see of a sample."""
    if config.window is None:
        return
    low, high = config.window
    for fact in facts:
        if np.nanmax(fact.high) <= low or np.nanmin(fact.low) >= high:
            raise InputError(
                f'--window="{low:g} {high:g}" leaves nothing of {source.where(fact.position)}, whose values are '
                f"{np.nanmin(fact.low):g} to {np.nanmax(fact.high):g}: give the range that should be seen"
            )


def window_notes(facts: Sequence[Facts], config: DataConfig) -> list[str]:
    """A sentence where most values that were looked at lie outside of the window."""
    if config.window is None:
        return []
    low, high = config.window
    values = np.concatenate([fact.values.ravel() for fact in facts])
    values = values[np.isfinite(values)]
    below, above = float((values < low).mean()), float((values > high).mean())
    if below + above <= MOSTLY:
        return []
    return [
        f'--window="{low:g} {high:g}" does not hold {below + above:.0%} of the values: {below:.0%} are below and '
        f"become 0, {above:.0%} are above and become 1. The values are {values.min():g} to {values.max():g}"
    ]
