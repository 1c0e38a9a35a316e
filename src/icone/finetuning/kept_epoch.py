"""Whether the epoch that fine-tuning keeps was chosen by luck: by a handful of validation samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from icone.data.targets import Task
from icone.finetuning.holdout import FEWEST

FEW = 10
"""Validation samples of a class: of fewer, each is worth more than a tenth of its recall."""
EARLY = 0.25
"""Share of the epochs that were trained: one of these is an early one."""


def lucky_epoch(task: Task, labels: Sequence[str], history: Sequence[dict[str, Any]], kept: int) -> str:
    """What to say of a kept epoch (from 0) that few validation samples with these labels have chosen, or nothing.

    Of classes it is said where the kept epoch is not the last one, and either some class has fewer than `FEW`
    validation samples, or an early epoch leads the last one by no more than one sample. Of numbers and several labels
    it is said where there are fewer samples than the usual part has.

    >>> rows = [{"val_balanced_accuracy": 0.6}, {"val_balanced_accuracy": 0.5}]
    >>> lucky_epoch("classification", ["a"] * 30 + ["b"] * 2, rows, kept=0).split(". ")[1]
    'It leads the last epoch by 10.0 points of balanced accuracy, and each of the 2 of class b is worth 25.0 points'
    """
    if not labels or kept == len(history) - 1:
        return ""
    chosen = f"few validation samples chose epoch {kept + 1} of {len(history)}"
    if task != "classification":
        return f"{chosen}: there are {len(labels)}" if len(labels) < FEWEST else ""
    counts = Counter(labels)
    rarest = min(counts, key=lambda name: (counts[name], name))
    worth = 1 / (len(counts) * counts[rarest])
    lead = history[kept]["val_balanced_accuracy"] - history[-1]["val_balanced_accuracy"]
    is_early = kept + 1 <= EARLY * len(history)
    if counts[rarest] >= FEW and not (is_early and lead <= worth + 1e-9):
        return ""
    number = counts[rarest]
    one = f"the only one of class {rarest}" if number == 1 else f"each of the {number} of class {rarest}"
    return (
        f"{chosen}. It leads the last epoch by {100 * lead:.1f} points of balanced accuracy, and {one} is worth "
        f"{100 * worth:.1f} points"
    )


def way_out(*, given: bool) -> str:
    """What to do about it; `given` where the data itself says which samples validate."""
    if given:
        return "Another epoch may be better: assign more samples to the part val of the data"
    return (
        "Another epoch may be better: --val-fraction=0 trains all epochs with all labels, and keeps the last; more "
        "labels, or a larger --val-fraction, choose with more certainty"
    )
