"""What labels mean: classes, numbers (regression) or several labels per sample; and ids that suggest groups."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from icone.data.formats.registry import suffix_of
from icone.errors import InputError

Task = Literal["classification", "regression", "multilabel"]
TaskSetting = Literal["auto", "classification", "regression", "multilabel"]
SEPARATOR = "|"
"""Between the labels of one sample, as in `cyst|stone`. Alone it means: looked at, and none of them."""
MANY_VALUES = 20
FEW_PER_VALUE = 10
"""Whole numbers of more than 20 different values with fewer than 10 samples each are quantities, such as an age: a
classifier would have too little to learn from. Other whole numbers are taken for names of classes."""
LARGEST = 1e100
"""Numbers beyond it are no labels: scores are of their squares."""
YES, NO = {"1", "1.0", "true"}, {"0", "0.0", "false"}


def as_number(text: str) -> float | None:
    """The finite number that a text is, or None.

    >>> as_number("3.5"), as_number("cat"), as_number("nan")
    (3.5, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def label_set(text: str) -> frozenset[str]:
    """The labels of one sample.

    >>> sorted(label_set("cyst|stone")), sorted(label_set("|"))
    (['cyst', 'stone'], [])
    """
    return frozenset(name.strip() for name in text.split(SEPARATOR) if name.strip())


def find_task(labels: Sequence[str | None], wanted: TaskSetting, several_columns: bool = False) -> tuple[Task, str]:
    """What labels are, and a sentence about it where it was guessed.

    Several columns, or a `|` in a label: multilabel. Numbers that are not whole, or whole ones of very many values:
    regression. Everything else: classification. `wanted` decides otherwise.

    >>> find_task(["0.5", "1.25", None], "auto")[0], find_task(["0", "1"], "auto")[0], find_task(["a|b"], "auto")[0]
    ('regression', 'classification', 'multilabel')
    """
    given = [label for label in labels if label is not None]
    numbers = [number for label in given if (number := as_number(label)) is not None]
    all_numbers = bool(given) and len(numbers) == len(given)
    if wanted == "regression" and len(numbers) < len(given):
        wrong = next(label for label in given if as_number(label) is None)
        raise InputError(f"--task=regression needs numbers, but one label is {wrong!r}: correct it, or leave it empty")
    if (large := max(map(abs, numbers), default=0.0)) > LARGEST and wanted in ("auto", "regression"):
        raise InputError(
            f"a label is {large:g}, and the square of such a number cannot be computed: give the labels another unit, "
            "or leave it empty where it stands for an unknown one"
        )
    if wanted != "auto":
        return wanted, ""
    if several_columns:
        return "multilabel", ""
    if any(SEPARATOR in label for label in given):
        return "multilabel", f"labels hold {SEPARATOR}, so a sample has several (--task=classification: one)"
    odd = [label for label in given if label.lower() == "nan"]
    if odd and numbers and len(numbers) + len(odd) == len(given):
        raise InputError(
            f"the labels are numbers, but {len(odd)} of {len(given)} are {odd[0]!r}: leave them empty where they are "
            "unknown, or give --task=classification"
        )
    if not all_numbers:
        return "classification", f"{len(odd)} samples have the label {odd[0]!r}: it is a class" if odd else ""
    values = set(numbers)
    span = f"{min(values):g} to {max(values):g}"
    if not all(value.is_integer() for value in values):
        return (
            "regression",
            f"the labels are numbers, {span}, and taken for a quantity (--task=classification: classes)",
        )
    if len(values) > MANY_VALUES and len(given) < FEW_PER_VALUE * len(values):
        how = f"the labels are whole numbers, {span}, with {len(given) / len(values):.1f} samples of each value"
        return "regression", f"{how}, and taken for a quantity (--task=classification: classes)"
    found = f"the labels are {len(values)} whole numbers, taken for classes"
    return "classification", f"{found}; if they are quantities, give --task=regression"


_WHOLE = re.compile(r"([+-]?\d+)\.0*")


def in_one_spelling(labels: Sequence[str | None]) -> tuple[str | None, ...]:
    """The names of classes; where they are numbers and one is written in two ways, 1 and 1.0, both are the first.

    A table that was joined from two has such labels: a missing cell makes decimals of the column of one of them.

    >>> in_one_spelling(["0", "1", "1.0", None]), in_one_spelling(["0.0", "1.0"]), in_one_spelling(["a", "1", "1.0"])
    (('0', '1', '1', None), ('0.0', '1.0'), ('a', '1', '1.0'))
    """
    found = {label for label in labels if label is not None}
    short = {label: match[1] if (match := _WHOLE.fullmatch(label)) else label for label in found}
    if any(as_number(label) is None for label in found) or len(set(short.values())) == len(found):
        return tuple(labels)
    return tuple(None if label is None else short[label] for label in labels)


def join_columns(names: Sequence[str], columns: Sequence[Sequence[str | None]], where: str) -> list[str | None]:
    """One text per sample from columns of 0 and 1; a sample whose cells are all empty is not labelled.

    >>> join_columns(["cyst", "stone"], [["1", "0", None], ["1", "0", None]], "labels.csv")
    ['cyst|stone', '|', None]
    """
    joined: list[str | None] = []
    for row, cells in enumerate(zip(*columns, strict=True), start=1):
        if all(cell is None for cell in cells):
            joined.append(None)
            continue
        for name, cell in zip(names, cells, strict=True):
            if (cell or "").lower() not in YES | NO:
                raise InputError(
                    f"row {row} of {where} has {cell or 'nothing'!r} in the column {name}: several --label-column hold "
                    "0 or 1 each, or are all empty where a sample is not labelled"
                )
        present = [name for name, cell in zip(names, cells, strict=True) if (cell or "").lower() in YES]
        joined.append(SEPARATOR.join(present) or SEPARATOR)
    return joined


_PART = re.compile(r"(?P<prefix>(?:.*[/_\-. ])?[^/_\-. ]*\d[^/_\-. ]*)[/_\-. ]+[A-Za-z]*\d+")


def suggested_groups(ids: Sequence[str]) -> str:
    """A sentence where ids look like parts of a patient, a well or an embryo; else nothing.

    An id such as `patient01_slice3` has a numbered part behind a numbered prefix. The sentence comes where at least
    half of the samples share their prefix with another one, and there are two prefixes or more.

    >>> suggested_groups(["p01_slice1.png", "p01_slice2.png", "p02_slice1.png", "p02_slice2.png"])[:44]
    'ids such as p01_slice1.png suggest 2 groups '
    >>> suggested_groups(["cell_1.png", "cell_2.png"])
    ''
    """
    found = [_PART.fullmatch(name[: len(name) - len(suffix_of(name))]) for name in ids]
    prefixes = Counter(match["prefix"] for match in found if match)
    shared = {prefix: count for prefix, count in prefixes.items() if count > 1}
    if len(prefixes) < 2 or 2 * sum(shared.values()) < len(ids):
        return ""
    example = next(name for name, match in zip(ids, found, strict=True) if match and match["prefix"] in shared)
    return (
        f"ids such as {example} suggest {len(prefixes)} groups (patients, wells, …) with several samples each: a split "
        "that parts them flatters the probes. Give them as a column of --labels with --group-column"
    )
