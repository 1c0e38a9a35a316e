"""What `icone.evaluate` keeps beside its result: features, and what the main probe says of the test samples."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icone.api.summaries import PROBES
from icone.data.targets import Task
from icone.errors import InputError
from icone.evaluation.assessment import Partition, Result
from icone.evaluation.multilabel import MultilabelResult
from icone.evaluation.paired_bootstrap import Predictions
from icone.run import Run

PREDICTED = ("test_rows", "predicted")
"""Arrays of features.npz: the rows of the test samples, and what the main probe says of each."""


def evaluate_command(run: Run) -> str:
    """What to type into a shell to evaluate a run.

    >>> evaluate_command(Run("my runs/a"))
    "icone evaluate 'my runs/a'"
    """
    return shlex.join(["icone", "evaluate", str(run.folder)])


def saved_predictions(probes: Mapping[str, Result], partition: Partition | None) -> dict[str, Any]:
    """The arrays of features.npz that say what the main probe answers; none without probes."""
    if partition is None:
        return {}
    main = probes[PROBES[partition.task]]
    if isinstance(main, MultilabelResult):
        names = {"predicted_labels": np.array(list(main.per_label), dtype=str)}
        return {"test_rows": partition.test, "predicted": main.scores, **names}
    return {"test_rows": partition.test, "predicted": main.predicted}


def read_arrays(run: Run, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Arrays of features.npz by name; those that are optional where there are any."""
    if not run.features_file.is_file():
        raise InputError(f"{run.folder} holds no features: run `{evaluate_command(run)}` first")
    try:
        with run.features_file.open("rb") as opened, np.load(opened) as file:
            return {name: file[name] for name in (*needed, *optional) if name in needed or name in file}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {run.features_file} ({error}): run `{evaluate_command(run)}` again") from error


def read_predictions(run: Run, task: Task) -> Predictions | None:
    """The test samples in the order of their names, with what the main probe says; None in results without it."""
    saved = read_arrays(run, ("ids", "labels", "splits"), ("groups", *PREDICTED, "predicted_labels"))
    if not set(PREDICTED) <= set(saved):
        return None
    rows = saved["test_rows"]
    if len(rows) != len(saved["predicted"]) or not np.isin(rows, np.arange(len(saved["ids"]))).all():
        raise InputError(f"{run.features_file} is damaged: run `{evaluate_command(run)}` again")
    ids = np.array([f"{split}/{name}" for split, name in zip(saved["splits"], saved["ids"], strict=True)])[rows]
    order = np.argsort(ids, kind="stable")
    return Predictions(
        task=task,
        ids=ids[order].tolist(),
        labels=saved["labels"][rows][order],
        groups=saved["groups"][rows][order] if "groups" in saved else np.full(len(rows), ""),
        predicted=saved["predicted"][order],
        names=tuple(saved.get("predicted_labels", np.array([], str)).tolist()),
    )
