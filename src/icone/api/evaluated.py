"""What `icone.evaluate` and `icone.finetune` keep beside their result: above all what is said of each test sample."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icone.api.partition import EvaluationData
from icone.api.summaries import PROBES
from icone.data.targets import Task
from icone.errors import InputError
from icone.evaluation.assessment import Partition, Result
from icone.evaluation.multilabel import MultilabelResult
from icone.evaluation.paired_bootstrap import Predictions
from icone.files import replacing
from icone.run import TESTED, Run

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


def write_tested(folder: Path, samples: EvaluationData, partition: Partition, result: Result) -> None:
    """Keep what a fine-tuned network says of each test sample, in the form of features.npz."""
    rows = partition.test
    answers = saved_predictions({PROBES[partition.task]: result}, partition)
    with replacing(folder / TESTED) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            ids=np.array(samples.ids)[rows],
            labels=partition.labels[rows],
            groups=samples.groups[rows],
            splits=samples.splits[rows],
            **answers | {"test_rows": np.arange(len(rows))},
        )


def finetuned_result(run: Run) -> dict[str, Any]:
    """The result.json of a folder of `icone finetune`, which must be finished; settings are flags in it."""
    if not run.result_file.is_file():
        raise InputError(f"{run.folder} is not finished: give `icone finetune` the same words and --resume first")
    return run.read_json("result.json")


def read_arrays(run: Run, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Arrays of features.npz by name, of a fine-tuning those of tested.npz; optional ones where there are any."""
    path, again = _arrays_file(run)
    if not path.is_file():
        raise InputError(f"{run.folder} holds no features: run `{evaluate_command(run)}` first")
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return {name: file[name] for name in (*needed, *optional) if name in needed or name in file}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path} ({error}): {again}") from error


def _arrays_file(run: Run) -> tuple[Path, str]:
    """Where the arrays of a run are, and the way out where they are missing or damaged."""
    if run.is_finetuned:
        return run.folder / TESTED, "fine-tune again with another --out"
    return run.features_file, f"run `{evaluate_command(run)}` again"


def read_predictions(run: Run, task: Task) -> Predictions | None:
    """The test samples in the order of their names, with what is said of each; None in results without it.

    Of a pretraining it is the main probe that says it, of a fine-tuning the fine-tuned network.
    """
    path, again = _arrays_file(run)
    if run.is_finetuned and not path.is_file():  # of an earlier version
        return None
    saved = read_arrays(run, ("ids", "labels", "splits"), ("groups", *PREDICTED, "predicted_labels"))
    if not set(PREDICTED) <= set(saved):
        return None
    rows = saved["test_rows"]
    if len(rows) != len(saved["predicted"]) or not np.isin(rows, np.arange(len(saved["ids"]))).all():
        raise InputError(f"{path} is damaged: {again}")
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
