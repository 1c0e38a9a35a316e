"""The results table, the same in memory and as results.parquet; frames of experiments and means over seeds from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pandas as pd

from icone.paper.spec import Cell, Status

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
    "metric": "category",
    "epoch": "Int64",
    "value": "float64",
}
"""Columns and types. `metric` and `value` are empty where a run has no metrics; `epoch` where a metric is the last."""

_FROM_CONFIG = (
    "source", "subset", "imbalance", "method", "batch_size", "views", "epochs", "lr", "encoder", "width", "recipe",
    "seed",
)  # fmt: skip
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
        "options": " ".join(config["options"]),
        **{name: outcome[name] for name in ("status", "reason", "seconds", "train_seconds", "device", "host")},
        **{name: outcome.get(name, unknown) for name, unknown in _SINCE_2.items()},
        "finished": outcome["finished"],
        "notes": "; ".join(outcome["notes"]) or None,
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


class Results(NamedTuple):
    """The runs of an experiment, finished or not."""

    runs: pd.DataFrame
    """One row per run of the grid: its labels, `key`, `status` ("missing" where it has not run), `reason`, metrics."""
    trace: pd.DataFrame
    """One row per run, epoch and metric, with the labels; empty for experiments that follow no training."""


def collect(cells: Sequence[Cell], table: pd.DataFrame) -> Results:
    """Join the cells of a grid with the results table."""
    labels = pd.DataFrame([{**cell.labels, "key": cell.spec.key} for cell in cells])
    if labels.empty:
        return Results(labels, labels)
    wanted = table[table["run"].isin(set(labels["key"]))].astype({"run": str, "metric": object})
    about = ["run", "status", "reason", "seconds", "train_seconds", "peak_gb", "device", "notes"]
    heads = wanted.drop_duplicates("run")[about]
    final = wanted[wanted["epoch"].isna() & wanted["metric"].notna()]
    metrics = final.pivot_table(index="run", columns="metric", values="value", aggfunc="last")
    runs = labels.merge(heads, how="left", left_on="key", right_on="run").drop(columns="run")
    runs = runs.merge(metrics, how="left", left_on="key", right_index=True)
    runs["status"] = runs["status"].astype(object).fillna("missing")
    traced = wanted[wanted["epoch"].notna()][["run", "epoch", "metric", "value"]]
    return Results(runs, labels.merge(traced, left_on="key", right_on="run").drop(columns="run"))


def mean_over_seeds(runs: pd.DataFrame, by: Sequence[str], metric: str) -> pd.DataFrame:
    """Mean and spread of a metric for every combination of `by`: columns mean, sd, seeds, runs, wanted, status.

    Data sets are averaged within each seed first; `sd` is over seeds, so it is the noise of training and not the
    difference between data sets. `runs` of `wanted` have the metric; `status` is "undefined" where no run can exist.
    """
    rows = []
    for values, group in runs.groupby(list(by), sort=False, dropna=False):
        found = group[metric].dropna() if metric in group else group["status"].iloc[:0]
        per_seed = group.loc[found.index].groupby("seed")[metric].mean() if len(found) else pd.Series(dtype=float)
        rows.append(
            {
                **dict(zip(by, values, strict=True)),
                "mean": per_seed.mean() if len(per_seed) else float("nan"),
                "sd": per_seed.std() if len(per_seed) > 1 else float("nan"),
                "seeds": len(per_seed),
                "runs": len(found),
                "wanted": len(group),
                "status": _status(group),
            }
        )
    return pd.DataFrame(rows, columns=[*by, "mean", "sd", "seeds", "runs", "wanted", "status"])


def _status(group: pd.DataFrame) -> str:
    """One word for several runs: what most needs saying."""
    states = set(group["status"])
    for state in ("missing", "failed"):
        if state in states:
            return state
    return "undefined" if states == {"undefined"} else "done"
