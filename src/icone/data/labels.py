"""Class names from a CSV table or from subfolders."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from icone.data.formats.registry import suffix_of
from icone.errors import InputError, printable

ID_COLUMNS = ("id", "path", "file", "filename", "image", "name")
LABEL_COLUMNS = ("label", "class", "target")
FORMULA_SIGNS = ("=", "+", "-", "@")
SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test",
    "testing": "test",
}  # fmt: skip
"""What a column `split` may hold, and how folders of splits are called, in any case."""


def read_labels(path: Path, ids: Sequence[str]) -> tuple[str | None, ...]:
    """The class of every id, from a CSV with a column of ids or file names and a column `label`.

    A row names its sample by the whole id (a path that ends with it is fine), by the file name, or by the
    file name without suffix, where that fits one sample only. An empty label means "not labelled" (None).
    A row that fits no sample and a sample without a row are errors, because both usually mean that the
    table belongs to other data.
    """
    aliases, known = _aliases(ids), frozenset(ids)
    labels: dict[str, str | None] = {}
    unknown = []
    for name, label in _rows(path):
        sample = _find(name, known, aliases)
        if sample is None:
            unknown.append(name)
        elif labels.setdefault(sample, label) != label:
            raise InputError(
                f"{path} gives {_short(name)} two labels: {_short(str(labels[sample]))} and {_short(str(label))}"
            )
    if unknown:
        raise InputError(
            f"{path} labels {len(unknown)} samples that are not in the data, or there more than once "
            f"({_examples(unknown)}); the data has ids such as {_examples(ids)}: "
            "remove these rows or write whole ids"
        )
    missing = [name for name in ids if name not in labels]
    if missing:
        raise InputError(
            f"{path} has no row for {len(missing)} of {len(ids)} samples ({_examples(missing)}); "
            "add them, with an empty label where none is known"
        )
    return tuple(labels[name] for name in ids)


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


def labels_from_folders(ids: Sequence[str]) -> tuple[str, ...] | None:
    """The first folder of every id as its class, or None where the folders do not look like classes.

    They do if every file is inside a folder, and there are two folders or more, each with at least two
    files. Folders that are named like splits (train, test, …) are no classes.

    >>> labels_from_folders(["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"])
    ('cat', 'cat', 'dog', 'dog')
    >>> labels_from_folders(["patient1/scan.nii", "patient2/scan.nii"]) is None
    True
    """
    if any("/" not in name for name in ids):
        return None
    folders = tuple(name.split("/", 1)[0] for name in ids)
    sizes = Counter(folders)
    if len(sizes) < 2 or min(sizes.values()) < 2 or {name.lower() for name in sizes} <= SPLITS.keys():
        return None
    return folders


def splits_from_folders(ids: Sequence[str]) -> tuple[tuple[str, ...] | None, list[str]]:
    """The split of every id by its first folder, and the ids below these folders.

    Where a folder is not named like a split, or none is the training part, there are no splits, and the ids stay.

    >>> splits_from_folders(["Training/cat/1.png", "Testing/dog/1.png"])
    (('train', 'test'), ['cat/1.png', 'dog/1.png'])
    """
    parts = [name.partition("/") for name in ids]
    found = tuple(SPLITS.get(first.lower(), "") if rest else "" for first, _, rest in parts)
    if "" in found or "train" not in found:
        return None, list(ids)
    return found if len(set(found)) > 1 else None, [rest for _, _, rest in parts]


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

    >>> without_formula("=1+1.png"), without_formula("a.png")
    ("'=1+1.png", 'a.png')
    """
    return f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell


def _rows(path: Path) -> list[tuple[str, str | None]]:
    """(name, label) of every row."""
    columns, name_at, rows = _table(path)
    label_at = _column(path, [name.lower() for name in columns], LABEL_COLUMNS)
    return [(row[name_at].strip(), printable(row[label_at].strip()) or None) for row in rows]


def _table(path: Path) -> tuple[list[str], int, list[list[str]]]:
    """Column names, the position of the ids, and all rows."""
    columns, rows = read_table(path)
    return columns, _column(path, [name.lower() for name in columns], ID_COLUMNS), rows


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Column names and all rows of a CSV in UTF-8; the separator is a comma, semicolon or tab."""
    try:
        text = path.read_text(encoding="utf-8-sig")
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
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count)))
    except csv.Error as error:
        raise InputError(f"cannot read the table {path}: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _column(path: Path, columns: list[str], wanted: tuple[str, ...]) -> int:
    for name in wanted:
        if name in columns:
            return columns.index(name)
    raise InputError(f"{path} needs a column named {' or '.join(wanted)}; it has: {_short(', '.join(columns))}")


def _aliases(ids: Sequence[str]) -> dict[str, str]:
    """Every name that means exactly one id: its file name, its stem, its number."""
    counts: dict[str, set[str]] = {}
    for name in ids:
        file = PurePosixPath(name).name
        stem = file[: len(file) - len(suffix_of(file))]
        number = name.lstrip("0") or "0" if name.isdecimal() else name
        for alias in {file, stem, number}:
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
