"""Whether one setting is better than another: a paired comparison over seeds and over the same test samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from icone.errors import InputError
from icone.evaluation.bootstrap import AT_ONCE, SEED, percentiles
from icone.evaluation.inputs import FloatArray
from icone.evaluation.paired_bootstrap import Predictions, score_difference

SURE = 1.96
"""Standard errors of a 95 % interval."""
DRAWS = 20_000
"""Draws of the bootstrap. A claim hangs on whether an interval leaves zero out: with 1,000 draws other random numbers
decided that for intervals that end within half a point of zero."""


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference of balanced accuracies, with a 95 % interval over seeds and test samples."""

    value: float
    low: float
    high: float
    seeds: int
    """Seeds that both settings have."""
    samples: int
    """Test samples."""
    needed: int | None
    """Seeds from which a true difference of this size would be told from 0, if test samples were no matter; None where
    one seed says nothing of the spread."""

    @property
    def sure(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def paired_difference(runs: pd.DataFrame, others: pd.DataFrame, probe: str) -> PairedDifference:
    """Balanced accuracy of `runs` minus that of `others`, seed by seed and sample by sample.

        D = mean_s Σ_i w_i (r_si − o_si),   w_i = 1 / (classes · test samples of the class of i)

    r and o are 1 where the probe is right. The interval is a bootstrap: seeds are drawn with replacement, and test
    samples within their class (Efron and Tibshirani 1993). Few seeds make it too narrow, because three values say
    little about a spread. Where test samples share groups (`test_groups`), samples of a group are not drawn apart: the
    interval is that of `icone.compare`, by draws of signs. `runs` and `others` are rows of `runs.csv`, one run a row.

    >>> one = pd.DataFrame({"seed": [0, 1], "test_labels": "0 0 1 1", "right_knn_5": ["1110", "1111"]})
    >>> found = paired_difference(one, one.assign(right_knn_5=["1010", "1011"]), "knn_5")
    >>> found.value, found.seeds, found.samples
    (0.25, 2, 4)
    """
    seeds = sorted(set(runs["seed"]) & set(others["seed"]))
    if not seeds:
        raise InputError("the settings have no seed in common, so their runs cannot be paired")
    first, second = (_right(table, seeds, probe) for table in (runs, others))
    if (first.labels, first.groups) != (second.labels, second.groups):
        raise InputError("the runs were tested on different samples, so they cannot be paired")
    labels = np.array(first.labels)
    difference = first.right - second.right
    per_seed = _balanced(difference, labels, np.ones((1, len(labels))))[0]
    return PairedDifference(
        float(per_seed.mean()),
        *(_interval(difference, labels) if first.groups is None else _grouped_interval(first, second)),
        seeds=len(seeds),
        samples=len(labels),
        needed=_needed(per_seed),
    )


@dataclass(frozen=True)
class _Right:
    labels: tuple[int, ...]
    groups: str | None
    """The group of every sample, as numbers; None where no two samples share one."""
    right: FloatArray
    """1 where the probe is right, (seeds, samples)."""

    def predictions(self) -> list[Predictions]:
        """What the probe of every seed says: the class of a sample where it is right, else none."""
        labels, groups = np.array(self.labels, dtype=str), np.array((self.groups or "").split())
        answers = (np.where(row > 0, labels, "") for row in self.right)
        return [Predictions(task="classification", ids=[], labels=labels, groups=groups, predicted=a) for a in answers]


def _right(table: pd.DataFrame, seeds: list[int], probe: str) -> _Right:
    rows = table.set_index("seed").loc[seeds]
    if rows.index.has_duplicates:
        raise InputError(f"a setting has several runs of one seed: {len(rows)} runs, {len(seeds)} seeds")
    if rows["test_labels"].isna().any():
        raise InputError("some runs do not tell which test samples are right: they are older than that column")
    groups = rows["test_groups"].astype(object) if "test_groups" in rows else pd.Series([None] * len(rows))
    tested = set(zip(rows["test_labels"], groups.where(groups.notna(), None), strict=True))
    if len(tested) > 1:
        raise InputError("the seeds of a setting were tested on different samples, so they cannot be paired")
    codes, of_groups = tested.pop()
    labels = tuple(int(code) for code in str(codes).split())
    return _Right(labels, of_groups, np.array([[float(mark) for mark in text] for text in rows[f"right_{probe}"]]))


def _balanced(difference: FloatArray, labels: npt.NDArray[np.int64], counts: FloatArray) -> FloatArray:
    """The mean over classes of the mean difference in each: (draws, seeds) of counts (draws, samples)."""
    classes = np.unique(labels)
    total = np.zeros((len(counts), len(difference)))
    for one in classes:
        here = labels == one
        total += counts[:, here] @ difference[:, here].T / counts[:, here].sum(axis=1, keepdims=True)
    mean: FloatArray = total / len(classes)
    return mean


def _interval(difference: FloatArray, labels: npt.NDArray[np.int64]) -> tuple[float, float]:
    rng, seeds, drawn = np.random.default_rng(SEED), len(difference), list[FloatArray]()
    size = max(1, min(DRAWS, AT_ONCE // len(labels)))
    while sum(map(len, drawn)) < DRAWS:
        counts = np.zeros((size, len(labels)))
        for one in np.unique(labels):
            here = np.flatnonzero(labels == one)
            counts[:, here] = rng.multinomial(len(here), np.full(len(here), 1 / len(here)), size=size)
        of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=size)
        drawn.append((_balanced(difference, labels, counts) * of_seeds).sum(axis=1) / seeds)
    return percentiles(np.concatenate(drawn))


def _grouped_interval(first: _Right, second: _Right) -> tuple[float, float]:
    found = score_difference(first.predictions(), second.predictions(), paired_seeds=True)
    return found.low, found.high


def _needed(per_seed: FloatArray) -> int | None:
    """n with SURE · sd / √n ≤ |mean|."""
    if len(per_seed) < 2 or per_seed.mean() == 0:
        return None
    return max(1, math.ceil((SURE * float(per_seed.std(ddof=1)) / abs(float(per_seed.mean()))) ** 2))
