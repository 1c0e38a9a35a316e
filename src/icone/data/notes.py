"""What a user should know about a data set before training: what was guessed, what is lost, what looks wrong."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from icone.config import DataConfig
from icone.data.inspection import Facts
from icone.data.layouts import mask_notes
from icone.data.prepare import MIN_CONTRAST, Preparation
from icone.data.sources.base import Source
from icone.data.summary import scales_of, without_numbers
from icone.terminal import counted, either

MUCH_SMALLER = 0.5
"""An axis that shrinks below this share loses details that a person would still see."""
SAME_SPACING = 1.05
"""Spacings that differ by less than this factor are taken for one."""
CHANNELS_SHOWN = 8
"""Channels whose intensity range a note names; series and spectra have hundreds."""
OTHER_UNIT = 4
"""Files of two types whose largest values differ by more than this factor do not share a unit."""
PATCH = 16
"""Edge of the patches of the usual encoder of images, which must divide a size."""
ENLARGED = "samples are enlarged"
"""How the note begins that a smaller size would do."""
MOSTLY_ABOVE = 0.5
"""Share of values above a run's range from which on samples do not belong to it."""


def guess_notes(
    source: Source, facts: Sequence[Facts], preparation: Preparation, *, is_size_given: bool = False
) -> list[str]:
    """Sentences about what was guessed when files were read, and about sizes, spacings and types that differ.

    Who gives the size knows that samples are enlarged to it.
    """
    return [
        *_reader_notes(source, facts),
        *mask_notes(source.ids),
        *_name_notes(source, facts),
        *_type_notes(source, facts, preparation),
        *_scale_notes(facts, preparation),
        *_size_notes(facts, preparation, is_size_given),
        *_spacing_notes(facts, preparation),
    ]


def crop_notes(facts: Sequence[Facts], preparation: Preparation, overlap: float) -> Iterator[str]:
    """What `--crop` means for these samples."""
    shapes = [preparation.resized(fact.shape[1:], fact.spacing) for fact in facts]
    resolution = "their own resolution" if preparation.spacing is None else f"{preparation.spacing:g} mm per voxel"
    edges = "×".join(map(str, preparation.size))
    yield (
        f"samples keep {resolution}: every view is a crop of {edges}, and the crops of a sample share at least "
        f"{overlap:.0%} of it (--crop-overlap)"
    )
    small = [any(n < edge for n, edge in zip(shape, preparation.size, strict=True)) for shape in shapes]
    if any(small):
        are = f"{sum(small)} of {counted(len(small), 'sample')} {either(sum(small), 'is', 'are')}"
        yield f"{are} smaller than a crop along an axis, and padded with 0 there"
    uneven = [f.spacing for f in facts if f.spacing and max(f.spacing) > SAME_SPACING * min(f.spacing)]
    if uneven and preparation.spacing is None and preparation.spatial_dims == 3:
        yield (
            f"voxels are no cubes ({' × '.join(f'{s:.3g}' for s in uneven[0])} mm), and quarter turns swap their axes: "
            "--spacing makes them cubes, --volume-views.rotate=0 leaves the turns out"
        )


def _reader_notes(source: Source, facts: Sequence[Facts]) -> Iterator[str]:
    """What readers noted, once for samples of which the same was noted, numbers aside."""
    alike: dict[str, list[tuple[str, int]]] = {}
    for fact in facts:
        for note in fact.notes:
            alike.setdefault(without_numbers(note), []).append((note, fact.position))
    for found in alike.values():
        note, position = found[0]
        if len(found) == len(facts):
            yield note
        else:
            which = "" if len(found) == 1 else f"{len(found)} of {len(facts)} samples, such as "
            yield f"{which}{source.where(position)}: {note}"


def _scale_notes(facts: Sequence[Facts], preparation: Preparation) -> Iterator[str]:
    if not preparation.spatial_dims:
        return
    scales = scales_of(facts, preparation)
    shrinking = (scales < MUCH_SMALLER).any(axis=1)
    if not shrinking.any():
        return
    strongest = scales.min(axis=0)
    axes = ", ".join(
        f"axis {axis + 1} by {1 / scale:.1f}" for axis, scale in enumerate(strongest) if scale < MUCH_SMALLER
    )
    count = int(shrinking.sum())
    which = (
        "samples shrink"
        if shrinking.all()
        else f"{count:,} of {len(facts):,} samples {either(count, 'shrinks', 'shrink')}"
    )
    way_out = "a larger --size keeps them" if preparation.spacing is None else "a smaller --spacing keeps them"
    yield f"{which} by more than 2 ({axes}): small structures are lost; {way_out}"


def _size_notes(facts: Sequence[Facts], preparation: Preparation, is_given: bool) -> Iterator[str]:
    """Whether samples are enlarged, or cut because --spacing leaves them larger than the size."""
    if not preparation.spatial_dims or preparation.crops:
        return
    target = preparation.size[0]
    if preparation.spacing is not None:
        edges = [max(preparation.resized(fact.shape[1:], fact.spacing)) for fact in facts]
        cut = sum(edge > target for edge in edges)
        if cut:
            yield (
                f"{cut:,} of {counted(len(facts), 'sample')} {either(cut, 'is', 'are')} larger than {target} voxels of "
                f"{preparation.spacing:g} mm, and only {either(cut, 'its', 'their')} middle is used; "
                f"--size={max(edges)} keeps all of them whole, --crop={target} takes crops"
            )
        return
    largest = max(max(fact.shape[1:]) for fact in facts)
    if not is_given and largest < target and (scales_of(facts, preparation) > 1 - 0.5 / target).all():
        near = largest if preparation.spatial_dims == 3 else PATCH * math.ceil(largest / PATCH)
        keeps = "keeps their size" if near == largest else f"is near their size, and divides into patches of {PATCH}"
        yield f"{ENLARGED} from {largest} to {target}; --size={near} {keeps}"


def _name_notes(source: Source, facts: Sequence[Facts]) -> Iterator[str]:
    """Channels that files call differently: they are taken by their place."""
    by_names: dict[tuple[str, ...], int] = {}
    for fact in facts:
        by_names.setdefault(fact.names, fact.position)
    known = [(names, position) for names, position in by_names.items() if names]
    if len(known) > 1:
        (one, first), (other, second), *_ = known
        yield (
            f"the files call their channels differently, {', '.join(one)} in {source.where(first)} and "
            f"{', '.join(other)} in {source.where(second)}: channels are taken by their place"
        )


def _type_notes(source: Source, facts: Sequence[Facts], preparation: Preparation) -> Iterator[str]:
    """Files of two types, such as 8 and 16 bit, which one range cannot fit."""
    if preparation.low is None or not preparation.spatial_dims:
        return
    by_type: dict[str, list[Facts]] = defaultdict(list)
    for fact in facts:
        by_type[fact.dtype].append(fact)
    tops = {kind: float(np.nanmedian([np.nanmax(fact.high) for fact in found])) for kind, found in by_type.items()}
    low, high = min(tops, key=tops.__getitem__), max(tops, key=tops.__getitem__)
    if len(tops) > 1 and tops[high] > OTHER_UNIT * max(tops[low], 0):
        dark = by_type[low]
        most = {kind: max(float(np.nanmax(fact.high)) for fact in by_type[kind]) for kind in (low, high)}
        yield (
            f"the files mix types: {len(dark):,} of {len(facts):,} are {low} with values up to {most[low]:g}, such as "
            f"{source.where(dark[0].position)}, others {high} with values up to {most[high]:g}. One range makes the "
            "former dark: --intensity=sample scales each by itself"
        )


def _spacing_notes(facts: Sequence[Facts], preparation: Preparation) -> Iterator[str]:
    known = np.array([fact.spacing for fact in facts if fact.spacing is not None])
    if not len(known) or preparation.spacing is not None:
        return
    if len(known) < len(facts):
        silent = len(facts) - len(known)
        yield f"{silent} of {len(facts)} samples {either(silent, 'does not say its', 'do not say their')} spacing"
    low, high = known.min(axis=0), known.max(axis=0)
    if (high / low).max() > SAME_SPACING:
        axis = int((high / low).argmax())
        way_out = (
            f"; --spacing={float(np.median(known)):.2g} brings all to one" if preparation.spatial_dims == 3 else ""
        )
        yield f"the spacing is mixed: {low[axis]:.3g} to {high[axis]:.3g} mm along axis {axis + 1}{way_out}"


def range_notes(source: Source, facts: Sequence[Facts], preparation: Preparation) -> Iterator[str]:
    """Samples for a trained encoder whose values do not lie where those of the training data lay."""
    if preparation.low is None or preparation.high is None or not preparation.spatial_dims:
        return
    start, end = min(preparation.low), max(preparation.high)
    lows, highs = [np.nanmin(fact.low) for fact in facts], [np.nanmax(fact.high) for fact in facts]
    spans = np.clip(highs, start, end) - np.clip(lows, start, end)
    values = np.concatenate([fact.values.ravel() for fact in facts])
    above = float((values > end).mean())
    if above <= MOSTLY_ABOVE and np.median(spans) >= MIN_CONTRAST * (end - start):
        return
    lost = f"{above:.0%} of them become 1" if above > MOSTLY_ABOVE else "they look almost constant to the encoder"
    yield (
        f"the values of {source.name} are {min(lows):g} to {max(highs):g}, and the run makes {start:g} to {end:g} to "
        f"0 to 1, so that {lost}: its features mean nothing unless both have the same unit"
    )


def intensity_note(preparation: Preparation, config: DataConfig, names: Sequence[str] = ()) -> str:
    """Which values become 0 and 1; channels by their `names` where these are known."""
    if preparation.low is None or preparation.high is None:
        channels = "" if preparation.shares_range or preparation.channels == 1 else ", each channel by itself"
        why = ", because the samples share no unit" if config.intensity == "auto" else ""
        return f"intensity: each sample is scaled by its own 0.5 and 99.5 percentiles{channels}{why}"
    ranges = [f"{low:g} to {high:g}" for low, high in zip(preparation.low, preparation.high, strict=True)]
    if len(set(ranges)) == 1:
        return f"intensity: {ranges[0]} becomes 0 to 1"
    called = names if len(names) == len(ranges) else [f"channel {i}" for i in range(1, len(ranges) + 1)]
    listed = "; ".join(f"{name}: {one}" for name, one in list(zip(called, ranges, strict=True))[:CHANNELS_SHOWN])
    more = f"; … ({len(ranges)} channels)" if len(ranges) > CHANNELS_SHOWN else ""
    return f"intensity: each channel is scaled to 0 to 1 by its own range ({listed}{more})"


def kept_scale_notes(
    preparation: Preparation, inferred: Preparation, config: DataConfig, new: Sequence[Facts]
) -> Iterator[str]:
    """What differs where a run keeps its scale of intensities, which all samples of now would not have given it.

    `new` are the samples that the run did not know.
    """
    if intensity_note(preparation, config) != (of_now := intensity_note(inferred, config)):
        way_out = "--intensity=sample scales each sample by itself from here on"
        if inferred.low is not None and inferred.high is not None:
            way_out = f'--window="{min(inferred.low):g} {max(inferred.high):g}" scales all of them anew from here on'
        outside = _outside(preparation, new)
        clipped = f". {outside:.0%} of the values of new samples lie outside and are clipped" if outside >= 0.01 else ""
        yield (
            "the scale of intensities stays that of the run so far, because its encoder has learned it; from all "
            f"samples of now it would be: {of_now.removeprefix('intensity: ')}{clipped}. {way_out}"
        )
    if preparation.is_rgb != inferred.is_rgb:
        go_on, other = ("red, green and blue", "no") if preparation.is_rgb else ("channels without colours", "yes")
        yield (
            f"views take the three channels for {go_on}, as in the run so far, though not all files declare them so: "
            f"--colour={other} changes that from here on"
        )


def _outside(preparation: Preparation, facts: Sequence[Facts]) -> float:
    """The share of the values of samples that a range clips."""
    if preparation.low is None or preparation.high is None or not facts:
        return 0.0
    values = np.concatenate([fact.values.ravel() for fact in facts])
    return float(((values < min(preparation.low)) | (values > max(preparation.high))).mean())


def constant_channels(facts: Sequence[Facts]) -> list[int]:
    """Numbers, from 1, of the channels that hold one value only; none where the samples differ in their channels."""
    if len({fact.shape[0] for fact in facts}) > 1:
        return []
    lows, highs = np.array([fact.low for fact in facts]), np.array([fact.high for fact in facts])
    return [int(channel) + 1 for channel in np.flatnonzero(np.nanmin(lows, axis=0) == np.nanmax(highs, axis=0))]
