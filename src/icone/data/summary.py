"""What was understood of a data set: the first lines of `icone pretrain`, and what `icone inspect` shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from icone.data.chunks import chunk_bytes
from icone.data.crops import window_starts
from icone.data.inspection import Facts, Problem
from icone.data.labels import class_names
from icone.data.memory import GB
from icone.data.prepare import Preparation
from icone.data.sources.base import Source
from icone.data.sources.tiles import TilesSource
from icone.data.targets import label_set
from icone.terminal import counted

Extent = list[float] | dict[str, list[float]] | None
"""One number per axis; the smallest and the largest of each where samples differ; None where no sample says it."""

MICROSCOPIC = 0.01
"""Millimetres below which spacings are told in micrometres."""
SHOWN = 8
"""Classes, channels and left-out samples that the text names; the JSON names all."""
COLOURS = ("red", "green", "blue")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a data set holds and how it will be prepared."""

    samples: int
    """Samples that can be used."""
    dimensions: int
    shape: Extent
    """Edges of the samples as they are stored, without channels."""
    spacing: Extent
    """Millimetres per voxel."""
    channels: list[dict[str, Any]]
    """Name, lowest and highest stored value of each."""
    task: str | None
    """What the labels are: classification, regression or multilabel; None without labels."""
    classes: dict[str, int]
    """Samples of every class; empty where the labels are numbers."""
    groups: int | None
    splits: dict[str, int]
    """Samples to train on, held out, and left alone."""
    skipped: list[dict[str, str]]
    size: list[int]
    """Edges that every sample is brought to."""
    scale: list[float]
    """By how much each axis of the middle sample shrinks (below 1) or grows."""
    scales: Extent
    """By how much each axis of every sample does so, as `shape` says it."""
    windows: list[int]
    """With --crop: the fewest and the most windows of that size that cover a sample; else empty."""
    memory: int
    """Bytes of all prepared samples; with --crop they lie on disk."""
    notes: list[str]

    def lines(self) -> Iterator[tuple[str, str]]:
        """The summary as pairs of a word and a text."""
        kind, dimensions = {0: ("point", ""), 2: ("image", " (2D)"), 3: ("volume", " (3D)")}[self.dimensions]
        yield "samples", f"{counted(self.samples, kind)}{dimensions}"
        if self.dimensions:
            yield "shape", _extent_text(self.shape)
            yield "spacing", "not said" if self.spacing is None else _spacing_text(self.spacing)
        ranges = [f"{c['name']} ({c['low']:g} to {c['high']:g})" for c in self.channels]
        is_plain = [c["name"] for c in self.channels] == ["1"]  # one channel without a name of its own
        yield "channels", ranges[0] if is_plain else f"{len(ranges)}: {_few(ranges)}"
        counts = [f"{name} ({count:,})" for name, count in self.classes.items()]
        without = "the labels are numbers" if self.task == "regression" else "no labels"
        yield "classes", f"{len(counts)}: {_few(counts)}" if counts else without
        if self.groups is not None:
            yield "groups", f"{self.groups:,}"
        yield "split", ", ".join(f"{count:,} {name}" for name, count in self.splits.items() if count)
        if self.skipped:
            reasons = Counter(without_numbers(problem["reason"]) for problem in self.skipped)
            yield (
                "skipped",
                f"{len(self.skipped)}: {_few([p['reason'] for p in self.skipped], 3)}"
                + (f" ({len(reasons)} kinds of reasons)" if len(reasons) > 3 else ""),
            )
        if self.dimensions:
            yield "size", f"{' × '.join(map(str, self.size))} ({_scales_text(self.scales)})"
        if self.windows:
            yield "windows", f"{'–'.join(f'{n:,}' for n in sorted(set(self.windows)))} cover a sample"
        yield "memory", f"{_bytes_text(self.memory)} of prepared samples{', on disk' if self.windows else ''}"


def summarise(
    source: Source,
    facts: Sequence[Facts],
    skipped: Sequence[Problem],
    preparation: Preparation,
    splits: dict[str, int],
    notes: Sequence[str],
) -> Summary:
    """What is known about the samples of a source: `facts` are those that take part."""
    lost = {problem.id for problem in skipped}
    kept = [position for position, name in enumerate(source.ids) if name not in lost] if lost else range(len(source))
    labels = [source.labels[position] for position in kept] if source.labels is not None else []
    known = [label for label in labels if label is not None]
    counts = Counter[str]() if source.task == "regression" else Counter(known)
    if source.task == "multilabel":
        counts = Counter(name for label in known for name in label_set(label))
    groups = None if source.groups is None else len({source.groups[p] for p in kept} - {None})
    problems = [*source.left_out, *((problem.id, problem.reason) for problem in skipped)]
    shapes = [preparation.resized(fact.shape[1:], fact.spacing) for fact in facts] if preparation.crops else []
    windows = [len(window_starts(shape, preparation.size)) for shape in shapes]
    scales = scales_of(facts, preparation) if preparation.spatial_dims else None
    return Summary(
        samples=len(kept),
        dimensions=preparation.spatial_dims,
        shape=_extent([fact.shape[1:] for fact in facts]),
        spacing=_extent(_spacings(source, facts)),
        channels=_channels(facts, preparation),
        task=source.task if known else None,
        classes={name: counts[name] for name in class_names(counts)},
        groups=groups,
        splits=splits,
        skipped=[{"id": name, "reason": reason} for name, reason in problems],
        size=list(preparation.size),
        scale=[] if scales is None else np.round(np.median(scales, axis=0), 3).tolist(),
        scales=None if scales is None else _extent(np.round(scales, 3)),
        windows=[min(windows), max(windows)] if windows else [],
        memory=sum(chunk_bytes(preparation, shape) for shape in shapes)
        if preparation.crops
        else (splits["train"] + splits["test"]) * preparation.nbytes,
        notes=list(notes),
    )


def _spacings(source: Source, facts: Sequence[Facts]) -> list[tuple[float, ...]]:
    """The spacings that are known: tiles keep that of their image."""
    if isinstance(source, TilesSource):
        return [found for one in source.images if (found := one.image.millimetres) is not None]
    return [fact.spacing for fact in facts if fact.spacing is not None]


def scales_of(facts: Sequence[Facts], preparation: Preparation) -> Any:
    """The factor by which each axis of each sample is resampled, (N, axes)."""
    scale = cache(lambda shape, spacing: np.divide(preparation.resized(shape, spacing), shape).tolist())
    return np.array([scale(fact.shape[1:], fact.spacing) for fact in facts], dtype=float)


def _channels(facts: Sequence[Facts], preparation: Preparation) -> list[dict[str, Any]]:
    names = {fact.names for fact in facts}
    lows, highs = [fact.low for fact in facts], [fact.high for fact in facts]
    if len({len(low) for low in lows}) > 1 or len(lows[0]) != preparation.channels:  # --channels gray or rgb
        lows = [(min(low),) * preparation.channels for low in lows]
        highs = [(max(high),) * preparation.channels for high in highs]
    known = names.pop() if len(names) == 1 else ()
    if len(known) != preparation.channels:
        is_colour = preparation.channels == 3 and preparation.shares_range
        known = COLOURS if is_colour else tuple(str(number) for number in range(1, preparation.channels + 1))
    low, high = np.nanmin(lows, axis=0), np.nanmax(highs, axis=0)
    return [
        {"name": name, "low": float(one), "high": float(other)}
        for name, one, other in zip(known, low, high, strict=True)
    ]


def _extent(rows: Any) -> Extent:
    """The smallest and the largest of each column of a table (N, axes)."""
    if not len(rows):
        return None
    table = np.array(rows)
    low, high = table.min(axis=0).tolist(), table.max(axis=0).tolist()
    return low if low == high else {"min": low, "max": high}


def _extent_text(extent: Extent) -> str:
    if not isinstance(extent, dict):
        return " × ".join(f"{value:.4g}" for value in extent or ())
    pairs = zip(extent["min"], extent["max"], strict=True)
    return " × ".join(f"{low:.4g}" if low == high else f"{low:.4g}–{high:.4g}" for low, high in pairs)


def _spacing_text(extent: Extent) -> str:
    """In millimetres, or in micrometres as microscopes say it.

    >>> _spacing_text([0.0005, 0.0005]), _spacing_text({"min": [0.7, 1.0], "max": [0.9, 1.0]})
    ('0.5 × 0.5 µm', '0.7–0.9 × 1 mm')
    """
    ends = list(extent.values()) if isinstance(extent, dict) else [extent or []]
    if max((value for end in ends for value in end), default=1.0) >= MICROSCOPIC:
        return f"{_extent_text(extent)} mm"
    fine = [[1000 * value for value in end] for end in ends]
    return f"{_extent_text(dict(zip(('min', 'max'), fine, strict=True)) if len(fine) == 2 else fine[0])} µm"


def _scales_text(scales: Extent) -> str:
    """
    >>> _scales_text([0.5, 1.0]), _scales_text({"min": [0.5, 1.2], "max": [2.0, 1.6]}), _scales_text([0.5, 0.5])
    ('shrinks by 2, as it is', 'shrinks by 2 to grows by 2, grows by 1.2 to 1.6', 'shrinks by 2')
    >>> _scales_text({"min": [0.56, 0.58, 0.58], "max": [0.8, 0.8, 0.8]}), _scales_text([2.0, 3.0])
    ('shrinks by 1.8 to 1.2, 1.7 to 1.2 and 1.7 to 1.2', 'grows by 2 and 3')
    """
    ends = (scales["min"], scales["max"]) if isinstance(scales, dict) else (scales or [], scales or [])
    texts = []
    for low, high in zip(*ends, strict=True):
        one, other = _scale_text(low), _scale_text(high)
        verb = one.rpartition(" ")[0]
        texts.append(one if one == other else f"{one} to {other.removeprefix(verb).strip() if 'by' in verb else other}")
    if len(set(texts)) <= 1:
        return texts[0] if texts else ""
    for verb in ("shrinks by ", "grows by "):
        if all(text.rpartition(" by ")[0] == verb.removesuffix(" by ") for text in texts):  # once for all axes
            *others, last = (text.removeprefix(verb) for text in texts)
            return f"{verb}{', '.join(others)} and {last}"
    return ", ".join(texts)


def _scale_text(scale: float) -> str:
    if round(scale, 2) == 1:
        return "as it is"
    return f"shrinks by {1 / scale:.2g}" if scale < 1 else f"grows by {scale:.2g}"


def _bytes_text(count: int) -> str:
    """
    >>> _bytes_text(2_500_000_000), _bytes_text(63_000_000), _bytes_text(40)
    ('2.5 GB', '63 MB', '1 kB')
    """
    unit, size = next((pair for pair in (("GB", GB), ("MB", 1e6)) if count >= pair[1]), ("kB", 1e3))
    return f"{max(1.0, count / size):.3g} {unit}"


def _few(texts: Sequence[str], most: int = SHOWN) -> str:
    return "; ".join(texts[:most]) + (f"; … ({len(texts)} in all)" if len(texts) > most else "")


def without_numbers(text: str) -> str:
    """A sentence whose numbers do not count when it is compared with others."""
    return re.sub(r"\d+", "#", text)
