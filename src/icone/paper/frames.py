"""From the results table to the frame of an experiment, and from there to means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from icone.paper.spec import Cell


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
