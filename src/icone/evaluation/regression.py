"""How much of a number (an age, a size, a dose) a simple regression reads from frozen features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from icone.errors import InputError
from icone.evaluation.bootstrap import Interval, group_codes, score_interval
from icone.evaluation.inputs import Features, FloatArray, finite_array
from icone.evaluation.probes import Labels, standardized_parts

PENALTIES = np.logspace(-2, 6, 17)
"""Penalties of the ridge regression to choose from: from almost none to almost constant predictions."""
FOLDS = 5
KEPT_POINTS = 2000
"""Test samples whose true and predicted numbers a result keeps for the picture, at random where there are more."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionResult:
    """Scores of one regression on the test part; `float(result)` is R²."""

    r2: float
    """Share of the variance that is explained: 1 − Σ (y − ŷ)² / Σ (y − ȳ)²; below 0 where the mean predicts better."""
    interval: Interval | None
    """95 % bootstrap interval of R², over test samples or their groups; None of one group alone."""
    spearman: float | None
    """Rank correlation of true and predicted numbers; None where all predictions are the same."""
    mean_absolute_error: float
    true: FloatArray
    predicted: FloatArray
    """Of the test samples, (n,)."""
    train_samples: int
    groups: int | None = None
    """Groups of the test samples, where some have the same: they are drawn as a whole."""
    note: str | None = None

    def __float__(self) -> float:
        return self.r2

    def to_json(self) -> dict[str, Any]:
        kept: Any = slice(None)
        if len(self.true) > KEPT_POINTS:  # folders come one after another: the first rows would be of a few of them
            kept = np.sort(np.random.default_rng(0).choice(len(self.true), KEPT_POINTS, replace=False))
        return {
            "r2": self.r2,
            "interval": None if self.interval is None else list(self.interval),
            "groups": self.groups,
            "spearman": self.spearman,
            "mean_absolute_error": self.mean_absolute_error,
            "samples": {"train": self.train_samples, "test": len(self.true)},
            "true": [float(f"{value:.6g}") for value in self.true[kept]],
            "predicted": [float(f"{value:.6g}") for value in self.predicted[kept]],
            "note": self.note,
        }


def ridge_probe(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    *,
    groups: Sequence[str] | None = None,
    test_groups: Sequence[str] | None = None,
) -> RegressionResult:
    """Ridge regression on standardised features (scikit-learn's RidgeCV).

    The penalty is chosen on the training part: by leaving out one sample at a time, or with `groups` (one per training
    sample) whole groups in five folds. `test_groups` (one per test sample) are drawn as a whole for the interval.

    >>> x, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 3.0]
    >>> round(float(ridge_probe(x, y, x, y)), 3)
    1.0
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GroupKFold

    train, test = standardized_parts(train_x, test_x)
    train_y, test_y = _numbers(train_y, len(train), "training"), _numbers(test_y, len(test), "test")
    folds = None
    if groups is not None and (count := len(set(groups))) > 1:
        folds = list(GroupKFold(min(FOLDS, count)).split(train, groups=list(groups)))
    scoring = None if folds is None else "neg_mean_squared_error"  # without folds it is the default, and faster
    model = RidgeCV(alphas=PENALTIES, cv=folds, scoring=scoring).fit(train, train_y)
    return regression_result(model.predict(test), test_y, len(train), test_groups)


def knn_regressor(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    k: int = 5,
    *,
    test_groups: Sequence[str] | None = None,
) -> RegressionResult:
    """Mean of the k nearest training samples, by Euclidean distance between standardised features.

    >>> x, y = [[0.0], [0.1], [2.0], [2.1]], [0.0, 0.0, 1.0, 1.0]
    >>> float(knn_regressor(x, y, x, y, k=2))
    1.0
    """
    from sklearn.neighbors import KNeighborsRegressor

    train, test = standardized_parts(train_x, test_x)
    train_y, test_y = _numbers(train_y, len(train), "training"), _numbers(test_y, len(test), "test")
    if not 1 <= k <= len(train):
        raise InputError(f"k must lie between 1 and the number of training samples, {len(train)}, got {k}")
    predicted = KNeighborsRegressor(k).fit(train, train_y).predict(test)
    return regression_result(predicted, test_y, len(train), test_groups)


def _numbers(y: Labels, samples: int, part: str) -> FloatArray:
    try:
        numbers = finite_array(y, f"{part} labels")
    except (TypeError, ValueError) as error:
        raise InputError(f"{part} labels must be numbers: {error}") from error
    if numbers.shape != (samples,):
        raise InputError(f"{part} labels must be one per sample, shape ({samples},), got {numbers.shape}")
    if numbers.min() == numbers.max():
        raise InputError(f"all {part} labels are {numbers[0]:g}: a regression needs numbers that differ")
    return numbers


def regression_result(
    predicted: FloatArray, true: FloatArray, train_samples: int, test_groups: Sequence[str] | None = None
) -> RegressionResult:
    """The scores of predicted numbers against the true ones, (n,) each, whatever predicts them."""

    def r2(rows: Any) -> float | None:
        spread = ((true[rows] - true[rows].mean()) ** 2).sum()
        return None if spread == 0 else float(1 - ((true[rows] - predicted[rows]) ** 2).sum() / spread)

    score, groups = r2(slice(None)), group_codes(test_groups)
    assert score is not None
    return RegressionResult(
        r2=score,
        interval=score_interval(r2, len(true), groups),
        groups=None if groups is None else len(set(groups.tolist())),
        spearman=_rank_correlation(true, predicted),
        mean_absolute_error=float(np.abs(true - predicted).mean()),
        true=true,
        predicted=predicted,
        train_samples=train_samples,
    )


def _rank_correlation(true: FloatArray, predicted: FloatArray) -> float | None:
    from scipy.stats import rankdata

    ranks = rankdata(true), rankdata(predicted)
    return None if np.ptp(ranks[1]) == 0 else float(np.corrcoef(*ranks)[0, 1])
