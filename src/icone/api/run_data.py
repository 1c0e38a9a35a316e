"""The own data of a run: where it was when the run was trained, or where it lies now."""

from __future__ import annotations

import dataclasses
import os
import shlex
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from icone.config import PretrainConfig, is_object
from icone.data import DIGEST_VERSION, DigestMemory, Source, cache_folder, open_source
from icone.errors import InputError
from icone.run import Run, remembered_objects
from icone.terminal import counted, either, say
from icone.training.progress import ProgressBar
from icone.validation import user_path

NAMED = ("medmnist:", "synthetic:")
"""Sources that are no paths."""


def open_run_data(
    folder: Path,
    config: PretrainConfig,
    data: Any = None,
    labels: Any = None,
    groups: Any = None,
    *,
    way_out: str = "say where it lies now with --data=NEWPATH",
) -> Source:
    """The source of a run in `folder`, or the same data at another place (`data`); `labels` and `groups` as objects.

    Data that was a Python object is found where a `Run` remembers it. Where the data is gone, an `InputError` names the
    old path and the `way_out`.
    """
    data = remembered_objects(folder).get("data") if data is None else data
    if data is None and (path := missing_path(config.source)) is not None:
        where = "" if path.is_absolute() else f" (a relative path, looked for in {Path.cwd()})"
        raise InputError(f"the data of {folder} is no longer at {path}{where}: {way_out}")
    try:
        return open_source(config.source if data is None else data, config, labels, groups)
    except InputError:
        if config.labels is not None and labels is None:
            _explain_labels(Run(folder), config, data)
        raise


def _explain_labels(run: Run, config: PretrainConfig, data: Any) -> None:
    """Raise what says why data cannot be opened with a table of labels: it is other data, or the table has moved."""
    own = run.config
    if data is not None and (config.tiles, config.stride) == (own.tiles, own.stride):
        _known_rows(run, open_source(data, dataclasses.replace(without_labels(config), split=own.split)))
    if config.labels == with_moved_labels(own, data).labels and config.labels and not config.labels.exists():
        columns = f" --label-column={shlex.join(own.label_column)}" if own.label_column else ""
        raise InputError(
            f"the table of labels of {run.folder} is no longer at {config.labels}: say where it lies now with "
            f"--labels=NEWTABLE.csv{columns}, which evaluate and finetune take"
        )


def for_other_data(config: PretrainConfig) -> PretrainConfig:
    """The configuration of a run without what is about its own data alone: labels, groups, patterns of file names."""
    return dataclasses.replace(without_labels(config), include=(), exclude=())


def without_labels(config: PretrainConfig) -> PretrainConfig:
    """The configuration of a run without labels and groups."""
    return dataclasses.replace(config, labels=None, label_column=(), group_column=None, task="auto")


def has_lost_labels(config: PretrainConfig, data: Any = None) -> bool:
    """Whether the columns of a run are those of labels that were a Python object, which the configuration cannot hold.

    Then neither a table of labels nor the source, or the `data` in its place, can have these columns.
    """
    source = config.source if data is None else data
    is_table = hasattr(source, "columns") or (
        isinstance(source, (str, os.PathLike)) and os.fspath(source).lower().endswith((".csv", ".tsv"))
    )
    has_columns = bool(config.label_column) or config.group_column is not None
    return has_columns and config.labels is None and not is_table


def note_splits(source: Source, config: PretrainConfig, console: Console) -> None:
    """Say which part of a source with official splits is read: that of the run's setting."""
    others = [name for name in source.splits if name != config.split]
    if others:
        say(console, f"note: {source.name} has official splits: {config.split} is read, {' and '.join(others)} not")


def missing_path(source: str) -> Path | None:
    """The path of a source that is one and is not there."""
    if is_object(source) or source.startswith(NAMED):
        return None
    paths = [user_path(source), user_path(source.partition(":/")[0])]  # `file.h5:/path` is an array in a file
    return None if any(path.exists() for path in paths) else paths[0]


def with_moved_labels(config: PretrainConfig, data: Any) -> PretrainConfig:
    """A configuration whose table of labels has moved with the data, if it lay below it."""
    if config.labels is None or config.labels.is_file() or not isinstance(data, (str, os.PathLike)):
        return config
    old, labels = (Path(os.path.abspath(path)) for path in (user_path(config.source), config.labels))
    if old not in labels.parents:
        return config
    moved = user_path(Path(data)) / labels.relative_to(old)
    return dataclasses.replace(config, labels=moved) if moved.is_file() else config


def check_moved(run: Run, source: Source, config: PretrainConfig, console: Console) -> None:
    """Compare data that was given as that of a run with what the run knows, by the ids and digests of the samples.

    An `InputError` where it holds none of them; a note where some are missing or have another content.
    """
    instances, rows = run.instances, _known_rows(run, source)
    names = _sample_names(run)
    found = [name for name in names if name in rows]
    if lost := [name for name in names if name not in rows]:
        are = either(len(lost), "is", "are")
        say(console, f"note: {counted(len(lost), 'sample')} of the run {are} not in {source.name}, such as {lost[0]}")
    known = instances.get("digests", {}) if instances.get("digest_version") == DIGEST_VERSION else {}
    compared = [name for name in found if name in known]
    memory = DigestMemory(cache_folder(config.cache) if source.is_cacheable else None, source.name)
    with ProgressBar(console) as bar:
        progress = partial(bar, "comparing with the run's data")
        digests = source.digests([rows[name] for name in compared], memory, config.workers, progress)
    memory.save()
    changed = [name for name, digest in zip(compared, digests, strict=True) if digest != known[name]]
    if changed:
        have = either(len(changed), "has", "have")
        say(
            console,
            f"note: {counted(len(changed), 'sample')} {have} another content than when the run was trained, such as "
            f"{changed[0]}: what follows is not about the run's own data",
        )


def _sample_names(run: Run) -> list[str]:
    """The ids of all samples of a run."""
    instances = run.instances
    return [*instances["ids"], *instances["test_ids"]]


def _known_rows(run: Run, source: Source) -> dict[str, int]:
    """The row of every sample of a source by its id; an `InputError` where none of them is a sample of the run."""
    names = _sample_names(run)
    rows = {name: row for row, name in enumerate(source.ids)}
    if rows.keys().isdisjoint(names):
        raise InputError(
            f"{source.name} holds none of the {counted(len(names), 'sample')} of {run.folder}: it has {source.ids[0]}, "
            f"and the run knows {names[0]}. --data is for the same samples at another place, with the same names below "
            "it; in a CSV a column id can hold these names"
        )
    return rows
