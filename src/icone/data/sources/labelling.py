"""Labels and groups from outside for the samples of a source: a CSV, a DataFrame, one per sample, or by id."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from icone.config import DataConfig
from icone.data.labels import ID_COLUMNS, LabelTable, match_table, read_label_table
from icone.data.sources.base import Source
from icone.data.sources.dataframe import TableSource
from icone.data.sources.objects import as_array, label_texts
from icone.data.sources.tiles import TilesSource
from icone.data.targets import find_task, in_one_spelling, join_columns
from icone.errors import InputError
from icone.terminal import counted, either


def attach_labels(source: Source, config: DataConfig, labels: Any = None, groups: Any = None) -> None:
    """Give a source the labels and groups of the configuration or those given as objects, and find the task.

    Labels come from `labels`, from the table of the configuration, or from columns of the source where that is a
    table. The group column is looked for in the table of labels, then in the source. Labels and groups of files that
    are cut into tiles are those of their tiles, unless they name the tiles.
    """
    if isinstance(source, TilesSource) and not (labels is None and groups is None and config.labels is None):
        notes, several = _attach_to_tiles(source, config, labels, groups)
    else:
        notes, several = _attach(source, config, labels, groups)
    if source.labels is None:
        return
    source.task, guess = find_task(source.labels, config.task, several)
    if source.task == "classification":
        source.labels = in_one_spelling(source.labels)
    labelled = sum(label is not None for label in source.labels)
    if labelled == 0:
        notes.append("all labels are empty: there is nothing for probes to learn from")
    elif labelled < len(source):
        notes.append(
            f"{labelled:,} of {len(source):,} samples {either(labelled, 'is', 'are')} labelled: probes use only these"
        )
    source.label_notes = (*notes, *filter(None, [guess]))


def _attach_to_tiles(source: TilesSource, config: DataConfig, labels: Any, groups: Any) -> tuple[list[str], bool]:
    files = source.by_file()
    try:
        found = _attach(files, config, labels, groups)
    except InputError as error:
        try:
            return _attach(source, config, labels, groups)
        except InputError:
            raise error from None
    if files.labels is not None:
        source.labels = tuple(files.labels[number] for number in source.image_of)
    if files.groups is not None:  # the tiles of a file without a group stay together too
        source.groups = tuple(files.groups[number] or files.ids[number] for number in source.image_of)
    return found


def _attach(source: Source, config: DataConfig, labels: Any, groups: Any) -> tuple[list[str], bool]:
    """Set labels and groups; returns what should be known about them, and whether labels are several per sample."""
    notes: list[str] = []
    labels = config.labels if labels is None else labels
    group_is_found = config.group_column is None or groups is not None
    several = len(config.label_column) > 1
    table = None
    if labels is not None and (table := _table(labels, source, config)) is not None:
        source.labels = table.labels if table.labels is not None else source.labels
        source.groups = table.groups if table.groups is not None else source.groups
        group_is_found = group_is_found or table.groups is not None
        notes += table.notes
    elif labels is not None:
        source.labels, several = _given(labels, source, config)
    elif config.label_column:
        found = [_column(source, name, "--label-column") for name in config.label_column]
        source.labels = tuple(found[0] if not several else join_columns(config.label_column, found, source.name))
    if groups is not None:
        source.groups = one_per_sample(groups, source, "groups")
    elif not group_is_found:
        name = str(config.group_column)
        if table is not None and not (isinstance(source, TableSource) and source.column(name)):
            raise _no_column(_table_name(labels), name, "--group-column", table.columns)
        source.groups = tuple(_column(source, name, "--group-column"))
    return notes, several


def _column(source: Source, name: str, flag: str) -> list[str | None]:
    if not isinstance(source, TableSource):
        column = shlex.quote(name)
        raise InputError(f"{flag}={column} is a column of a table, and {source.name} is none: give a CSV with --labels")
    values = source.column(name)
    if values is None:
        raise _no_column(source.name, name, flag, source.columns)
    return values


def _no_column(where: str, name: str, flag: str, columns: tuple[str, ...]) -> InputError:
    return InputError(f"{where} has no column {name} ({flag}); it has: {', '.join(columns)}")


def _table_name(labels: Any) -> str:
    return os.fspath(labels) if isinstance(labels, (str, os.PathLike)) else "the table of labels"


def _table(labels: Any, source: Source, config: DataConfig) -> LabelTable | None:
    """Labels and groups from a CSV or from a DataFrame with a column of ids; None for anything else."""
    if isinstance(labels, (str, os.PathLike)):
        return read_label_table(Path(labels), source.ids, config.label_column, config.group_column)
    names = [str(name) for name in labels.columns] if _is_frame(labels) else []
    if not {name.lower() for name in names} & {*ID_COLUMNS}:
        return None
    columns = [label_texts(labels[name]) for name in labels.columns]
    rows = [[cell or "" for cell in row] for row in zip(*columns, strict=True)]
    return match_table(names, rows, _table_name(labels), source.ids, config.label_column, config.group_column)


def _is_frame(labels: Any) -> bool:
    return hasattr(labels, "columns") and hasattr(labels, "iloc")


def _given(labels: Any, source: Source, config: DataConfig) -> tuple[tuple[str | None, ...], bool]:
    """A label or None for every sample, and whether they are several per sample: columns of 0 and 1."""
    if _is_frame(labels):
        chosen = list(config.label_column or labels.columns)
        if missing := [name for name in chosen if name not in labels.columns]:
            raise InputError(
                f"the labels have no column {missing[0]}; they have: {', '.join(map(str, labels.columns))}"
            )
        columns = [one_per_sample(labels[name], source, "labels") for name in chosen]
    else:
        array = as_array(labels) if isinstance(labels, Tensor) else labels
        if not isinstance(array, np.ndarray) or array.ndim != 2:
            return one_per_sample(labels, source, "labels"), False
        chosen = list(config.label_column or range(array.shape[1]))
        if len(chosen) != array.shape[1]:
            raise InputError(f"the labels have {array.shape[1]} columns, but {len(chosen)} names are given for them")
        columns = [one_per_sample(column, source, "labels") for column in array.T]
    if len(columns) == 1:
        return columns[0], False
    return tuple(join_columns([str(name) for name in chosen], columns, "the labels")), True


def one_per_sample(values: Any, source: Source, what: str) -> tuple[str | None, ...]:
    """A text or None for every sample, from a mapping by id, a pandas Series, or one value per sample in order."""
    if isinstance(values, (str, set, frozenset)) or not hasattr(values, "__len__"):
        kind = type(values).__name__
        raise InputError(f"{what} must be a sequence with one per sample, or a mapping from ids, got the type {kind}")
    by_id = dict(values) if isinstance(values, Mapping) else None
    index = getattr(values, "index", None)
    if by_id is None and index is not None and not callable(index) and index.isin(list(source.ids)).any():
        by_id = dict(values.items())  # a pandas Series whose index has the ids
    if by_id is not None:
        known = set(source.ids)
        unknown = [str(key) for key in by_id if key not in known]
        if unknown:
            raise InputError(
                f"{what} name {counted(len(unknown), 'sample')} not in the data, such as {unknown[0]}; "
                f"the data has ids such as {source.ids[0]}"
            )
        values = [by_id.get(name) for name in source.ids]
    elif index is not None and not callable(index):
        values = _in_order(values, len(source), what)
    try:
        texts = label_texts(values)
    except InputError as error:
        raise InputError(f"cannot use the {what}: {error}") from error
    if len(texts) != len(source):
        raise InputError(
            f"there are {len(texts)} {what} for {counted(len(source), 'sample')}: give one per sample, None if unknown"
        )
    return tuple(texts)


def _in_order(values: Any, count: int, what: str) -> Any:
    """A Series whose index has the numbers of the samples, in their order; another index has no meaning here."""
    if sorted(values.index) != list(range(count)):
        raise InputError(
            f"the index of the {what} holds neither ids of samples nor their numbers 0 to {count - 1}, but for example "
            f"{values.index[0]!r}: give it one of the two, or give {what}.to_numpy(), one per sample in order"
        )
    return values.sort_index()
