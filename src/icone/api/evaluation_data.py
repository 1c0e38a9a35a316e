"""What `icone.evaluate` measures: the data of a run, perhaps a test set, their labels and groups, and the partition."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console

from icone.api.build import describe_source
from icone.api.embed import load_with_notes
from icone.api.partition import EvaluationData, with_partition
from icone.api.run_data import check_moved, has_lost_labels, open_run_data, with_moved_labels
from icone.config import PretrainConfig
from icone.data import DIGEST_VERSION, Dataset, DigestMemory, Preparation, Source, cache_folder, open_source
from icone.data.labels import has_column
from icone.data.sources.registry import check_splits
from icone.data.targets import TaskSetting
from icone.errors import InputError
from icone.run import Run
from icone.terminal import counted, either, say

EXTERNAL = "external"
"""The split of the samples of an external test set."""


@dataclass(frozen=True)
class GivenData:
    """What a caller gives in the place of the run's settings."""

    data: Any
    labels: Any
    groups: Any
    test: Any
    test_labels: Any

    @classmethod
    def of(cls, run: Run, data: Any, labels: Any, groups: Any, test: Any, test_labels: Any) -> GivenData:
        """What was given; of the run's own data otherwise what `icone.pretrain` was given in this process."""
        own = run.objects if data is None else {}
        labels = own.get("labels") if labels is None else not_a_path(labels)
        groups = own.get("groups") if groups is None else groups
        return cls(own.get("data", data), labels, groups, test, test_labels)


def not_a_path(given: Any) -> Any:
    """What is given as an object, not as a path."""
    return None if isinstance(given, (str, os.PathLike)) else given


def changed_settings(
    config: PretrainConfig,
    labels: Any,
    columns: tuple[tuple[str, ...], str | None, TaskSetting],
    data_root: Path | None,
    cache: str | None,
) -> PretrainConfig:
    """The run's configuration with what was given; other labels bring columns and a task of their own.

    Where they say nothing about groups, `read_evaluation_data` takes the groups of the run.
    """
    label_column, group_column, task = columns
    if group_column is None and config.group_column is not None and labels is not None:
        group_column = config.group_column if has_column(labels, config.group_column) else None
    elif group_column is None:
        group_column = config.group_column
    is_path = isinstance(labels, (str, os.PathLike))
    changes: dict[str, Any] = {
        "label_column": label_column or (config.label_column if labels is None else ()),
        "group_column": group_column,
        "task": task if task != "auto" or labels is not None or label_column else config.task,
        "labels": Path(labels) if is_path else config.labels if labels is None else None,
        "data_root": data_root or config.data_root,
        "cache": cache or config.cache,
    }
    return dataclasses.replace(config, **changes)


def read_evaluation_data(
    run: Run,
    config: PretrainConfig,
    given: GivenData,
    official_test: bool,
    test_fraction: float,
    console: Console,
    *,
    finetunes: bool = False,
) -> EvaluationData:
    """What is evaluated; where it `finetunes` too, with the samples of val."""
    config = with_moved_labels(config, given.data)
    keeps_groups, lost_groups = _keeps_groups(run, config, given)

    def opened(split: Literal["train", "val", "test"]) -> Source:
        settings = dataclasses.replace(config, split=split)
        found = open_run_data(run.folder, settings, given.data, given.labels, given.groups)
        if keeps_groups and (found.groups is None or config.group_column != run.config.group_column):
            own = dataclasses.replace(run.config, data_root=config.data_root, cache=config.cache, split=split)
            own = with_moved_labels(own, given.data)
            found.groups = open_run_data(run.folder, own, given.data, run.objects.get("labels")).groups
        return found

    preparation, instances = run.preparation, run.instances
    source = opened(config.split)
    if given.data is not None:
        check_moved(run, source, config, console)
    if official_test:
        _check_official_test(source, config)
    # A run that held samples out is measured on what it drew: a subset of 500 should not embed 90,000 images.
    drawn = {*instances["ids"], *instances["test_ids"]} if instances["test_ids"] and not official_test else None
    datasets = [load_with_notes(source, config, preparation, console, only=drawn)]
    left = _val_ids(source) - drawn if finetunes and drawn is not None else set()
    validation = load_with_notes(source, config, preparation, console, only=left) if left else None
    names: list[str] = [config.split]
    notes = [*source.label_notes, *([lost_groups] if lost_groups and source.groups is None else [])]
    if official_test:
        datasets.append(load_with_notes(opened("test"), config, preparation, console))
        names.append("test")
    if given.test is not None:
        external, without_groups = _external(given, config, source, preparation, console)
        datasets.append(external)
        names.append(EXTERNAL)
        notes += without_groups
        notes += [f"test set: {note}" for note in datasets[1].source.label_notes]
        notes += _note_shared(instances, datasets[1], config)
    ids = [name for dataset in datasets for name in dataset.ids]
    _note_changes(instances, datasets[0], console, moved=given.data is not None)
    if official_test and config.labels is not None and len(set(ids)) < len(ids):
        raise InputError(
            f"{config.labels} names samples by ids that both official splits have, so it cannot label the test split: "
            "leave --official-test out"
        )
    samples = EvaluationData(
        datasets=datasets,
        ids=ids,
        labels=np.concatenate([_texts(dataset, dataset.source.labels) for dataset in datasets]),
        groups=np.concatenate([_texts(dataset, dataset.source.groups) for dataset in datasets]),
        splits=np.repeat(names, [len(dataset) for dataset in datasets]),
        task=source.task,
        described="the labels that were given" if given.labels is not None else config.labels,
        external=None if given.test is None else describe_source(given.test),
        notes=notes,
        validation=validation,
    )
    return with_partition(run, samples, official_test=official_test, test_fraction=test_fraction)


def _keeps_groups(run: Run, config: PretrainConfig, given: GivenData) -> tuple[bool, str]:
    """Whether labels that say nothing about groups have those of the run; or a note where its table of labels is gone.

    A column that the run was told (`--group-column`) must be found; without it, labels of the run may have had groups.
    """
    own = with_moved_labels(run.config, given.data).labels
    if given.groups is not None or config.group_column is not None:
        return False, ""
    labels = run.objects.get("labels")
    if (column := run.config.group_column) is not None:
        if labels is None and has_lost_labels(run.config, given.data):
            raise InputError(
                f"the groups of {run.folder} (--group-column={column}) came with labels that were a Python object, "
                "which no file holds: give them again, groups=…, or a table of labels with that column"
            )
        return True, ""
    if config.labels == own and given.labels is labels:
        return False, ""
    if own is not None and not own.is_file():
        return False, f"the run's table of labels is no longer at {own}: groups that it may hold are not kept together"
    return own is not None or hasattr(labels, "columns"), ""


def _val_ids(source: Source) -> set[str]:
    """The samples that a source assigns to val."""
    return {name for name, part in zip(source.ids, source.assigned or (), strict=False) if part == "val"}


def _external(
    given: GivenData, config: PretrainConfig, source: Source, preparation: Preparation, console: Console
) -> tuple[Dataset, list[str]]:
    """The external test set: the test part of a source that has splits of its own, else all of it; and notes.

    It needs no groups: where its tables lack the run's column of groups, its samples have none.
    """
    labels = given.test_labels
    is_csv = isinstance(given.test, (str, os.PathLike)) and str(given.test).lower().endswith((".csv", ".tsv"))
    is_table = is_csv or hasattr(given.test, "columns")
    has_columns = labels is not None or is_table
    column = config.group_column
    has_groups = column is not None and (has_column(labels, column) or (is_table and has_column(given.test, column)))
    settings = dataclasses.replace(
        config,
        split="test",
        task=source.task,
        labels=Path(labels) if isinstance(labels, (str, os.PathLike)) else None,
        label_column=config.label_column if has_columns else (),
        group_column=column if has_groups else None,
        include=(),  # patterns choose among the files of the run's own folder
        exclude=(),
    )
    opened = open_source(given.test, settings, not_a_path(labels))
    if opened.labels is None:
        raise InputError(f"the test set {opened.name} has no labels: give them with --test-labels")
    notes = []
    if column is not None and not has_groups:
        opened.groups = None  # a column of another name means other groups
        notes = [f"the test set {opened.name} has no column {column}: none of its samples is left out for its group"]
    only = None
    if opened.assigned is not None and "test" in opened.assigned:
        only = {name for name, part in zip(opened.ids, opened.assigned, strict=True) if part == "test"}
    return load_with_notes(opened, settings, preparation, console, only=only), notes


def _note_shared(instances: dict[str, Any], dataset: Dataset, config: PretrainConfig) -> list[str]:
    """Say how many external test samples are samples that the run was trained on."""
    if instances.get("digest_version") != DIGEST_VERSION:
        return []
    trained_on = set(instances.get("digests", {}).values())
    shared = [name for name, digest in _digests(dataset, config).items() if digest in trained_on]
    if not shared:
        return []
    have = either(len(shared), "has the content of a sample", "have the content of samples")
    return [f"{counted(len(shared), 'test sample')} {have} that the run was trained on, such as {shared[0]}"]


def _note_changes(instances: dict[str, Any], dataset: Dataset, console: Console, *, moved: bool) -> None:
    """Say which samples of the run are gone (of moved data that is said already), and how many it did not know."""
    known = {*instances["ids"], *instances["test_ids"]}
    lost, gained = sorted(known.difference(dataset.ids)), set(dataset.ids) - known
    if lost and not moved:
        are = either(len(lost), "is", "are")
        say(console, f"note: {counted(len(lost), 'sample')} of the run {are} no longer there, such as {lost[0]}")
    if gained:
        are = either(len(gained), "is", "are")
        say(console, f"note: {counted(len(gained), 'sample')} here took no part in the run and {are} measured too")


def _digests(dataset: Dataset, config: PretrainConfig) -> dict[str, str]:
    """The digest of the content of every sample by id."""
    memory = DigestMemory(cache_folder(config.cache) if dataset.source.is_cacheable else None, dataset.source.name)
    return dict(zip(dataset.ids, dataset.source.digests(dataset.positions, memory), strict=True))


def _texts(dataset: Dataset, values: Sequence[str | None] | None) -> np.ndarray:
    """The text of every sample of a dataset, "" where there is none."""
    return np.array([(values[p] or "") if values is not None else "" for p in dataset.positions], dtype=str)


def _check_official_test(source: Source, config: PretrainConfig) -> None:
    """Refuse what would test probes on the samples that train them."""
    check_splits(source, source.name, "--official-test")
    if config.split == "test":
        raise InputError(
            "the run was pretrained on the official test split itself (--split=test): leave --official-test out"
        )
