"""Class names from a CSV table or from subfolders."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from icone.data.formats.registry import suffix_of
from icone.data.targets import as_number, join_columns
from icone.errors import InputError, nearest_names, printable
from icone.terminal import counted, either
from icone.validation import meant_path, user_path

ID_COLUMNS = ("id", "path", "file", "filename", "image", "name")
LABEL_COLUMNS = ("label", "class", "target")
GROUP_COLUMNS = ("group", "patient")
FORMULA_SIGNS = ("=", "+", "-", "@")
SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test",
    "testing": "test",
}  # fmt: skip
"""What a column `split` may hold, and how folders of splits are called, in any case."""


class LabelTable(NamedTuple):
    """What a table says about samples: labels and groups, a text or None each, and sentences about its rows."""

    labels: tuple[str | None, ...] | None
    groups: tuple[str | None, ...] | None
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    """The names of all its columns."""


def read_labels(path: Path, ids: Sequence[str]) -> tuple[str | None, ...]:
    """The label of every id, from a CSV with a column of ids or file names and a column `label`; None where unknown."""
    labels = read_label_table(path, ids).labels
    assert labels is not None
    return labels


def read_label_table(
    path: Path, ids: Sequence[str], label_columns: Sequence[str] = (), group_column: str | None = None
) -> LabelTable:
    """Labels and groups of samples from a CSV; see `match_table`."""
    return match_table(*read_table(path), str(path), ids, label_columns, group_column)


def match_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    where: str,
    ids: Sequence[str],
    label_columns: Sequence[str] = (),
    group_column: str | None = None,
) -> LabelTable:
    """Labels and groups of samples from the rows of a table, by its column of ids or file names.

    A row names its sample by the whole id (a path that ends with it is fine), by the file name, or by the
    file name without suffix, where that fits one sample only. A sample without a row and one with an empty label
    are not labelled (None). Rows for other samples are passed over, with a note; where no row fits, the table belongs
    to other data, which is an error. `label_columns` are one column of labels or several of 0 and 1; a table with the
    `group_column` need not have labels.
    """
    lower = [name.lower() for name in columns]
    name_at = _column(where, columns, ID_COLUMNS)
    group_at = next((at for at, name in enumerate(lower) if name in GROUP_COLUMNS), None)
    if group_column is not None:
        group_at = lower.index(group_column.lower()) if group_column.lower() in lower else None
    label_at = [_column(where, columns, (column,), "--label-column") for column in label_columns]
    if not label_at and (group_column is None or group_at is None or {*LABEL_COLUMNS} & {*lower}):
        label_at = [_column(where, columns, LABEL_COLUMNS, way_out="--label-column names another")]
    found = _rows_by_id(where, [row[name_at] for row in rows], ids)
    notes = list(found.notes)
    labels = groups = None
    if label_at:
        cells = [[printable(row[at].strip()) or None for row in rows] for at in label_at]
        of_rows = cells[0] if len(cells) == 1 else join_columns(label_columns, cells, where)
        labels = _of_samples(of_rows, found.samples, ids, where, "labels")
    if group_at is not None:
        cells = [[printable(row[group_at].strip()) or None for row in rows]]
        groups = _of_samples(cells[0], found.samples, ids, where, "groups")
        if group_column is None:
            notes.append(f"the column {columns[group_at]} of {where} holds groups: no split parts them")
    return LabelTable(labels, groups, tuple(notes), tuple(columns))


class _Found(NamedTuple):
    """The sample that every row means, or None; and sentences about the others."""

    samples: list[str | None]
    notes: list[str]


def _rows_by_id(where: str, names: Sequence[str], ids: Sequence[str]) -> _Found:
    aliases, known = _aliases(ids), frozenset(ids)
    samples = [_find(name, known, aliases) for name in names]
    unknown = [name for name, sample in zip(names, samples, strict=True) if sample is None]
    every = {alias for name in ids for alias in _names_of(name)} if unknown else set()
    ambiguous = [name for name in unknown if name.strip() in every]
    if ambiguous or (unknown and len(unknown) == len(names)):
        listed = ambiguous or unknown
        way_out = "remove these rows or write whole ids" if ambiguous else "is it the table of these files?"
        are = either(len(listed), "is", "are")
        raise InputError(
            f"{where} labels {counted(len(listed), 'sample')} that {are} not in the data, or there more than once "
            f"({_examples(listed)}); the data has ids such as {_examples(ids)}: {way_out}"
        )
    if not names:
        raise InputError(f"{where} has no row for any of the {counted(len(ids), 'sample')} ({_examples(ids)})")
    return _Found(samples, [_unknown_note(where, unknown, samples, ids)] if unknown else [])


def _unknown_note(where: str, unknown: Sequence[str], samples: Sequence[str | None], ids: Sequence[str]) -> str:
    """Which rows name no sample, which samples have no row, and which of these a row may mean."""
    named = set(samples)
    without = [name for name in ids if name not in named]
    names_samples = either(len(unknown), "names a sample that is", "name samples that are")
    rows = ", ".join(_short(name) + _meant(name, without) for name in unknown[:3])
    note = f"{counted(len(unknown), 'row')} of {where} {names_samples} not in the data, such as {rows}"
    have = either(len(without), "has", "have")
    return f"{note}; {counted(len(without), 'sample')} {have} no row, such as {_examples(without)}" if without else note


def _meant(name: str, without: Sequence[str]) -> str:
    """The sample without a row that a row may mean; other digits are another sample, as in `cell_3` and `cell_4`."""
    aliases = {alias: one for one in without for alias in (one, *_names_of(one)) if _digits(alias) == _digits(name)}
    near = nearest_names(name, list(aliases)[:MOST_NAMES], most=1)
    return f" (did you mean {_short(aliases[near[0]])}?)" if near else ""


MOST_NAMES = 10_000
"""Names of samples that are looked at for the sake of a hint."""


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _of_samples(
    values: Sequence[str | None], samples: Sequence[str | None], ids: Sequence[str], where: str, what: str
) -> tuple[str | None, ...]:
    """The value of every sample; two rows for one sample must agree."""
    by_id: dict[str, str | None] = {}
    for value, sample in zip(values, samples, strict=True):
        if sample is not None and by_id.setdefault(sample, value) != value:
            raise InputError(
                f"{where} gives {_short(sample)} two {what}: {_short(str(by_id[sample]))} and {_short(str(value))}"
            )
    return tuple(by_id.get(name) for name in ids)


def read_columns(path: Path, ids: Sequence[str]) -> dict[str, tuple[str | None, ...]]:
    """The columns of a CSV other than that of the ids, with a value or None for every id.

    Rows name their samples as for `read_labels`; rows for other samples are passed over, because the table
    may describe more data than is looked at.
    """
    columns, name_at, rows = _table(path)
    aliases, known = _aliases(ids), frozenset(ids)
    found: dict[str, list[str]] = {}
    for row in rows:
        sample = _find(row[name_at], known, aliases)
        if sample is not None and found.setdefault(sample, row) != row:
            raise InputError(f"{path} has two rows for {_examples([sample])}, and they differ: keep one of them")
    if not found:
        raise InputError(f"no row of {path} names one of the samples; they have ids such as {_examples(ids)}")
    return {
        column: tuple(found[name][at].strip() or None if name in found else None for name in ids)
        for at, column in enumerate(columns)
        if at != name_at
    }


def has_column(table: Any, name: str) -> bool:
    """Whether a CSV or a DataFrame has a column, whatever its case; other objects have none."""
    if isinstance(table, (str, os.PathLike)):
        columns = read_table(user_path(Path(table)))[0]
    else:
        columns = [str(column) for column in getattr(table, "columns", ())]
    return name.strip().lower() in {column.strip().lower() for column in columns}


def class_names(labels: Iterable[str | None]) -> tuple[str, ...]:
    """The distinct labels in order; by value where all of them are whole numbers.

    >>> class_names(["10", "9", None, "9"])
    ('9', '10')
    """
    names = {label for label in labels if label is not None}
    by_value = all(name.isascii() and name.isdecimal() for name in names)
    return tuple(sorted(names, key=_by_value if by_value else None))


def _by_value(name: str) -> tuple[int, str, str]:
    """Orders whole numbers as `int` would, however many digits they have."""
    digits = name.lstrip("0")
    return len(digits), digits, name


def without_formula(cell: str) -> str:
    """A cell of a CSV that no spreadsheet runs as a formula: an apostrophe goes before `=`, `+`, `-` and `@`.

    A number is none, with a sign too: classes are often called -1 and 1.

    >>> without_formula("=1+1.png"), without_formula("a.png"), without_formula("-1")
    ("'=1+1.png", 'a.png', '-1')
    """
    return f"'{cell}" if cell.startswith(FORMULA_SIGNS) and as_number(cell) is None else cell


def _table(path: Path) -> tuple[list[str], int, list[list[str]]]:
    """Column names, the position of the ids, and all rows."""
    columns, rows = read_table(path)
    return columns, _column(str(path), columns, ID_COLUMNS), rows


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Column names and all rows of a CSV in UTF-8; the separator is a comma, semicolon or tab."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"there is no table {path}{meant_path(path) or '; check the path'}") from error
    except OSError as error:
        raise InputError(f"cannot read the table {path}: {error}") from error
    except UnicodeDecodeError as error:
        way_out = "save the table as CSV in UTF-8"
        raise InputError(f"cannot read the table {path}: it is not UTF-8 ({error}); {way_out}") from error
    if "\0" in text:
        raise InputError(f"cannot read the table {path}: it holds NUL bytes; save the table as CSV in UTF-8")
    if not text.strip():
        raise InputError(f"cannot read the table {path}: it is empty")
    columns, *rows = _parsed(path, text)
    columns = [name.strip() for name in columns]
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    short = next((row for row in rows if len(row) < len(columns)), None)
    if short is not None:
        raise InputError(f"{path} has a row with too few columns: {_short(','.join(short))}")
    return columns, rows


def _parsed(path: Path, text: str) -> list[list[str]]:
    """All lines of a table. Python's limit on the length of a field is lifted meanwhile: it is read already."""
    header = text.split("\n", 1)[0]
    limit = csv.field_size_limit(sys.maxsize)
    delimiter = max(",;\t", key=header.count)
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        try:
            for _ in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
                pass
        except csv.Error as error:
            if "unexpected end" in str(error):  # the rest of the table would be one cell
                raise InputError(f"cannot read the table {path}: a quote is opened and never closed") from error
        return lines
    except csv.Error as error:
        raise InputError(f"cannot read the table {path}: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _column(
    where: str, columns: Sequence[str], wanted: Sequence[str], flag: str | None = None, way_out: str | None = None
) -> int:
    """The position of the first of these columns that a table has, whatever its case."""
    lower = [name.lower() for name in columns]
    for name in wanted:
        if name.lower() in lower:
            return columns.index(name) if name in columns else lower.index(name.lower())
    has = f"it has: {_short(', '.join(columns).lower() if flag is None else ', '.join(columns))}"
    if flag is not None:
        raise InputError(f"{where} has no column {wanted[0]} ({flag}); {has}")
    raise InputError(
        f"{where} needs a column named {' or '.join(wanted)}; {has}" + (f" ({way_out})" if way_out else "")
    )


def _names_of(name: str) -> set[str]:
    """What a table may call an id: its file name, its stem, its number."""
    file = PurePosixPath(name).name
    number = name.lstrip("0") or "0" if name.isdecimal() else name
    return {file, file[: len(file) - len(suffix_of(file))], number}


def _aliases(ids: Sequence[str]) -> dict[str, str]:
    """Every name that means exactly one id."""
    counts: dict[str, set[str]] = {}
    for name in ids:
        for alias in _names_of(name):
            counts.setdefault(alias, set()).add(name)
    return {alias: next(iter(names)) for alias, names in counts.items() if len(names) == 1}


def _find(name: str, known: frozenset[str], aliases: dict[str, str]) -> str | None:
    """The id that a cell of a table means: as it is, or with `\\` for `/`; or what `without_formula` has changed."""
    name = printable(name.strip())
    for text in (name, name.replace("\\", "/")):
        parts = PurePosixPath(text).parts
        tails = ("/".join(parts[i:]) for i in range(len(parts)))
        found = next((tail for tail in tails if tail in known), aliases.get("/".join(parts)))
        if found is not None:
            return found
    plain = name.removeprefix("'")
    return _find(plain, known, aliases) if without_formula(plain) == name != plain else None


def _examples(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names[:3])) + (", …" if len(names) > 3 else "")


def _short(text: str, length: int = 100) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
