"""Bootstrap intervals over the test part: the percentiles of a score on what is drawn again with replacement.

Efron and Tibshirani 1993, An Introduction to the Bootstrap. The draws are seeded, so that a score always has the same
interval. Samples are drawn; where some are of one group (a patient, a well), whole groups are, because such samples are
right or wrong together (Field and Welsh 2007, Journal of the Royal Statistical Society B 69, 369–390).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from icone.evaluation.inputs import FloatArray

DRAWS = 1000
LEVEL = 0.95
SEED = 0
AT_ONCE = 10**6
"""Groups that are drawn at a time, over all draws: 8 MB."""

Codes = npt.NDArray[np.int64]
Interval = tuple[float, float]


def group_codes(groups: Sequence[str] | None) -> Codes | None:
    """The group of every test sample as a number; None where there are no groups, or none has two samples.

    A sample without a group ("") is one by itself.

    >>> group_codes(["p1", "", "p1", ""]).tolist(), group_codes(["p1", "p2"])
    ([0, 1, 0, 2], None)
    """
    if groups is None:
        return None
    names = [f"group {name}" if name else f"sample {row}" for row, name in enumerate(groups)]
    found, codes = np.unique(names, return_inverse=True)
    return None if len(found) == len(codes) else codes.astype(np.int64)


def recall_interval(right: Codes, support: Codes) -> Interval:
    """The interval of the balanced accuracy, from test samples that are right and all test samples, by class (C,).

    Every class is drawn again by itself, with as many samples as it has (a stratified bootstrap), so its hits are
    binomial. Draws from all samples miss a rare class now and then, and the mean over the others is another score.

    >>> recall_interval(np.array([5, 5]), np.array([5, 5]))
    (1.0, 1.0)
    """
    right, support = right[support > 0], support[support > 0]
    hits = np.random.default_rng(SEED).binomial(support, right / support, size=(DRAWS, len(support)))
    return percentiles((hits / support).mean(axis=1))


def grouped_recall_interval(right: npt.NDArray[np.bool_], labels: Codes, groups: Codes) -> Interval | None:
    """The interval of the balanced accuracy where whole groups are drawn; None where there is one group only.

    right, labels, groups (n,): whether each test sample is right, its class and its group. Groups are drawn among
    those with the same rarest class, that is the class that the fewest groups have, so that draws keep rare classes.
    A group that is alone with its rarest class is in every draw, and its samples are drawn within each class instead.
    """
    if groups.max() == 0:
        return None
    shape = int(groups.max()) + 1, int(labels.max()) + 1
    support, hits = np.zeros(shape), np.zeros(shape)
    np.add.at(support, (groups, labels), 1)
    np.add.at(hits, (groups, labels), right)
    having = (support > 0).sum(axis=0)
    rarest = np.where(support > 0, having, shape[0] + 1).argmin(axis=1)
    rng = np.random.default_rng(SEED)
    strata = [rarest == stratum for stratum in np.unique(rarest)]
    drawn = np.sum([_draw_counts(hits[rows], support[rows], rng) for rows in strata], axis=0)
    recalls = np.divide(drawn[0], drawn[1], out=np.full_like(drawn[0], np.nan), where=drawn[1] > 0)
    return percentiles(np.nanmean(recalls, axis=1))


def _draw_counts(hits: FloatArray, support: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Right and all samples by class in every draw of as many groups (groups, C) as there are: (2, DRAWS, C)."""
    groups, classes = support.shape
    drawn = np.zeros((2, DRAWS, classes))
    if groups == 1:
        share = hits[0] / np.maximum(support[0], 1)
        drawn[0], drawn[1] = rng.binomial(support[0].astype(np.int64), share, size=(DRAWS, classes)), support[0]
        return drawn
    for start in range(0, DRAWS, step := max(1, AT_ONCE // groups)):
        times = rng.multinomial(groups, np.full(groups, 1 / groups), size=min(step, DRAWS - start))
        drawn[:, start : start + step] = times @ hits, times @ support
    return drawn


def score_interval(
    score: Callable[[Codes], float | None], samples: int, groups: Codes | None = None
) -> Interval | None:
    """The interval of any score of test samples, which gets the positions that are drawn; None where it has none.

    With `groups` (samples,), whole groups are drawn; of one group alone there is no interval.
    """
    rng = np.random.default_rng(SEED)
    if groups is None:
        found = [score(rng.integers(samples, size=samples)) for _ in range(DRAWS)]
    elif groups.max() == 0:
        return None
    else:
        members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
        draws = (rng.integers(len(members), size=len(members)) for _ in range(DRAWS))
        found = [score(np.concatenate([members[group] for group in draw])) for draw in draws]
    values = np.array([value for value in found if value is not None])
    return percentiles(values) if len(values) else None


def percentiles(scores: FloatArray) -> Interval:
    """The middle 95 % of the scores of all draws."""
    low, high = np.quantile(scores, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
