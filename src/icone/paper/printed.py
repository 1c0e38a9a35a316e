"""The paper's printed numbers: one JSON file per table, in printed/."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, NamedTuple

import pandas as pd

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
