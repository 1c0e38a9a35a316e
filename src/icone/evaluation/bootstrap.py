"""Bootstrap intervals over test samples: the percentiles of a score on samples drawn again with replacement.

Efron and Tibshirani 1993, An Introduction to the Bootstrap. The draws are seeded, so that a score always has the same
interval. Test samples are drawn one by one: where groups are large, the true interval is wider.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from icone.evaluation.inputs import FloatArray

DRAWS = 1000
LEVEL = 0.95
SEED = 0

Interval = tuple[float, float]


def recall_interval(right: npt.NDArray[np.int64], support: npt.NDArray[np.int64]) -> Interval:
    """The interval of the balanced accuracy, from test samples that are right and all test samples, by class (C,).

    Every class is drawn again by itself, with as many samples as it has (a stratified bootstrap), so its hits are
    binomial. Draws from all samples miss a rare class now and then, and the mean over the others is another score.

    >>> recall_interval(np.array([5, 5]), np.array([5, 5]))
    (1.0, 1.0)
    """
    right, support = right[support > 0], support[support > 0]
    hits = np.random.default_rng(SEED).binomial(support, right / support, size=(DRAWS, len(support)))
    return percentiles((hits / support).mean(axis=1))


def score_interval(score: Callable[[npt.NDArray[np.int64]], float | None], samples: int) -> Interval | None:
    """The interval of any score of test samples, which gets the positions that are drawn; None where it has none."""
    rng = np.random.default_rng(SEED)
    found = [score(rng.integers(samples, size=samples)) for _ in range(DRAWS)]
    values = np.array([value for value in found if value is not None])
    return percentiles(values) if len(values) else None


def percentiles(scores: FloatArray) -> Interval:
    """The middle 95 % of the scores of all draws."""
    low, high = np.quantile(scores, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
