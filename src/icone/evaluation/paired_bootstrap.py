"""Whether one encoder scores higher than another on the same test samples: a bootstrap of the difference, paired.

What a sample adds to the score of one encoder is set against what it adds to that of the other, so that samples which
are hard for both widen nothing. It is a wild bootstrap (Wu 1986, Annals of Statistics 14, 1261–1295): a draw turns the
sign of what a sample changed, by the toss of a coin. Draws of samples with replacement say too little of a rare class:
its only test sample is in every draw, and counts as much as all those of another class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from icone.data.targets import Task, label_set
from icone.evaluation.bootstrap import LEVEL, SEED, group_codes, percentiles
from icone.evaluation.comparison import PSEUDO_COUNT, auroc_parts, class_weights
from icone.evaluation.inputs import FloatArray
from icone.evaluation.recognition import NOTICEABLE

DRAWS = 4000
"""The ends of an interval decide between two sentences, so they hang less on chance than those of a score."""
AT_ONCE = 1024
"""Samples whose signs are drawn at a time: those of all draws take 32 MB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What the main probe of one encoder says about the test samples."""

    task: Task
    ids: list[str]
    labels: npt.NDArray[np.str_]
    """The class, the number or the labels (`a|b`) of every test sample."""
    groups: npt.NDArray[np.str_]
    """The group of every test sample, "" where there is none."""
    predicted: npt.NDArray[np.str_] | FloatArray
    """The class or the number that the probe says (n,), or its score for every label (n, labels)."""
    names: tuple[str, ...] = ()
    """The labels of these columns."""

    def parts(self) -> tuple[float, FloatArray]:
        """The score, and what every sample adds to it (n,).

        Balanced accuracy: w_i = 1 / (classes · samples of its class) where the probe is right, else 0. R²: − e_i² / Σ_j
        (y_j − ȳ)². Mean AUROC: its share of ordered pairs, over labels.
        """
        if self.task == "classification":
            weights = class_weights(self.labels)
            added: FloatArray = weights * (self.predicted == self.labels)
            return float(added.sum()), added
        if self.task == "regression":
            true = self.labels.astype(np.float64)
            lost: FloatArray = (true - self.predicted.astype(np.float64)) ** 2 / ((true - true.mean()) ** 2).sum()
            return 1 - float(lost.sum()), -lost
        sets = [label_set(text) for text in self.labels]
        present = np.array([[name in one for name in self.names] for one in sets], dtype=bool)
        return auroc_parts(self.predicted.astype(np.float64), present)


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """The score of some runs minus that of others, with a 95 % interval over test samples and seeds."""

    value: float
    low: float
    high: float
    scores: tuple[float, float]
    """The mean score of either side."""
    runs: tuple[int, int]
    """Runs on either side."""
    samples: int
    groups: int | None
    """Groups whose samples change their sign together; None where every sample does so by itself."""

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    @property
    def is_ahead(self) -> bool:
        """Whether one side is better for sure, and by a point or more."""
        return self.is_sure and abs(self.value) >= NOTICEABLE


def score_difference(
    runs: Sequence[Predictions], others: Sequence[Predictions], *, paired_seeds: bool = False
) -> ScoreDifference:
    """The score of `runs` minus that of `others`, all tested on the same samples in the same order.

        D* = mean_s D_s* + Σ_i ε_i d_i + noise

    d_i is what sample i adds to the difference and ε_i = ±1, the same for all samples of a group. D_s are the
    differences of seeds, drawn with replacement: in pairs where both sides have the same seeds (`paired_seeds`), else
    the runs of either side by themselves. Noise is what two samples, or groups, would change, as in the standard error
    of `icone.evaluation.comparison`: with it 6 changed samples of 6 are sure, and 5 of 5 are not.

    >>> labels = np.array(["a", "b"] * 50)
    >>> one, other = (
    ...     Predictions(task="classification", ids=[], labels=labels, groups=np.full(100, ""), predicted=said)
    ...     for said in (labels, np.full(100, "a"))
    ... )
    >>> found = score_difference([one], [other])
    >>> round(found.value, 3), found.is_ahead
    (0.5, True)
    """
    rng = np.random.default_rng(SEED)
    first, second = (list(zip(*(one.parts() for one in side), strict=True)) for side in (runs, others))
    scores = np.array(first[0]), np.array(second[0])
    changed = np.mean(first[1], axis=0) - np.mean(second[1], axis=0)
    units = np.ones_like(changed) if runs[0].task != "classification" else class_weights(runs[0].labels)
    codes = group_codes(runs[0].groups.tolist())
    if codes is not None:
        changed, units = np.bincount(codes, changed), np.bincount(codes, units)
    sizes = units if runs[0].task == "classification" else changed
    draws = _turned(changed, rng) + math.sqrt(PSEUDO_COUNT * float((sizes**2).mean())) * rng.standard_normal(DRAWS)
    if paired_seeds:
        draws += _means_of_seeds(scores[0] - scores[1], rng)
    else:
        draws += _means_of_seeds(scores[0], rng) - _means_of_seeds(scores[1], rng)
    low, high = percentiles(draws)
    means = float(scores[0].mean()), float(scores[1].mean())
    return ScoreDifference(
        value=means[0] - means[1],
        low=low,
        high=high,
        scores=means,
        runs=(len(runs), len(others)),
        samples=len(runs[0].labels),
        groups=None if codes is None else len(changed),
    )


def _turned(changed: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Σ_i ε_i d_i of every draw, (draws,)."""
    total = np.zeros(DRAWS)
    for start in range(0, len(changed), AT_ONCE):
        part = changed[start : start + AT_ONCE]
        total += rng.choice([-1.0, 1.0], size=(DRAWS, len(part))) @ part
    return total


def _means_of_seeds(scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The mean of scores (seeds,) that are drawn with replacement, in every draw.

    Deviations are stretched to the interval of Student's t: of three seeds the spread itself is hardly known.
    """
    from scipy.stats import norm, t

    count = len(scores)
    if count == 1:
        return np.full(DRAWS, scores[0])
    middle = (1 + LEVEL) / 2
    stretch = math.sqrt(count / (count - 1)) * t.ppf(middle, count - 1) / norm.ppf(middle)
    means: FloatArray = scores[rng.integers(count, size=(DRAWS, count))].mean(axis=1)
    means += (stretch - 1) * (means - scores.mean())
    return means
