"""How much of several yes-or-no labels per sample a logistic regression reads from frozen features."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from icone.errors import InputError
from icone.evaluation.inputs import Features, FloatArray
from icone.evaluation.probes import fit_logistic, standardized_parts

CHANCE = 0.5
"""AUROC of scores that say nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelScore:
    """How well one label is told from its absence."""

    auroc: float
    average_precision: float
    positives: int
    """Test samples that have it."""
    train_positives: int


@dataclass(frozen=True, kw_only=True, eq=False)
class MultilabelResult:
    """Scores of one-vs-rest regressions on the test part; `float(result)` is the mean AUROC."""

    auroc: float
    """Area under the ROC curve, mean over labels."""
    average_precision: float
    """Area under the precision-recall curve (average precision), mean over labels."""
    per_label: dict[str, LabelScore]
    scores: FloatArray
    present: npt.NDArray[np.bool_]
    """Scores and truth of the test samples for these labels, (n, labels): what two encoders are compared by."""
    train_samples: int
    note: str | None = None

    def __float__(self) -> float:
        return self.auroc

    def to_json(self) -> dict[str, Any]:
        return {
            "auroc": self.auroc,
            "average_precision": self.average_precision,
            "per_label": {name: vars(score) for name, score in self.per_label.items()},
            "samples": {"train": self.train_samples, "test": len(self.scores)},
            "note": self.note,
        }


def multilabel_probe(
    train_x: Features, train_y: Sequence[Collection[str]], test_x: Features, test_y: Sequence[Collection[str]]
) -> MultilabelResult:
    """Logistic regression for every label on its own (one-vs-rest), on standardised features.

    train_y, test_y: the labels that each sample has. A label that all or none of the samples of a part have cannot be
    scored, and is left out with a note.

    >>> x, y = [[0.0], [0.1], [0.9], [1.0]], [{"a"}, {"a"}, {"b"}, {"a", "b"}]
    >>> float(multilabel_probe(x, y, x, y)) > 0.8
    True
    """
    train, test = standardized_parts(train_x, test_x)
    if len(train_y) != len(train) or len(test_y) != len(test):
        given = f"{len(train_y)}, {len(test_y)}"
        raise InputError(f"give the labels of all {len(train)} and {len(test)} samples, not {given}")
    notes: list[str] = []

    def scores(name: str, known: npt.NDArray[np.bool_]) -> FloatArray:
        model, warned = fit_logistic(train, known.astype(np.int64))
        notes.extend(f"{name}: {sentence}" for sentence in warned)
        decided: FloatArray = model.decision_function(test)
        return decided

    return multilabel_result(train_y, test_y, scores, notes)


def multilabel_result(
    train_y: Sequence[Collection[str]],
    test_y: Sequence[Collection[str]],
    scores_of: Callable[[str, npt.NDArray[np.bool_]], FloatArray],
    notes: list[str],
) -> MultilabelResult:
    """The scores of any classifier of labels.

    `scores_of(label, known)` gives a score of every test sample for one label; `known` says which training samples
    have it. It may add to `notes`.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    names, known, truth = _presence(train_y, test_y)
    usable = _usable(known, truth)
    if not usable:
        raise InputError("no label is there and absent in both the training and the test part: nothing can be scored")
    scores = np.zeros((len(truth), len(usable)))
    per_label = {}
    for column, i in enumerate(usable):
        scores[:, column] = scores_of(names[i], known[:, i])
        per_label[names[i]] = LabelScore(
            auroc=float(roc_auc_score(truth[:, i], scores[:, column])),
            average_precision=float(average_precision_score(truth[:, i], scores[:, column])),
            positives=int(truth[:, i].sum()),
            train_positives=int(known[:, i].sum()),
        )
    left_out = [name for i, name in enumerate(names) if i not in usable]
    if left_out:
        notes.append(f"left out, because all or none of the training or test samples have it: {', '.join(left_out)}")
    return MultilabelResult(
        auroc=float(np.mean([score.auroc for score in per_label.values()])),
        average_precision=float(np.mean([score.average_precision for score in per_label.values()])),
        per_label=per_label,
        scores=scores,
        present=truth[:, usable],
        train_samples=len(known),
        note="; ".join(notes) or None,
    )


def usable_labels(train_y: Sequence[Collection[str]], test_y: Sequence[Collection[str]]) -> list[str]:
    """The labels that can be learned and scored: in both parts some samples have them, and some have not.

    >>> usable_labels([{"a"}, {"a", "b"}], [{"a"}, {"b"}])
    ['b']
    """
    names, known, truth = _presence(train_y, test_y)
    return [names[i] for i in _usable(known, truth)]


def mean_auroc(result: MultilabelResult | None, labels: Sequence[str]) -> float:
    """The mean AUROC over these labels; those that a result does not score, because nothing told them, count as chance.

    Few labelled samples may have none of a rare label. Their mean over the others alone would be that of other labels.
    """
    scored = {} if result is None else result.per_label
    return float(np.mean([scored[name].auroc if name in scored else CHANCE for name in labels]))


Presence = npt.NDArray[np.bool_]


def _presence(
    train_y: Sequence[Collection[str]], test_y: Sequence[Collection[str]]
) -> tuple[list[str], Presence, Presence]:
    """All labels, and which samples of both parts have which: (samples, labels)."""
    names = sorted({name for labels in (*train_y, *test_y) for name in labels})
    known, truth = (
        np.array([[n in set(y) for n in names] for y in part], dtype=bool).reshape(len(part), len(names))
        for part in (train_y, test_y)
    )
    return names, known, truth


def _usable(known: Presence, truth: Presence) -> list[int]:
    return [i for i in range(known.shape[1]) if all(0 < part[:, i].sum() < len(part) for part in (known, truth))]
