"""Which of the labelled training samples decide when fine-tuning stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from icone.data import grouped_split, stratified_split
from icone.evaluation.assessment import Partition
from icone.terminal import counted, either

Rows = npt.NDArray[np.int64]
FEWEST = 50
"""Samples that decide when to stop, at least: the accuracy of fewer has a standard error of 7 points or more."""


def hold_out(
    partition: Partition, fraction: float, seed: int, assigned: Sequence[str] | None = None
) -> tuple[Rows, Rows, str]:
    """Rows that train and rows that validate, and a sentence on how they were chosen.

    Of a source that assigns samples to parts (`assigned`, one per row: a column `split`, folders), the labelled samples
    of val validate, if there are any. Else a share of the training rows does: classes in proportion, no group on both
    sides. A class with one sample stays in training. The second part is empty where nothing can be held out.
    """
    rest, own = _assigned_val(partition, assigned)
    if len(own):
        return rest, own, f"the data says when to stop: {counted(len(own), 'sample')} of its part val"
    rows, labels = partition.train, partition.labels[partition.train]
    if not fraction:
        return rows, rows[:0], f"{counted(len(rows), 'label')} {either(len(rows), 'trains', 'train')}, for all epochs"
    nothing = rows, rows[:0], "no part can be held out to decide when to stop: all labels train, for all epochs"
    codes, groups = partition.codes(rows), partition.groups_of(rows)
    if groups is not None:
        if len(set(groups)) < 2:
            return nothing
        train, val = (rows[part] for part in grouped_split(codes, groups, fraction, seed))
        how = "groups kept together"
    else:
        several = np.flatnonzero(np.bincount(codes)[codes] > 1)
        if len(several) < 2:
            return nothing
        val = rows[several[stratified_split(codes[several], fraction, seed)[1]]]
        train = np.setdiff1d(rows, val)
        how = "stratified" if partition.task == "classification" else "drawn at random"
    if partition.task == "classification" and len(set(partition.labels[train])) < len(set(labels)):
        return nothing  # whole groups would take a class out of training
    return (
        train,
        val,
        f"{len(val)} of {len(rows)} training samples {either(len(val), 'decides', 'decide')} when to stop ({how})",
    )


def _assigned_val(partition: Partition, assigned: Sequence[str] | None) -> tuple[Rows, Rows]:
    """Rows that train, and labelled rows that a source assigns to val; none of a group that trains or tests.

    They are rows that neither train nor test. Where there are none such, they are those of the training rows.
    """
    nothing = partition.train, partition.train[:0]
    if assigned is None:
        return nothing
    rows = np.array([row for row, part in enumerate(assigned) if part == "val" and partition.labels[row]], np.int64)
    outside = np.setdiff1d(rows, [*partition.train, *partition.test])
    train = np.setdiff1d(partition.train, rows) if not len(outside) else partition.train
    val = outside if len(outside) else np.intersect1d(rows, partition.train)
    known = set(partition.labels[train])
    fits = np.array([partition.task != "classification" or partition.labels[row] in known for row in val], bool)
    if partition.groups is not None:
        taken = {partition.groups[row] for row in (*train, *partition.test)}
        fits &= np.array([partition.groups[row] not in taken for row in val], bool)
    val = val[fits]
    return nothing if not len(train) or not len(val) else (np.setdiff1d(partition.train, val), val)


def compact(partition: Partition, train: Rows) -> Partition:
    """The partition of the samples in `train` followed by the test part, and nothing else."""
    rows = np.concatenate([train, partition.test])
    return dataclasses.replace(
        partition,
        train=np.arange(len(train)),
        test=np.arange(len(train), len(rows)),
        labels=partition.labels[rows],
        groups=partition.groups_of(rows),
    )
