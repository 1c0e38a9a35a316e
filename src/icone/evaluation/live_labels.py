"""Probes while a run trains: how well labels are read from the few features that the live probe has anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from icone.evaluation.inputs import FloatArray
from icone.evaluation.metrics import Array

PENALTY = 0.1
"""Of the ridge regression, per feature: with it the gram matrix of standardised features is well conditioned."""
NEIGHBOURS = 5
FEWEST = 50
"""Labelled samples below which there is no score: of 30 samples of six classes, half of them to learn from, it would
be off by ten points and more, and a newcomer would take it for a verdict."""

Codes = npt.NDArray[np.int64]


class LabelProbe:
    """A linear and a kNN probe of features (n, V, d), each trained on one half of the samples and tested on the other.

    Every sample is tested once. The linear probe is a ridge regression to the classes, one column each, in closed form:
    a logistic regression, as `icone evaluate` has it, would take longer than the rest of the live probe. Both see the
    means over the views. Scores are balanced accuracies; without labels of two classes there are none.
    """

    def __init__(self, codes: Codes, groups: Sequence[str | None] | None = None) -> None:
        """`codes`: a class per sample, -1 where there is none; no group is on both sides."""
        halves = split_in_halves(codes, groups)
        counts = [np.bincount(codes[halves == half], minlength=codes.max(initial=0) + 1) for half in (0, 1)]
        usable = np.flatnonzero((counts[0] > 0) & (counts[1] > 0))
        self.rows = np.flatnonzero(np.isin(codes, usable))
        if len(usable) < 2 or len(self.rows) < FEWEST:
            self.rows = self.rows[:0]
        self.codes = np.searchsorted(usable, codes[self.rows])
        self.halves = halves[self.rows]

    @classmethod
    def without(cls) -> Self:
        """A probe of nothing."""
        return cls(np.array([], dtype=np.int64))

    def __call__(self, features: Array) -> dict[str, float]:
        """Scores by the names of the table of metrics; nothing where there is nothing to read."""
        if not len(self.rows):
            return {}
        x = features[self.rows].mean(axis=1).astype(np.float64)
        linear, near = np.empty_like(self.codes), np.empty_like(self.codes)
        for half in (0, 1):
            train, test = self.halves != half, self.halves == half
            known, asked = _standardized(x[train], x[test])
            linear[test] = ridge(known, self.codes[train], asked)
            near[test] = vote(known, self.codes[train], asked)
        return {"live_linear": self._score(linear), "live_knn": self._score(near)}

    def _score(self, predicted: Codes) -> float:
        right = predicted == self.codes
        return float(np.mean([right[self.codes == code].mean() for code in np.unique(self.codes)]))


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


def ridge(known: FloatArray, codes: Codes, asked: FloatArray) -> Codes:
    """The classes of `asked` (m, d) by a ridge regression of the classes of `known` (n, d): A (K + λ)⁻¹ Y, K = X Xᵀ."""
    classes = np.eye(codes.max() + 1)[codes]
    offset = classes.mean(axis=0)
    gram = known @ known.T + PENALTY * known.shape[1] * np.eye(len(known))
    outputs = asked @ (known.T @ np.linalg.solve(gram, classes - offset)) + offset
    found: Codes = outputs.argmax(axis=1)
    return found


def vote(known: FloatArray, codes: Codes, asked: FloatArray) -> Codes:
    """The classes of `asked` by most of the nearest in `known`; of a tie, the class that comes first."""
    squares = (known**2).sum(axis=1) - 2 * asked @ known.T  # and a constant of each row
    nearest = codes[np.argsort(squares, axis=1, kind="stable")[:, :NEIGHBOURS]]
    votes = (nearest[:, :, None] == np.arange(codes.max() + 1)).sum(axis=1)
    found: Codes = votes.argmax(axis=1)
    return found


def _standardized(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    std = train.std(axis=0)
    std = np.where(std > 0, std, 1.0)
    return (train - train.mean(axis=0)) / std, (test - train.mean(axis=0)) / std
