"""Probes while a run trains: how well labels are read from the few features that the live probe has anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from icone.data import Dataset
from icone.data.targets import Task, label_set
from icone.evaluation.bootstrap import group_codes
from icone.evaluation.comparison import Difference, auroc_parts, class_weights, paired_error
from icone.evaluation.inputs import FloatArray
from icone.evaluation.metrics import UNTRAINED, Array
from icone.terminal import counted, either

PENALTY = 0.1
"""Of the ridge regression, per feature: with it the gram matrix of standardised features is well conditioned."""
NEIGHBOURS = 5
FEWEST = 50
"""Labelled samples below which there is no score: of 30 samples of six classes, half of them to learn from, it would
be off by ten points and more, and a newcomer would take it for a verdict."""
FIT = 2.0
"""By what the variance of a difference is multiplied: the half that a probe learns from varies as much as the one that
it is tested on, and the paired error knows the latter only. Without it, encoders that differ by chance were told from
one another in one measurement of ten by classes, and in one of five by numbers or several labels."""
NAMES: dict[Task, tuple[str, str]] = {
    "classification": ("live_linear", "live_knn"),
    "regression": ("live_ridge", "live_knn_regressor"),
    "multilabel": ("live_multilabel", "live_knn_multilabel"),
}
"""What the table of metrics calls the scores of the linear and of the kNN probe."""
ERROR = "_error"
"""Behind the name of a score: the standard error of its difference to that of the untrained encoder."""
Said = Mapping[str, FloatArray]
"""What each probe says about the samples, by the name of its score: one column (n, columns) for every target."""

Codes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


class LabelProbe:
    """A linear and a kNN probe of features (n, V, d), each trained on one half of the samples and tested on the other.

    Every sample is tested once. The linear probe is a ridge regression in closed form: to the number, or to one column
    of 0 and 1 for every class or label. A logistic regression, as `icone evaluate` has it, would take longer than the
    rest of the live probe. Both see the means over the views. Scores are the balanced accuracy of classes, R² of
    numbers, and of several labels the AUROC, mean over labels and halves.
    """

    def __init__(self, task: Task, targets: FloatArray, groups: Sequence[str | None] | None = None) -> None:
        """`targets`: (n, columns), of `label_targets`; a row of NaN has no label. No group is on both sides."""
        self.task: Task = task
        halves = split_in_halves(_strata(task, targets), groups)
        usable = _usable(task, targets, halves)
        rows = np.flatnonzero(halves >= 0)
        if task == "classification":  # samples of other classes cannot be told
            rows = rows[targets[rows][:, usable].any(axis=1)]
        self.labelled = int((halves >= 0).sum())
        fewest_columns = 2 if task == "classification" else 1
        self.rows = rows if len(usable) >= fewest_columns and len(rows) >= FEWEST else rows[:0]
        self.targets, self.halves = targets[self.rows][:, usable], halves[self.rows]
        self.groups = None if groups is None else group_codes([groups[row] or "" for row in self.rows])

    @classmethod
    def without(cls) -> Self:
        """A probe of nothing."""
        return cls("classification", np.empty((0, 0)))

    def why_no_score(self, available: int) -> str:
        """Why there is no score, of so many training samples with a label; nothing where there is one or no label."""
        if len(self.rows) or not available:
            return ""
        if available < FEWEST:
            have = either(available, "has", "have")
            why = f"{counted(available, 'training sample')} {have} a label, and a score needs {FEWEST}"
        elif self.labelled < FEWEST:
            looked_at = f"the live probe looks at {counted(self.labelled, 'sample')} with a label"
            way_out = "With an interval that you name (--probe-every=5) it looks at 128, whatever time that takes"
            why = f"{looked_at}, and a score needs {FEWEST}. {way_out}"
        else:
            why = f"the {self.labelled} samples with a label have too few of each class, or are labelled alike"
        return f"no probe of labels while training: {why}. `icone evaluate` probes all of them afterwards"

    def read(self, features: Array) -> Said:
        """What the probes say about each sample; nothing where there is nothing to read."""
        if not len(self.rows):
            return {}
        x = features[self.rows].mean(axis=1).astype(np.float64)
        linear, near = np.empty_like(self.targets), np.empty_like(self.targets)
        for half in (0, 1):
            train, test = self.halves != half, self.halves == half
            known, asked = _standardized(x[train], x[test])
            linear[test] = ridge(known, self.targets[train], asked)
            near[test] = mean_of_nearest(known, self.targets[train], asked)
        return dict(zip(NAMES[self.task], (linear, near), strict=True))

    def scores(self, said: Said) -> dict[str, float]:
        """The score of every probe, by its name in the table of metrics."""
        return {name: self._score(answers) for name, answers in said.items()}

    def errors(self, said: Said, before: Said) -> dict[str, float]:
        """The standard error of every score minus that of another encoder, paired over the samples (`comparison`)."""
        return {f"{name}{ERROR}": math.sqrt(FIT) * self._error(answers, before[name]) for name, answers in said.items()}

    def _score(self, said: FloatArray) -> float:
        if self.task == "classification":
            return float(self._weights() @ self._right(said))
        if self.task == "regression":
            return float(1 - ((self.targets - said) ** 2).sum() / self._variation())
        parts = [(self.targets[self.halves == half], said[self.halves == half]) for half in (0, 1)]
        columns = range(self.targets.shape[1])
        return float(np.mean([auroc(true[:, i] > 0, scores[:, i]) for true, scores in parts for i in columns]))

    def _error(self, said: FloatArray, before: FloatArray) -> float:
        if self.task == "classification":
            weights = self._weights()
            return paired_error(weights * (self._right(said) - self._right(before)), weights, self.groups)
        if self.task == "regression":
            changes = (((self.targets - before) ** 2 - (self.targets - said) ** 2) / self._variation()).ravel()
            return paired_error(changes, changes, self.groups)
        changes = np.empty(len(self.rows))
        for half in (self.halves == 0, self.halves == 1):
            present = self.targets[half] > 0
            now, then = (auroc_parts(scores[half], present)[1] for scores in (said, before))
            changes[half] = (now - then) / 2
        return paired_error(changes, changes, self.groups)

    def _right(self, said: FloatArray) -> FloatArray:
        """1 where the class is named, else 0, (n,)."""
        right: FloatArray = (said.argmax(axis=1) == self.targets.argmax(axis=1)).astype(np.float64)
        return right

    def _weights(self) -> FloatArray:
        """The weight of every sample in the balanced accuracy, (n,)."""
        return class_weights(self.targets.argmax(axis=1))

    def _variation(self) -> float:
        return float(((self.targets - self.targets.mean()) ** 2).sum())


def differences(probed: Mapping[str, float]) -> dict[str, Difference]:
    """What the scores of a line of the history say about training, by their names; nothing in lines of version 0.1."""
    found = {}
    for name in (name for names in NAMES.values() for name in names if f"{name}{ERROR}" in probed):
        scores, samples = (probed[f"{UNTRAINED}{name}"], probed[name]), int(probed["instances"])
        floor = 0.0 if name in NAMES["regression"] else -math.inf
        groups = int(probed["groups"]) if "groups" in probed else None
        found[name] = Difference(*scores, probed[f"{name}{ERROR}"], samples, floor, groups)
    return found


def label_targets(dataset: Dataset, rows: Rows) -> FloatArray:
    """What a probe is to say about these rows, (n, columns), NaN where a row has no label.

    One column of 0 and 1 for every class, or for every label of a sample that can have several; or one of numbers.
    """
    task = dataset.source.task
    if task == "classification":
        codes = dataset.labels.numpy()[rows]
        if not dataset.class_names:
            return np.empty((len(rows), 0))
        return np.where(codes[:, None] < 0, np.nan, np.eye(len(dataset.class_names))[codes])
    given = dataset.source.labels or (None,) * len(dataset.source)
    texts = [given[dataset.positions[row]] for row in rows]
    if task == "regression":
        return np.array([[np.nan if text is None else float(text)] for text in texts])
    sets = [None if text is None else label_set(text) for text in texts]
    names = sorted({name for found in sets if found is not None for name in found})
    found = [[np.nan] * len(names) if own is None else [float(name in own) for name in names] for own in sets]
    return np.array(found, dtype=np.float64).reshape(len(rows), len(names))


def labelled(dataset: Dataset) -> npt.NDArray[np.bool_]:
    """Which rows of a data set have a label, whatever the task."""
    if dataset.source.labels is None:
        return np.zeros(len(dataset), dtype=bool)
    return np.array([dataset.source.labels[position] is not None for position in dataset.positions], dtype=bool)


def _strata(task: Task, targets: FloatArray) -> Codes:
    """What the halves should have alike, a code per row: classes, order of numbers, sets of labels; -1 without one."""
    known = ~np.isnan(targets).any(axis=1) if targets.shape[1] else np.zeros(len(targets), dtype=bool)
    codes = np.full(len(targets), -1, dtype=np.int64)
    if task == "classification":
        codes[known] = targets[known].argmax(axis=1) if known.any() else 0
    elif known.any():
        codes[known] = np.unique(targets[known], axis=0, return_inverse=True)[1].reshape(-1)
    return codes


def _usable(task: Task, targets: FloatArray, halves: Codes) -> Rows:
    """Columns that can be learned and tested in both halves."""
    parts = [targets[halves == half] for half in (0, 1)]
    if not all(map(len, parts)):
        return np.array([], dtype=np.int64)
    if task == "classification":
        return np.flatnonzero(np.all([part.any(axis=0) for part in parts], axis=0))
    return np.flatnonzero(np.all([part.min(axis=0) < part.max(axis=0) for part in parts], axis=0))


def split_in_halves(codes: Codes, groups: Sequence[str | None] | None = None) -> Codes:
    """0 or 1 for every sample, -1 without a label: groups of a class take turns; without a group a sample is its own.

    >>> split_in_halves(np.array([0, 0, 1, 1, 0])).tolist()
    [0, 1, 1, 0, 0]
    """
    own = groups or [None] * len(codes)
    names = [f"group {group}" if group is not None else f"sample {row:09d}" for row, group in enumerate(own)]
    turn: dict[str, int] = {}
    for _, name in sorted({(int(code), name) for code, name in zip(codes, names, strict=True) if code >= 0}):
        turn.setdefault(name, len(turn) % 2)
    return np.array([turn[name] if code >= 0 else -1 for code, name in zip(codes, names, strict=True)], dtype=np.int64)


def ridge(known: FloatArray, targets: FloatArray, asked: FloatArray) -> FloatArray:
    """The targets of `asked` (m, d) by a ridge regression of those of `known` (n, d): A Xᵀ (K + λ)⁻¹ Y, K = X Xᵀ."""
    offset = targets.mean(axis=0)
    gram = known @ known.T + PENALTY * known.shape[1] * np.eye(len(known))
    outputs: FloatArray = asked @ (known.T @ np.linalg.solve(gram, targets - offset)) + offset
    return outputs


def mean_of_nearest(known: FloatArray, targets: FloatArray, asked: FloatArray) -> FloatArray:
    """The targets of `asked` as means over the nearest in `known`: of classes, the shares of their votes."""
    squares = (known**2).sum(axis=1) - 2 * asked @ known.T  # and a constant of each row
    nearest = np.argsort(squares, axis=1, kind="stable")[:, :NEIGHBOURS]
    means: FloatArray = targets[nearest].mean(axis=1)
    return means


def auroc(present: npt.NDArray[np.bool_], scores: FloatArray) -> float:
    """The share of pairs of a sample with a label and one without it that scores order rightly; a tie is half a pair.

    >>> auroc(np.array([False, True, True]), np.array([0.1, 0.1, 0.9]))
    0.75
    """
    above = scores[present][:, None] - scores[~present][None]
    return float((above > 0).mean() + 0.5 * (above == 0).mean())


def _standardized(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    std = train.std(axis=0)
    std = np.where(std > 0, std, 1.0)
    return (train - train.mean(axis=0)) / std, (test - train.mean(axis=0)) / std
