"""A table as a data set: a pandas DataFrame or a CSV with a column of paths, perhaps labels, groups and splits."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icone.data.labels import GROUP_COLUMNS, LABEL_COLUMNS, SPLITS, read_table
from icone.data.sources.folder import FilesSource
from icone.data.sources.found_files import MissingFile, find_sample
from icone.data.sources.objects import PATH, is_missing, label_texts
from icone.errors import InputError, printable
from icone.terminal import counted

PATH_COLUMNS = ("path", "file", "filename", "image")
SPLIT_COLUMN = "split"


class TableSource(FilesSource):
    """The files that a table names, one sample a row, in the order of the table; ids are the paths as written.

    Columns: `path` (or `file`, `filename`, `image`); perhaps `label`, `group` (samples of one group stay on one side of
    every split), `split` (train, val or test; only train is trained on) and `id`.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], name: str, folder: Path, axes: str | None) -> None:
        found = {key.strip().lower(): values for key, values in columns.items()}
        path_column = next((column for column in PATH_COLUMNS if column in found), None)
        if path_column is None:
            raise InputError(f"{name} needs a column named path; it has: {', '.join(map(str, columns))}")
        written = [_path_text(value, row, path_column, name) for row, value in enumerate(found[path_column], 1)]
        if not written:
            raise InputError(f"{name} has no rows: there is nothing to learn from")
        ids = label_texts(found["id"]) if "id" in found else [printable(path) for path in written]
        paths = {str(key): folder / path for key, path in zip(ids, written, strict=True)}
        if len(paths) < len(ids):
            twice = next(key for i, key in enumerate(ids) if key in ids[:i])
            raise InputError(f"{name} names {twice} twice: keep one row, or give the rows ids in a column id")
        samples = {key: find_sample(path) for key, path in paths.items()}
        super().__init__(name, samples, _texts(found, LABEL_COLUMNS), axes)
        self._columns = found
        self.groups = _texts(found, GROUP_COLUMNS)
        if SPLIT_COLUMN in found:
            self.assigned = tuple(_split_of(cell, name) for cell in label_texts(found[SPLIT_COLUMN]))

    def column(self, name: str) -> list[str | None] | None:
        """The texts of a column, whatever its case; None where there is no such column."""
        values = self._columns.get(name.strip().lower())
        return None if values is None else label_texts(values)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)


def open_frame(frame: Any, axes: str | None = None) -> TableSource:
    """A DataFrame as a data set; relative paths begin at the current folder."""
    columns = {str(column): list(frame[column]) for column in frame.columns}
    try:
        return TableSource(columns, f"the table of {counted(len(frame), 'row')}", Path(), axes)
    except MissingFile as error:
        raise InputError(f"{error} (relative paths begin at the current folder, {Path.cwd()})") from error


def open_csv(path: Path, axes: str | None = None) -> TableSource:
    """A CSV as a data set; relative paths begin at the folder of the CSV."""
    columns, rows = read_table(path)
    by_name = {column: [row[at].strip() for row in rows] for at, column in enumerate(columns)}
    try:
        return TableSource(by_name, str(path), path.parent, axes)
    except MissingFile as error:
        raise InputError(
            f"{error}: paths of {path.name} begin at its folder. A table of labels for the files of a folder is given "
            f"beside that folder, FOLDER --labels={shlex.quote(str(path))}"
        ) from error


def _path_text(value: Any, row: int, column: str, name: str) -> str:
    if is_missing(value) or (isinstance(value, str) and not value):
        raise InputError(f"row {row} of {name} has no path")
    if isinstance(value, PATH):
        return os.fspath(value)
    raise InputError(
        f"row {row} of {name} has no path in the column {column}, but a value of type {type(value).__name__}; images "
        f'themselves are given as a list, list(table["{column}"]), and their labels beside it'
    )


def _texts(found: dict[str, Sequence[Any]], names: Sequence[str]) -> tuple[str | None, ...] | None:
    column = next((name for name in names if name in found), None)
    return None if column is None else tuple(label_texts(found[column]))


def _split_of(cell: str | None, name: str) -> str:
    split = SPLITS.get((cell or "train").lower())
    if split is None:
        raise InputError(f"{name} has the split {cell!r}; known are train, val and test")
    return split
