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

    A draw of n samples is a draw from the 2C kinds (class, right or wrong), so all draws are one multinomial matrix,
    whatever n is. A class that a draw misses does not count in it.

    >>> recall_interval(np.array([5, 5]), np.array([5, 5]))
    (1.0, 1.0)
    """
    total = int(support.sum())
    kinds = np.concatenate([right, support - right])
    drawn = np.random.default_rng(SEED).multinomial(total, kinds / total, size=DRAWS)
    hits, misses = np.split(drawn, 2, axis=1)
    counts = hits + misses
    recalls = np.divide(hits, counts, out=np.zeros(hits.shape), where=counts > 0)
    return percentiles(recalls.sum(axis=1) / (counts > 0).sum(axis=1))


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
