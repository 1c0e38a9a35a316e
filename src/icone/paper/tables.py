"""Tables as the paper lays them out, with its numbers, ours and the difference."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from icone.evaluation.metrics import find_metric
from icone.files import replacing
from icone.paper.frames import mean_over_seeds
from icone.terminal import counted

MARKS = {".": "", "b": "bold", "u": "underline", "+": "†"}
"""Letters of `marks` in a file, one per number."""


class Printed(NamedTuple):
    """A table of the paper in long form."""

    label: str
    """Its LaTeX label."""
    about: str
    unit: str
    keys: list[str]
    """What tells its columns apart."""
    values: pd.DataFrame
    """One row per number: `row`, the keys, `paper`, and `mark`: bold, underlined, † (degenerate), or nothing."""
    notes: list[str]
    """What a reader should know, for example where the paper contradicts itself."""


def read_printed(name: str) -> Printed:
    """A stored table by the name of its experiment.

    >>> table = read_printed("knn-3d")
    >>> table.label, table.keys, len(table.values)
    ('tab:knn3d_mean_balanced_accuracy', ['batch_size', 'k'], 72)
    """
    content: dict[str, Any] = json.loads((resources.files("icone.paper") / f"printed/{name}.json").read_text())
    rows = [
        {"row": line["row"], **column, "paper": value, "mark": MARKS[mark]}
        for line in content["rows"]
        for column, value, mark in zip(
            content["columns"], line["values"], line.get("marks", "." * len(line["values"])), strict=True
        )
    ]
    keys = list(content["columns"][0])
    return Printed(
        content["label"], content["about"], content["unit"], keys, pd.DataFrame(rows), content.get("notes", [])
    )


PICTURE_ONLY = "the paper shows these numbers as a picture only"
MANY = 7
"""Columns of numbers that fit into a terminal of 80 characters."""


@dataclass(frozen=True)
class PaperTable:
    """Numbers in long form, and how they are laid out: `row` down, `keys` across."""

    name: str
    title: str
    values: pd.DataFrame
    """Columns: row, the keys, paper, mark (bold, underline, †), ours, difference, sd (over seeds), seeds, runs, wanted,
    status."""
    keys: list[str]
    source: str
    """The paper's label, or why there are no numbers of it."""
    digits: int | None = 1
    """Decimals, but one in columns of percentages; None shows numbers as they are."""
    notes: list[str] = field(default_factory=list)

    def rendered(self) -> Group:
        """For a terminal: per row the paper's numbers, ours ± their spread over seeds, and the difference.

        A table with many columns is shown in parts, one for each value of its first key.
        """
        columns = self._columns()
        parts = [columns]
        if len(columns) > MANY and len(self.keys) > 1:
            parts = [[c for c in columns if c[0] == first] for first in dict.fromkeys(c[0] for c in columns)]
        tables = [self._part(part) for part in parts]
        return Group(Text(f"{self.title} ({self.source})", style="bold"), *tables, *map(Text, self.notes))

    def _part(self, columns: list[tuple[Any, ...]]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("", no_wrap=True)
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column("\n".join(_heading(k, v) for k, v in zip(self.keys, column, strict=True)), justify="right")
        for title, kind, cells in self.lines(columns):
            texts = [Text(text, f"{mark} not dim" if mark in ("bold", "underline") else "") for text, mark in cells]
            table.add_row(title, kind, *texts, style="dim" if kind == "paper" else "")
        return table

    def headings(self) -> list[str]:
        """One line for every column of numbers."""
        return [" ".join(_heading(k, v) for k, v in zip(self.keys, c, strict=True)) for c in self._columns()]

    def lines(self, columns: list[tuple[Any, ...]] | None = None) -> list[tuple[str, str, list[tuple[str, str]]]]:
        """Per row up to three lines (paper, ours, difference): a title, the kind, and (text, mark) of every cell.

        `columns` are those that are shown; None: all.
        """
        columns = self._columns() if columns is None else columns
        records = self.values.to_dict("records")
        cells: dict[tuple[object, ...], Any] = {(row["row"], *(row[k] for k in self.keys)): row for row in records}
        has_paper = bool(self.values["paper"].notna().any())
        found: list[tuple[str, str, list[tuple[str, str]]]] = []
        for name in dict.fromkeys(self.values["row"]):
            of_row = [cells.get((name, *column)) for column in columns]
            if has_paper:
                marks = ["" if c is None or not isinstance(c["mark"], str) else c["mark"] for c in of_row]
                numbers = [self._number(c, "paper") for c in of_row]
                printed = [f"{n}†" if m == "†" and n else n for n, m in zip(numbers, marks, strict=True)]
                found.append((str(name), "paper", list(zip(printed, marks, strict=True))))
            found.append(("" if has_paper else str(name), "ours", [(self._ours(c), "") for c in of_row]))
            if has_paper:
                found.append(("", "diff.", [(self._number(c, "difference", sign=True), "") for c in of_row]))
        return found

    def _columns(self) -> list[tuple[Any, ...]]:
        return list(dict.fromkeys(map(tuple, self.values[self.keys].to_numpy())))

    def save(self, folder: Path) -> list[Path]:
        """The long form as CSV and Parquet."""
        mixed = [name for name in ("paper", "ours", "difference") if self.values[name].dtype == object]
        return save_frame(self.values.astype(dict.fromkeys(("row", *self.keys, *mixed), str)), folder, self.name)

    def _ours(self, cell: dict[str, Any] | None) -> str:
        if cell is None:
            return ""
        number = self._number(cell, "ours")
        if not number:
            return {"missing": "–", "done": "–"}.get(str(cell["status"]), str(cell["status"]))
        spread = self._number(cell, "sd")
        partial = "*" if cell["runs"] != cell["wanted"] else ""
        return f"{number}±{spread}{partial}" if spread else f"{number}{partial}"

    def _number(self, cell: dict[str, Any] | None, name: str, sign: bool = False) -> str:
        value = None if cell is None else cell[name]
        metric = find_metric(str(cell.get("metric", ""))) if cell is not None else None
        digits = metric.digits if metric is not None and metric.percent else self.digits
        if isinstance(value, str):
            return value
        if not isinstance(value, (int, float)) or math.isnan(value):
            return ""
        kind = "g" if digits is None else f".{digits}f"
        return f"{value:{'+' if sign else ''}{kind}}"


def save_frame(frame: pd.DataFrame, folder: Path, name: str) -> list[Path]:
    """Write a table as CSV and Parquet."""
    written = [folder / f"{name}.csv", folder / f"{name}.parquet"]
    with replacing(written[0]) as csv, replacing(written[1]) as parquet:
        frame.to_csv(csv, index=False)
        frame.to_parquet(parquet, index=False)
    return written


def metric_table(
    runs: pd.DataFrame,
    *,
    name: str,
    title: str,
    row: str,
    keys: Sequence[str],
    metric: str = "linear_probe",
    printed: str | None = None,
    absent: str = PICTURE_ONLY,
    average: bool = False,
    scale: float | None = None,
) -> PaperTable:
    """Mean of a metric over data sets and seeds for every `row` and combination of `keys`, beside the printed numbers.

    `average` adds the mean over the last key to every row, as some of the paper's tables do; `absent` says why there
    are no printed numbers.
    """
    means = mean_over_seeds(runs, [row, *keys], metric)
    if average:
        means = pd.concat([means, averages(runs, row, keys[-1], metric)])
    means = means.rename(columns={row: "row", "mean": "ours"})
    means[["ours", "sd"]] *= scale or find_metric(metric).scale
    return beside_paper(
        means, name=name, title=title, keys=list(keys), printed=printed, notes=reasons(runs), absent=absent,
        digits=find_metric(metric).digits,
    )  # fmt: skip


def beside_paper(
    means: pd.DataFrame,
    *,
    name: str,
    title: str,
    keys: list[str],
    printed: str | None,
    notes: list[str],
    digits: int = 1,
    absent: str = PICTURE_ONLY,
) -> PaperTable:
    """Put the printed numbers beside ours; rows that only the paper has are kept, so that gaps are seen."""
    means = means.astype({"row": str, **dict.fromkeys(keys, object)})
    if printed is None:
        values, source = means.assign(paper=float("nan")), absent
    else:
        table = read_printed(printed)
        theirs = table.values.astype(dict.fromkeys(keys, object))
        values = _in_order(means.merge(theirs, how="outer", on=["row", *keys]), [means, theirs], keys)
        source, notes = table.label, [*notes, *table.notes]
        values["status"] = values["status"].fillna("missing")
    values = values.assign(difference=values["ours"] - values["paper"])
    partial = (values["runs"].fillna(0) != values["wanted"].fillna(0)) & values["ours"].notna()
    extra = ["* not all runs of the grid have finished"] if partial.any() else []
    values["mark"] = values["mark"].fillna("") if "mark" in values else ""
    columns = ["row", *keys, "paper", "mark", "ours", "difference", "sd", "seeds", "runs", "wanted", "status"]
    return PaperTable(name, title, values[columns].reset_index(drop=True), keys, source, digits, [*notes, *extra])


def _in_order(values: pd.DataFrame, parts: Sequence[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """Rows as the first part has them, columns as the last: what is new to either comes at the end."""
    rows = list(dict.fromkeys(name for part in parts for name in part["row"]))
    columns = list(dict.fromkeys(c for part in parts[::-1] for c in map(tuple, part[keys].to_numpy())))
    places = [
        (rows.index(row), columns.index(column))
        for row, column in zip(values["row"], map(tuple, values[keys].to_numpy()), strict=True)
    ]
    return values.iloc[sorted(range(len(places)), key=places.__getitem__)]


def averages(runs: pd.DataFrame, row: str, key: str, metric: str) -> pd.DataFrame:
    """The mean over all values of `key`, under the name "average"."""
    return mean_over_seeds(runs, [row], metric).assign(**{key: "average"})


def reasons(runs: pd.DataFrame) -> list[str]:
    """Why runs have no metrics, and which data sets were smaller than asked for: a line each."""
    if runs.empty:
        return []
    without = runs[runs["status"].isin(["undefined", "failed"])]
    found = Counter(zip(without["status"].astype(str), without["reason"].astype(str), strict=True))
    lines = [f"{status} ({counted(count, 'run')}): {reason}" for (status, reason), count in found.items()]
    noted = dict.fromkeys(zip(runs["dataset"], runs["notes"].astype(object).fillna(""), strict=True))
    smaller = {dataset: note.split("; ")[0] for dataset, note in noted if note.startswith("asked for")}
    return [*lines, *(f"{dataset}: {note}" for dataset, note in smaller.items())]


_HEADINGS = {"batch_size": "B", "n": "N", "dims": "", "k": "k", "metric": ""}


def _heading(key: str, value: object) -> str:
    if key == "dims":
        return f"{value}D"
    if key == "metric" or isinstance(value, str):
        return str(value).replace("_", " ")
    return f"{_HEADINGS.get(key, key)}={value}"
