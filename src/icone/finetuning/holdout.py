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
USUAL_FRACTION = 0.2
FEWEST = 50
"""Samples that decide when to stop, at least: the accuracy of fewer has a standard error of 7 points or more, and they
are of more use in training. Of classes it is their effective number (`effective_number`)."""


def hold_out(
    partition: Partition, fraction: float | None, seed: int, assigned: Sequence[str] | None = None
) -> tuple[Rows, Rows, str]:
    """Rows that train and rows that validate, and a sentence on how they were chosen.

    Of a source that assigns samples to parts (`assigned`, one per row: a column `split`, folders), the labelled samples
    of val validate, if there are any.
    Else a share of the training rows does: classes in proportion, no group on both sides. A class with one sample
    stays in training. The second part is empty where nothing can be held out, or where that would be too few samples,
    or too few of a rare class, to decide anything (without a `fraction` of the user's).
    """
    rest, own = _assigned_val(partition, assigned)
    if len(own):
        return rest, own, f"the data says when to stop: {counted(len(own), 'sample')} of its part val"
    nothing = partition.train, partition.train[:0], "no part is held out to decide when to stop: all epochs are trained"
    if fraction is None and USUAL_FRACTION * len(partition.train) < FEWEST:
        few = f"{counted(len(partition.train), 'label')} {either(len(partition.train), 'is', 'are')} few"
        return *nothing[:2], f"{few}, so that all of them train, for all epochs (--val-fraction)"
    share = USUAL_FRACTION if fraction is None else fraction
    if not share:
        return nothing
    rows, labels = partition.train, partition.labels[partition.train]
    codes, groups = partition.codes(rows), partition.groups_of(rows)
    if groups is not None:
        if len(set(groups)) < 2:
            return nothing
        train, val = (rows[part] for part in grouped_split(codes, groups, share, seed))
        how = "groups kept together"
    else:
        several = np.flatnonzero(np.bincount(codes)[codes] > 1)
        if len(several) < 2:
            return nothing
        val = rows[several[stratified_split(codes[several], share, seed)[1]]]
        train = np.setdiff1d(rows, val)
        how = "stratified" if partition.task == "classification" else "drawn at random"
    if partition.task == "classification" and len(set(partition.labels[train])) < len(set(labels)):
        return nothing  # whole groups would take a class out of training
    if fraction is None and partition.task == "classification" and (rare := _too_rare(partition.labels[val])):
        return *nothing[:2], f"{rare}, so that all labels train, for all epochs (--val-fraction)"
    return (
        train,
        val,
        f"{len(val)} of {len(rows)} training samples {either(len(val), 'decides', 'decide')} when to stop ({how})",
    )


def effective_number(labels: Sequence[str]) -> float:
    """Samples of equal classes whose balanced accuracy would be as certain: K² / Σ_c 1/n_c for K classes of n_c.

    The variance of the balanced accuracy is Σ_c p_c (1 − p_c) / n_c / K². Of n samples of equal classes, all of them
    right with chance p, that is p (1 − p) / n.

    >>> effective_number(["a"] * 25 + ["b"] * 25), round(effective_number(["a"] * 48 + ["b"] * 2), 1)
    (50.0, 7.7)
    """
    _, counts = np.unique(np.asarray(labels, dtype=str), return_counts=True)
    return float(len(counts) ** 2 / (1 / counts).sum())


def _too_rare(labels: npt.NDArray[np.str_]) -> str:
    """Why the balanced accuracy of samples with these labels decides nothing, or nothing."""
    if effective_number(labels.tolist()) >= FEWEST:
        return ""
    names, counts = np.unique(labels, return_counts=True)
    rarest = int(counts.argmin())
    which = f"{counts[rarest]} of class {names[rarest]}"
    return f"{len(labels)} validation samples would have {which}, which is too few to tell epochs apart"


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
