"""The results table: one row per run and metric, the same in memory and as results.parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pandas as pd

from icone.paper.outcome import Status

COLUMNS: dict[str, str] = {
    "run": "category",
    "record": "category",
    "status": "category",
    "reason": "category",
    "source": "category",
    "subset": "Int64",
    "imbalance": "float64",
    "method": "category",
    "options": "category",
    "batch_size": "int64",
    "micro_batch": "Int64",
    "views": "int64",
    "epochs": "int64",
    "lr": "float64",
    "encoder": "category",
    "width": "float64",
    "recipe": "category",
    "sample": "category",
    "seed": "int64",
    "seconds": "float64",
    "train_seconds": "float64",
    "steps": "int64",
    "step_seconds": "float64",
    "together": "int64",
    "processes": "int64",
    "peak_gb": "float64",
    "device": "category",
    "host": "category",
    "finished": "category",
    "notes": "category",
    "test_labels": "category",
    "test_groups": "category",
    "right_linear_probe": "category",
    "right_knn_5": "category",
    "metric": "category",
    "epoch": "Int64",
    "value": "float64",
}
"""Columns and types. `metric` and `value` are empty where a run has no metrics; `epoch` where a metric is the last."""

_FROM_CONFIG = (
    "source", "subset", "imbalance", "method", "batch_size", "views", "epochs", "lr", "encoder", "width", "recipe",
    "seed",
)  # fmt: skip
TESTED = ("test_labels", "test_groups", "right_linear_probe", "right_knn_5")
"""Of `Outcome.tested`: what runs are compared by, sample by sample."""
_SINCE_2: dict[str, Any] = {"steps": 0, "step_seconds": 0.0, "sample": None, "together": 1, "processes": 1}
"""What older outcomes do not tell."""


def rows_of(record: str, content: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one outcome file; a run without metrics has one row, which says why.

    What a damaged file holds raises `KeyError`, `TypeError`, `ValueError` or `AttributeError`.
    """
    config, outcome = content["spec"]["config"], content["outcome"]
    run = {
        "run": record.split(".")[0],
        "record": record,
        **{name: config[name] for name in _FROM_CONFIG},
        "micro_batch": config.get("micro_batch"),
        "options": " ".join(config["options"]),
        **{name: outcome[name] for name in ("status", "reason", "seconds", "train_seconds", "device", "host")},
        **{name: outcome.get(name, unknown) for name, unknown in _SINCE_2.items()},
        "finished": outcome["finished"],
        "notes": "; ".join(outcome["notes"]) or None,
        **{name: outcome.get("tested", {}).get(name) for name in TESTED},
        "peak_gb": outcome["peak_bytes"] / 1e9,
    }
    for name, value in run.items():
        _check(name, value)
    if outcome["status"] not in get_args(Status):
        raise ValueError(f"status is {outcome['status']!r}")
    metrics: list[tuple[str | None, int | None, float | None]] = [
        *((name, None, float(value)) for name, value in outcome["metrics"].items()),
        *((str(name), int(epoch), float(value)) for epoch, name, value in outcome["trace"]),
    ]
    return [{**run, "metric": m, "epoch": e, "value": v} for m, e, v in metrics or [(None, None, None)]]


def _check(name: str, value: object) -> None:
    """Refuse a value that its column cannot hold: one file must not spoil the table of all."""
    kind = COLUMNS[name]
    if value is None and kind in ("category", "Int64", "float64"):
        return
    wanted = str if kind == "category" else (int, float) if kind == "float64" else int
    if not isinstance(value, wanted):
        raise TypeError(f"{name} is {value!r}")


def read_results(path: Path) -> pd.DataFrame:
    """The merged table, or an empty one: where there is none, and where another version has written other columns."""
    table = pd.read_parquet(path) if path.is_file() else pd.DataFrame()
    return typed(table if list(table.columns) == list(COLUMNS) else pd.DataFrame(columns=list(COLUMNS)))


def merge(known: pd.DataFrame, new: list[dict[str, Any]]) -> pd.DataFrame:
    """Both together, unsorted: rows of a run stay next to each other."""
    if not new:
        return typed(known)
    fresh = pd.DataFrame(new, columns=list(COLUMNS), dtype="object")
    return typed(pd.concat([known.astype("object"), fresh]) if len(known) else fresh)


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """The columns in their order and types, without categories that no row uses."""
    table = table[list(COLUMNS)].astype({name: kind for name, kind in COLUMNS.items() if table[name].dtype != kind})
    for name, kind in COLUMNS.items():
        if kind == "category":
            table[name] = table[name].cat.remove_unused_categories()
    return table.reset_index(drop=True)
