"""The table of labels of a run that goes on: it may lie at another place, and gives the samples the same labels."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from icone.api.run_data import with_moved_labels
from icone.config import PretrainConfig
from icone.config_text import differences
from icone.data import Dataset
from icone.data.identity import content_digest
from icone.errors import InputError
from icone.methods import method_class
from icone.run import Run
from icone.terminal import either

CLASSES_SHOWN = 20
"""Classes that an error names, of those of a run and of those of now."""


def has_other_table(before: PretrainConfig, now: PretrainConfig) -> bool:
    """Whether both configurations have a table of labels, and not at one place."""
    if before.labels is None or now.labels is None:
        return False
    return os.path.abspath(before.labels) != os.path.abspath(now.labels)


def differences_but_place(before: PretrainConfig, now: PretrainConfig) -> list[str]:
    """The differences of two configurations, without the place of the table of labels: `check_same_labels` reads it."""
    if before.labels is not None and now.labels is not None:
        now = dataclasses.replace(now, labels=before.labels)
    return differences(before, now)


def way_to_labels(before: PretrainConfig, now: PretrainConfig) -> str:
    """What to add to a sentence about settings that differ, where the table of labels was left out; else nothing."""
    if before.labels is None or now.labels is not None:
        return ""
    moved = with_moved_labels(before, now.source).labels
    assert moved is not None
    if moved.is_file():
        return f". Its table of labels is left out: give it again, --labels={shlex.quote(moved.as_posix())}"
    gone = f"Its table of labels is left out, and is no longer at {before.labels}"
    return f". {gone}: say where it lies now with --labels=NEWTABLE.csv"


def labels_digest(train: Dataset) -> str:
    """A digest of the task, and of the label and the group of every training sample, in the order of their ids."""
    labels = train.source.labels
    of_samples = None if labels is None else [labels[position] for position in train.positions]
    by_id = sorted(zip(train.ids, of_samples or [None] * len(train), train.groups or [None] * len(train), strict=True))
    return content_digest(json.dumps([train.source.task, by_id]).encode())


def check_same_labels(
    folder: Path,
    told: dict[str, Any],
    before: PretrainConfig,
    now: PretrainConfig,
    train: Dataset,
    say: Callable[[str], None],
) -> None:
    """Refuse labels that are not those with which the training samples of a run began.

    A table at another place is always compared, because it may be another one. At the same place it may be corrected
    for the probes, but not for a method that is taught the labels. `told` is what the run says about its samples.
    """
    if not has_other_table(before, now) and not method_class(now.method).needs_labels:
        return
    known = told.get("labels_digest")
    classes = _class_texts(told.get("labels", ()), told.get("class_names", ()))
    old = dict(zip(told.get("ids", ()), classes, strict=False))  # nothing, where the record is damaged
    new = dict(zip(train.ids, _class_texts(train.labels.tolist(), train.class_names), strict=True))
    changed = [name for name in new if name in old and old[name] != new[name]]
    if not changed and known in (None, labels_digest(train)):
        if known is None:  # a run of an earlier version
            how = "by their classes alone" if old else "with nothing"
            say(f"note: {folder} has no digest of its labels, so that {_place(now)} are compared {how}")
        return
    what = "other labels or groups"
    if changed:
        have = either(len(changed), "has another label", "have other labels")
        was, is_now = (labels[changed[0]] or "no label" for labels in (old, new))
        what = f"other labels: {len(changed)} of {len(new)} samples {have}, such as {changed[0]} ({was} -> {is_now})"
    raise InputError(
        f"{folder} was trained with {_place(before)}, and {_place(now)} are {what}. Give those that it was trained "
        "with, wherever they lie now, or start anew under another --out"
    )


def check_same_classes(
    run: Run, told: dict[str, Any], now: PretrainConfig, train: Dataset, say: Callable[[str], None]
) -> None:
    """Refuse to extend a run by other classes, where its method has weights for each: they would go to another class.

    `told` is what the run says about its samples.
    """
    method = method_class(now.method)
    if not (method.needs_labels and method.keeps_classes):
        return
    if not (known := told.get("class_names")):
        say(f"note: {run.folder} does not say which classes it was taught, so that only their number is compared")
        return
    if known == list(train.class_names):
        return
    weights = f"; with --weights={shlex.quote(str(run.folder))} the new run starts from the encoder of this one"
    raise InputError(
        f"{run.folder} cannot be extended by other classes: it was taught {_listed(known)}, and the data has "
        f"{_listed(train.class_names)}. {now.method} has weights for each class, which would go to another. Start anew "
        f"under another --out{weights if run.finished else ''}"
    )


def _listed(classes: Sequence[str]) -> str:
    """The names of classes, of very many the first."""
    more = f" … ({len(classes)} classes)" if len(classes) > CLASSES_SHOWN else ""
    return ", ".join(classes[:CLASSES_SHOWN]) + more


def _place(config: PretrainConfig) -> str:
    return "the labels of its data" if config.labels is None else f"the labels of {config.labels}"


def _class_texts(labels: Any, names: Any) -> list[str | None]:
    """The class of every sample, or None."""
    return [names[label] if 0 <= label < len(names) else None for label in labels]
