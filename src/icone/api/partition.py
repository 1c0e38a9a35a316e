"""Which samples train the probes of `icone.evaluate` and which test them, and the sentences that say so."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icone.data import Dataset, grouped_split, stratified_split
from icone.data.splits import Integers
from icone.data.targets import Task, as_number, label_set, suggested_groups
from icone.errors import InputError
from icone.evaluation.assessment import Partition
from icone.evaluation.multilabel import usable_labels
from icone.methods import method_class
from icone.run import Run
from icone.terminal import counted, either

FEWEST_NUMBERS = 10
"""Labelled samples below which a regression says nothing."""
GEOMETRY_ONLY = ", so geometry only"
"""What an evaluation does where its labels do not do for probes."""


@dataclass(frozen=True, kw_only=True)
class EvaluationData:
    """What is evaluated: prepared samples of the run, then those of an official or external test set.

    Labels, groups and splits are texts, "" where they are unknown. How the samples are parted is found last.
    """

    datasets: list[Dataset]
    ids: list[str]
    labels: np.ndarray
    groups: np.ndarray
    splits: np.ndarray
    task: Task
    described: str | Path | None
    """Where the labels are from, for messages; None where none were given."""
    external: str | None
    """The external test set, as the user gave it."""
    partition: Partition | None = None
    note: str = ""
    notes: list[str]
    validation: Dataset | None = None
    """Samples that the data assigns to val and that the run left alone, for fine-tuning: no row above is theirs."""

    def group_names(self) -> list[str] | None:
        """The group of every row, its own where there is none; None where no sample has a group."""
        if not (self.groups != "").any():
            return None
        return [f"group {group}" if group else f"row {row}" for row, group in enumerate(self.groups)]

    def describe(self) -> dict[str, Any]:
        sizes = {"train": len(self.partition.train), "test": len(self.partition.test)} if self.partition else {}
        about = {"task": self.task, "labelled": int((self.labels != "").sum()), "external_test": self.external}
        groups = {"groups": len(set(self.groups) - {""})}
        return {"samples": len(self.ids), **sizes, **about, **groups, "note": self.note, "notes": self.notes}


def with_partition(run: Run, samples: EvaluationData, *, official_test: bool, test_fraction: float) -> EvaluationData:
    """The samples with the rows that train and test the probes, and the sentences that say how these were chosen."""
    partition, note, notes = _choose(run, samples, official_test, test_fraction)
    return dataclasses.replace(samples, partition=partition, note=note, notes=[*samples.notes, *notes])


def _choose(
    run: Run, samples: EvaluationData, official_test: bool, test_fraction: float
) -> tuple[Partition | None, str, list[str]]:
    names, labelled = samples.labels, np.flatnonzero(samples.labels != "")
    if why := _too_little(names[labelled], samples):
        return None, why, []
    parts, note, notes = _parts(run, samples, labelled, official_test, test_fraction)
    if parts is None:
        return None, note, notes
    if samples.external is not None:
        _check_common_class(samples, *parts)
    groups = samples.group_names()
    if groups is not None:
        train_groups = {groups[row] for row in parts[0]}
        kept = np.array([row for row in parts[1] if groups[row] not in train_groups], dtype=np.int64)
        if shared := len(parts[1]) - len(kept):
            are, their = either(shared, "is", "are"), either(shared, "its", "their")
            left_out = f"{counted(shared, 'test sample')} {are} left out"
            notes.append(f"{left_out}, because samples of {their} group train the probes")
        if shared and not len(kept):
            why = (
                f"no test sample is left: all {shared} are of groups whose samples train the probes, such as "
                f"{groups[parts[1][0]].removeprefix('group ')}"
            )
            if samples.external is not None:
                way = "Give a test set of other groups, or, where the same names mean others there, rename them"
                raise InputError(f"{why}. {way}")
            way = "Give --group-column at pretraining too, which holds out whole groups, or another test set (--test)"
            return None, f"{why}{GEOMETRY_ONLY}. {way}", notes
        parts = parts[0], kept
    partition = Partition(*parts, names, _minority(run, names, parts[1]), samples.task, groups)
    if why := cannot_probe(partition):
        return None, f"{why}{GEOMETRY_ONLY}", notes
    return partition, note, notes


def _minority(run: Run, names: np.ndarray, test: Integers) -> list[str] | None:
    """The classes that `--imbalance` thinned out, of which the test part has samples; None where labels have no such.

    A run may be measured with other labels than those it was thinned out by.
    """
    known = [name for name in run.instances["minority"] if name in set(names.tolist())]
    return [name for name in known if name in set(names[test].tolist())] if known else None


def _check_common_class(samples: EvaluationData, train: Integers, test: Integers) -> None:
    """Refuse an external test set that has none of the classes of the run: no probe could be right."""
    known, found = set(samples.labels[train]), set(samples.labels[test])
    if samples.task == "classification" and known and found and not known & found:
        raise InputError(
            f"the test set {samples.datasets[1].source.name} has the classes {', '.join(sorted(found)[:5])}, and the "
            f"run {', '.join(sorted(known)[:5])}: none is in both. Give labels of the same classes with --test-labels "
            "and --labels"
        )


def _too_little(labels: np.ndarray, samples: EvaluationData) -> str:
    """Why labels are too few or too much alike for a probe, or nothing."""
    if samples.task == "classification" and len(set(labels)) >= 2:
        return ""
    if samples.task != "classification" and len(labels) >= FEWEST_NUMBERS and len(set(labels)) >= 2:
        return ""
    if samples.described is None and len(labels) == 0:
        return f"there are no labels{GEOMETRY_ONLY}; give --labels for probes"
    where = "the data" if samples.described is None else samples.described
    if samples.task == "classification":
        return f"there are fewer than two classes in {where}{GEOMETRY_ONLY}"
    found = counted(len(labels), "label")
    return f"a probe needs {FEWEST_NUMBERS} labels that differ, and there are {found} in {where}{GEOMETRY_ONLY}"


def _parts(
    run: Run, samples: EvaluationData, labelled: Integers, official_test: bool, test_fraction: float
) -> tuple[tuple[Integers, Integers] | None, str, list[str]]:
    own, instances = samples.datasets[0], run.instances
    ids = np.array(own.ids)
    if samples.external is not None or official_test:
        of_run = labelled < len(own)
        note = "probes train on the official training split and are tested on the official test split"
        if samples.external is not None:
            note = f"probes train on the data of the run and are tested on {samples.datasets[1].source.name}"
        return (labelled[of_run], labelled[~of_run]), note, []
    if instances["test_ids"]:
        held_out, seen = np.isin(ids, instances["test_ids"]), np.isin(ids, instances["ids"])
        parts = labelled[seen[labelled]], labelled[held_out[labelled]]
        note = "probes are tested on the part that pretraining never saw"
        known = int(np.isin(ids[parts[1]], instances.get("seen_by_weights", [])).sum())
        if known:
            note += f"; but the run of --weights was trained on {known} of these {len(parts[1])} samples"
        return parts, note, _suggestion(samples)
    if method_class(run.config.method).needs_labels:
        note = (
            f"{run.config.method} was taught the labels of all samples{GEOMETRY_ONLY}: probes would be tested on "
            "what it was taught. --test-fraction=0.2 at pretraining holds samples out"
        )
        return None, note, []
    if own.source.assigned is not None:
        assigned = np.array([own.source.assigned[position] for position in own.positions])
        parts = labelled[assigned[labelled] == "train"], labelled[assigned[labelled] == "test"]
        if len(parts[1]):
            which = _seen(ids[parts[1]], instances)
            note = f"probes are tested on the samples that the column split assigns to test; pretraining saw {which}"
            return parts, f"{note}, without labels", []
    labels, notes = samples.labels[labelled], []
    if samples.task == "classification":
        found, counts = np.unique(labels, return_counts=True)
        if alone := sorted(found[counts == 1]):
            labelled = labelled[~np.isin(labels, alone)]
            notes.append(f"left out of the probes, because only one sample is labelled so: {', '.join(alone)}")
            if len(found) - len(alone) < 2:
                return None, f"fewer than two classes have two labelled samples{GEOMETRY_ONLY}", notes
    codes = np.zeros(len(labelled), np.int64)
    classes: np.ndarray = np.array([], dtype=str)
    if samples.task == "classification":
        classes, codes = np.unique(samples.labels[labelled], return_inverse=True)
    groups = samples.group_names()
    if groups is None:
        notes += _suggestion(samples)
        train, test = stratified_split(codes, test_fraction, run.config.split_seed, tuple(classes))
        how = f"{'stratified' if len(classes) else 'random'} {test_fraction:.0%}"
    else:
        chosen = [groups[row] for row in labelled]
        train, test = grouped_split(codes, chosen, test_fraction, run.config.split_seed)
        how = f"{len(test) / len(codes):.0%}, groups kept together"
    which = _seen(ids[labelled[test]], instances)
    note = f"probes are tested on a {how}; pretraining saw {which}, without labels"
    return (labelled[train], labelled[test]), note, notes


def _seen(ids: np.ndarray, instances: dict[str, Any]) -> str:
    seen = np.isin(ids, [*instances["ids"], *instances.get("trained_before", ())])
    return "those samples too" if seen.all() else f"{seen.sum()} of those {len(seen)} samples too"


def _suggestion(samples: EvaluationData) -> list[str]:
    return [] if samples.group_names() else list(filter(None, [suggested_groups(samples.datasets[0].ids)]))


def cannot_probe(partition: Partition) -> str:
    """Why the two parts do not make a probe, or nothing."""
    train, test = (partition.labels[part] for part in (partition.train, partition.test))
    if not len(train) or not len(test):
        return f"no labelled samples are left in the {'test' if len(train) else 'training'} part"
    if partition.task == "classification":
        return "" if len(set(train)) > 1 else f"all labelled samples of the training part are {train[0]}"
    if partition.task == "regression":
        same = any(len({as_number(text) for text in part}) < 2 for part in (train, test))
        return "all labels of the training or of the test part are the same number" if same else ""
    sets = [[label_set(text) for text in part] for part in (train, test)]
    return "" if usable_labels(*sets) else "no label is there and absent in both the training and the test part"
