"""The evaluated samples of a run: features, ids and what they can be coloured by, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from icone.api.evaluated import read_arrays
from icone.data.labels import read_columns
from icone.data.targets import label_set
from icone.errors import InputError
from icone.evaluation.probes import sorted_classes
from icone.run import Run
from icone.terminal import counted, either
from icone.wording import all_in_user_terms, command_line

Split = Literal["train", "val", "test", "external"]
MOST_POINTS = 20_000
MOST_CATEGORIES = 40
"""Eight colours times five symbols; what is rarer is shown as "other"."""
NO_LABEL = "no label"
"""Of several labels per sample: known to have none of them."""
FEW = 10
"""Up to this many different numbers are taken for categories."""


@dataclass(frozen=True)
class Samples:
    """Rows of features.npz that take part, at most 20,000, and sentences about those that do not."""

    features: npt.NDArray[np.float32]
    ids: list[str]
    """Unique: those of a test set are named `test/id` (official) or `external/id`."""
    source_ids: list[str]
    splits: list[Split]
    labels: list[str]
    """The class, number or labels (`a|b`), or "" where there is none."""
    notes: list[str]
    groups: list[str] = field(default_factory=list)
    """The group of every sample, or "" where there is none; empty in results of earlier versions."""
    untrained: npt.NDArray[np.float32] | None = None
    """The features before training, where they were measured and are finite."""
    task: str = "classification"

    @property
    def labelled(self) -> bool:
        return any(self.labels)

    @property
    def classes(self) -> list[str]:
        """The class of every sample; all "" where labels are numbers, or several per sample."""
        return self.labels if self.task == "classification" else [""] * len(self.labels)

    def label_column(self) -> Column:
        """Labels to colour by: numbers where they are a quantity, else categories."""
        return numbers_or_categories("label", self.label_texts(), names=self.task != "regression")

    def label_texts(self) -> list[str | None]:
        """What a reader sees of every label; None where there is none. Of several those that a sample has."""
        if self.task != "multilabel":
            return [name or None for name in self.labels]
        return [(", ".join(sorted_classes(label_set(name))) or NO_LABEL) if name else None for name in self.labels]


def with_flags(texts: Any) -> Any:
    """Texts in which settings are called by their flags: a page is for whoever opens it, as its command is.

    >>> with_flags(["give --size=64"])
    ['give --size 64']
    """
    with command_line():
        return all_in_user_terms(texts)


def read_samples(run: Run, most: int = MOST_POINTS) -> Samples:
    """What `icone evaluate` has saved; rows that are not finite are left out, with a sentence."""
    saved = read_arrays(run, ("features", "ids", "labels", "splits"), ("groups", "untrained"))
    groups, before = saved.get("groups", np.full(len(saved["ids"]), "")), saved.get("untrained")
    notes = []
    rows = np.flatnonzero(np.isfinite(saved["features"]).all(axis=1))
    if broken := len(saved["features"]) - len(rows):
        have, are = either(broken, "has", "have"), either(broken, "is", "are")
        notes.append(
            f"{broken:,} of {len(saved['features']):,} samples {have} NaN or infinite features and {are} left out."
        )
    if len(rows) < 2:
        few = counted(len(rows), "sample")
        raise InputError(f"{run.features_file} holds {few} with finite features: nothing to show")
    if len(rows) > most:
        notes.append(f"A random {most:,} of {len(rows):,} samples are shown.")
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    names, splits = saved["ids"][rows].tolist(), saved["splits"][rows].tolist()
    mixed = len(set(splits)) > 1
    return Samples(
        features=saved["features"][rows],
        ids=[f"{split}/{name}" if mixed else name for name, split in zip(names, splits, strict=True)],
        source_ids=names,
        splits=splits,
        labels=saved["labels"][rows].tolist(),
        notes=notes,
        groups=groups[rows].tolist(),
        untrained=None if before is None or not np.isfinite(before[rows]).all() else before[rows],
        task=((run.result or {}).get("data") or {}).get("task", "classification"),
    )


@dataclass(frozen=True)
class Column:
    """Something to colour by: numbers, or codes into `categories` (-1: none)."""

    name: str
    categories: list[str] | None
    values: Sequence[float | None]


def numbers_or_categories(name: str, values: Sequence[str | None], *, names: bool = False) -> Column:
    """Numbers where all values are, and they are more than a few; else categories in the order of tables.

    Of too many categories the rarest are "other".

    `names` takes them for categories in any case: a class called 7 is no quantity.

    >>> numbers_or_categories("site", ["b", "a", "b", None])
    Column(name='site', categories=['a', 'b'], values=[1, 0, 1, -1])
    """
    given = [value for value in values if value]
    numbers = [_number(value) for value in given]
    if not names and None not in numbers and len(set(numbers)) > FEW:
        return Column(name, None, [_number(value) for value in values])
    found, counts = np.unique(np.array(given, dtype=str), return_counts=True)
    frequent = [str(found[i]) for i in np.argsort(-counts, kind="stable")]
    is_long = len(frequent) > MOST_CATEGORIES
    ordered = [*sorted_classes(frequent[: MOST_CATEGORIES - 1] if is_long else frequent), *["other"] * is_long]
    code = {category: i for i, category in enumerate(ordered)}
    rest = len(ordered) - 1
    return Column(name, ordered, [code.get(value, rest) if value else -1 for value in values])


def table_columns(path: Path, samples: Samples) -> list[Column]:
    """The columns of a CSV, matched to the samples by id.

    Where samples are of several splits, the ids are those of the page, `external/id`, or those that samples have in the
    data of the run. The table then says nothing about an external test set, whose ids may be the same.
    """
    if len(set(samples.splits)) == 1:
        return _as_columns(read_columns(path, samples.source_ids))
    own = [row for row, split in enumerate(samples.splits) if split != "external"]
    names = [samples.source_ids[row] for row in own]
    namings: list[tuple[Sequence[int], list[str]]] = [(range(len(samples.ids)), samples.ids)]
    if len(set(names)) == len(names):  # not where both official splits have the same ids
        namings.append((own, names))
    found: list[dict[str, list[str | None]]] = []
    wrong: list[InputError] = []
    for rows, ids in namings:
        try:
            read = read_columns(path, ids)
        except InputError as error:
            wrong.append(error)
            continue
        by_row = {name: dict(zip(rows, values, strict=True)) for name, values in read.items()}
        found.append({name: [of.get(row) for row in range(len(samples.ids))] for name, of in by_row.items()})
    if not found:
        raise wrong[0]
    return _as_columns(max(found, key=_told))


def _told(columns: Mapping[str, Sequence[str | None]]) -> int:
    """How many samples columns say something about."""
    return sum(any(cells) for cells in zip(*columns.values(), strict=True))


def _as_columns(columns: Mapping[str, Sequence[str | None]]) -> list[Column]:
    return [numbers_or_categories(name, values) for name, values in columns.items()]


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value else None
    except ValueError:
        return None
    return number if number is not None and np.isfinite(number) else None
