"""Which samples of a source take part: a subset, the part that is held out, classes out of balance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from icone.config import DataConfig
from icone.data.dataset import integer_labels, source_classes
from icone.data.sources.base import Source
from icone.data.sources.folder import FolderFiles
from icone.data.splits import Integers, grouped_split, imbalanced_subset, stratified_split, stratified_subset
from icone.data.targets import suggested_groups
from icone.errors import InputError
from icone.terminal import counted, either


class EarlierSplit(NamedTuple):
    """The ids that a run has trained on and those that it held out, where it goes on: a draw does not change them."""

    train: frozenset[str]
    test: frozenset[str]


class Drawn(NamedTuple):
    """Positions in the source that take part, and how they were chosen."""

    train: Integers
    test: Integers
    minority: tuple[str, ...]
    notes: list[str]
    left_alone: int = 0
    """Samples that the user has assigned to val."""

    @property
    def everything(self) -> Integers:
        return np.union1d(self.train, self.test)


def draw_samples(
    source: Source, candidates: Integers, config: DataConfig, fewest: int = 2, earlier: EarlierSplit | None = None
) -> Drawn:
    """Subset, then partition, then imbalance of the training part, each from the split seed.

    The held-out part keeps all its members, because the accuracy on a minority class is measured there. Where the user
    has assigned the samples to parts, train is trained on, test is held out, and val is left alone.
    """
    labels, names = integer_labels(source), source_classes(source)
    positions, notes = candidates, []
    minority: tuple[int, ...] = ()
    assigned_test, left_alone = positions[:0], 0
    if source.assigned is not None:
        if config.test_fraction > 0:
            raise InputError(f"{source.name} says which samples are held out (split): leave --test-fraction out")
        part = np.array(source.assigned)[positions]
        positions, assigned_test = positions[part == "train"], positions[part == "test"]
        counts = ", ".join(f"{(part == name).sum()} {name}" for name in ("train", "val", "test") if name in part)
        left_alone = int((part == "val").sum())
        by = "the folders assign" if isinstance(source, FolderFiles) else "the column split assigns"
        notes.append(f"{by} {counts}: only train is trained on")
    if config.subset is not None:
        if config.subset > len(positions):
            notes.append(f"asked for {config.subset} samples, {len(positions)} are available and used")
        drawn = positions[stratified_subset(labels[positions], config.subset, config.split_seed)]
        if config.test_fraction > 0 and source.groups is None:
            _check_subset(labels[positions], labels[drawn], names, config)
        positions = drawn
    train, test = positions, assigned_test
    if config.test_fraction > 0 and len(positions) > 1:
        if source.groups is not None:
            groups = [source.groups[position] for position in positions]
            parts = grouped_split(labels[positions], groups, config.test_fraction, config.split_seed)
        else:
            parts = stratified_split(labels[positions], config.test_fraction, config.split_seed, names)
        train, test = (positions[part] for part in parts)
        if earlier is not None:
            train, test, stays = _as_earlier(source, train, test, earlier)
            notes += stays
    notes += _group_notes(source, train, test, config)
    if config.imbalance is not None:
        kept, minority = imbalanced_subset(labels[train], config.imbalance, config.split_seed)
        train = train[kept]
        notes.append(f"classes subsampled by {config.imbalance:g}: {', '.join(names[c] for c in minority)}")
    if len(train) < fewest:
        raise InputError(
            f"{source.name} leaves {len(train)} of {counted(len(source), 'sample')} to train on, but instances are "
            "told apart from one another: give at least 2"
        )
    if len(train) < 2:
        notes.append("there is one sample, and `icone pretrain` needs at least 2; --tiles cuts a huge one into many")
    return Drawn(train, test, tuple(names[c] for c in minority), notes, left_alone)


def _check_subset(labels: Integers, drawn: Integers, names: tuple[str, ...], config: DataConfig) -> None:
    """Refuse a subset that leaves one member of a class of which there are more, for a split into two parts."""
    for label in np.unique(drawn[drawn >= 0]):
        members, kept = int((labels == label).sum()), int((drawn == label).sum())
        if kept == 1 and members > 1:
            raise InputError(
                f"--subset={config.subset} keeps one of the {members} samples of class {names[label]}, which cannot be "
                "in both parts of --test-fraction: give a larger --subset, or leave one of the two out"
            )


def _as_earlier(
    source: Source, train: Integers, test: Integers, earlier: EarlierSplit
) -> tuple[Integers, Integers, list[str]]:
    """The parts of a draw after what a run has seen already; and a note about samples that can no longer be held out.

    Of samples that are new, those of a group that the run knows go where it is.
    """
    sides = dict.fromkeys(earlier.test, "test") | dict.fromkeys(earlier.train, "train")
    everything = np.union1d(train, test)
    drawn = np.where(np.isin(everything, test), "test", "train")
    of_groups: dict[str, str] = {}
    groups = source.groups or (None,) * len(source)
    for position in everything:
        side, group = sides.get(source.ids[position]), groups[position]
        if side is not None and group is not None and of_groups.get(group) != "train":
            of_groups[group] = side
    chosen = [
        sides.get(source.ids[position]) or of_groups.get(groups[position] or "", side)
        for position, side in zip(everything, drawn, strict=True)
    ]
    is_test = np.array(chosen) == "test"
    kept = int(((drawn == "test") & ~is_test).sum())
    note = (
        f"{counted(kept, 'sample')} that --test-fraction would hold out {either(kept, 'stays', 'stay')} in training: "
        f"the run was trained on {either(kept, 'it', 'them')} before{' or on the same group' if source.groups else ''}"
    )
    return everything[~is_test], everything[is_test], [note] if kept else []


def _group_notes(source: Source, train: Integers, test: Integers, config: DataConfig) -> Iterator[str]:
    """Groups that ids suggest and nobody gave, where a split is drawn; groups on both sides of a given split."""
    if source.groups is None:
        if config.test_fraction > 0 or source.labels is not None:
            yield from filter(None, [suggested_groups([source.ids[position] for position in np.union1d(train, test)])])
        return
    trained_on = {source.groups[position] for position in train} - {None}
    shared = [position for position in test if source.groups[position] in trained_on]
    if shared:
        are = either(len(shared), "is of a group that is", "are of groups that are")
        yield (
            f"{len(shared)} of {counted(len(test), 'test sample')} {are} trained on too, such as "
            f"{source.groups[shared[0]]}: probes leave them out"
        )
