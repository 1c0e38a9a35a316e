"""Whether a probe reads more from one encoder than from another: a paired comparison over the same test samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from icone.evaluation.assessment import Result
from icone.evaluation.bootstrap import Codes, group_codes
from icone.evaluation.inputs import FloatArray
from icone.evaluation.multilabel import MultilabelResult
from icone.evaluation.probes import ProbeResult
from icone.evaluation.recognition import NOTICEABLE, SURE
from icone.evaluation.regression import RegressionResult

PSEUDO_COUNT = 2.0
"""Changed samples that are added to those found. Up to some 20 changed samples it makes two standard errors agree with
the exact test of McNemar: 6 of 6 are sure, 5 of 5 are not; 13 of 17 are, 12 of 16 are not."""
RELEVANT = 0.05
"""A gain of five points is what training is for: where it can be ruled out, training brought nothing."""


@dataclass(frozen=True)
class Difference:
    """Score of one probe on the encoder before and after training, and the error of their difference.

    The score is the balanced accuracy, R², or the mean AUROC.
    """

    before: float
    after: float
    error: float
    samples: int
    """Test samples."""
    floor: float = -math.inf
    """The score of no reading at all; lower ones count as it."""
    groups: int | None = None
    """Groups of the test samples, where some have the same: their samples change together."""

    @property
    def value(self) -> float:
        return self._difference(self.after)

    @property
    def low(self) -> float:
        return max(-1.0, self._difference(self.after - SURE * self.error))

    @property
    def high(self) -> float:
        return min(1.0, self._difference(self.after + SURE * self.error))

    def _difference(self, after: float) -> float:
        return max(after, self.floor) - max(self.before, self.floor)

    @property
    def better(self) -> bool:
        return self.value >= NOTICEABLE and self.low > 0

    @property
    def worse(self) -> bool:
        return self.value <= -NOTICEABLE and self.high < 0

    @property
    def reads_nothing(self) -> bool:
        """Whether neither score is above that of no reading at all: their difference then says nothing."""
        return max(self.before, self.after) < self.floor

    def to_json(self) -> dict[str, float]:
        names = ("before", "after", "value", "low", "high", "samples")
        plain = {"difference" if name == "value" else name: getattr(self, name) for name in names}
        plain |= {} if self.groups is None else {"groups": self.groups}
        return plain if math.isinf(self.floor) else {**plain, "floor": self.floor}


def compare_probes(
    before: Mapping[str, Result],
    after: Mapping[str, Result],
    labels: Sequence[str],
    names: Sequence[str],
    groups: Sequence[str] | None = None,
) -> dict[str, Difference]:
    """The difference of each named probe that both encoders have.

    `labels` and `groups` are those of the test samples. Where some are of one group, what changed is added up in each
    group, and groups take the place of samples in all errors.
    """
    found, codes = {}, group_codes(groups)
    for name in names:
        match before.get(name), after.get(name):
            case ProbeResult() as old, ProbeResult() as new:
                found[name] = compare(old, new, labels, codes)
            case RegressionResult() as old, RegressionResult() as new:
                found[name] = compare_regressions(old, new, codes)
            case MultilabelResult() as old, MultilabelResult() as new:
                found[name] = compare_multilabel(old, new, codes)
    return found


def compare(before: ProbeResult, after: ProbeResult, labels: Sequence[str], groups: Codes | None = None) -> Difference:
    """Balanced accuracy after − before, with the standard error of McNemar's test.

        D = Σ_i w_i d_i,   error² = Σ_i w_i² d_i² + 2 · mean(w²)

    d_i is 1 where only the second encoder is right about test sample i, −1 where only the first is, else 0. The weight
    w_i = 1 / (classes · samples of its class) makes it the difference of balanced accuracies. If training changed
    nothing, d_i and −d_i are equally likely, which gives the first part of the error; the second is for small sets,
    where the few samples that changed may all have changed in one way by chance.
    (McNemar, 1947, Psychometrika 12, 153–157, is the case of equal weights.)
    """
    weights = class_weights(np.asarray(labels, dtype=str))
    changed = after.right.astype(np.float64) - before.right
    error = paired_error(weights * changed, weights, groups)
    return Difference(before.balanced_accuracy, after.balanced_accuracy, error, len(weights), groups=_number(groups))


def class_weights(labels: npt.NDArray[np.str_] | Codes) -> FloatArray:
    """The weight of every sample in the balanced accuracy, (n,): 1 / (classes · samples of its class)."""
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights: FloatArray = 1 / (len(counts) * counts[codes])
    return weights


def compare_regressions(before: RegressionResult, after: RegressionResult, groups: Codes | None = None) -> Difference:
    """R² after − before, with a standard error over the test samples.

        D = Σ_i d_i,   d_i = (e_i² before − e_i² after) / Σ_j (y_j − ȳ)²,   error² = Σ_i d_i² + 2 · mean(d²)

    e_i are the errors of the two predictions. As for classes, d_i and −d_i are equally likely if training changed
    nothing. An R² below 0 counts as 0: such a probe says no more than the mean, whichever encoder it reads.
    """
    spread = float(((after.true - after.true.mean()) ** 2).sum())
    changes = ((before.true - before.predicted) ** 2 - (after.true - after.predicted) ** 2) / spread
    error = paired_error(changes, changes, groups)
    return Difference(before.r2, after.r2, error, len(changes), floor=0.0, groups=_number(groups))


def compare_multilabel(before: MultilabelResult, after: MultilabelResult, groups: Codes | None = None) -> Difference:
    """Mean AUROC after − before, with its standard error over the test samples.

    What a sample adds to the AUROC (`auroc_parts`) is added over labels and paired between the encoders, so that labels
    which occur together are not counted twice. If training changed nothing, each change and its opposite are equally
    likely, as for classes. Where a label has many samples this is the error of DeLong, DeLong and Clarke-Pearson (1988,
    Biometrics 44, 837–845). Theirs takes the mean change away first, which leaves nothing where one sample has a label.
    """
    changes = auroc_parts(after.scores, after.present)[1] - auroc_parts(before.scores, before.present)[1]
    error = paired_error(changes, changes, groups)
    return Difference(before.auroc, after.auroc, error, len(changes), groups=_number(groups))


def paired_error(changes: FloatArray, sizes: FloatArray, groups: Codes | None = None) -> float:
    """The standard error of Σ changes: √(Σ changes² + 2 · mean(sizes²)), both added up in every group before.

    Samples of one group change together, so that it is the groups whose signs are equally likely.
    """
    if groups is not None:
        changes, sizes = (np.bincount(groups, values).astype(np.float64) for values in (changes, sizes))
    return math.sqrt(float((changes**2).sum() + PSEUDO_COUNT * (sizes**2).mean()))


def _number(groups: Codes | None) -> int | None:
    return None if groups is None else int(groups.max()) + 1


def auroc_parts(scores: FloatArray, present: npt.NDArray[np.bool_]) -> tuple[float, FloatArray]:
    """The mean AUROC over labels, and what every test sample adds to it (n,), of arrays (n, labels).

    The samples that have a label add up to its AUROC, and those that have it not as well: the former by the share of
    negatives below each, the latter by the share of positives above each.
    """
    from scipy.stats import rankdata

    total, areas = np.zeros(len(scores)), []
    for column, has in zip(scores.T, present.T, strict=True):
        positives, negatives = int(has.sum()), int((~has).sum())
        ranks = rankdata(column)
        above = ranks[has] - rankdata(column[has])  # negatives below each positive, ties one half
        below = positives - (ranks[~has] - rankdata(column[~has]))  # positives above each negative
        total[has] += above / (negatives * positives)
        total[~has] += below / (negatives * positives)
        areas.append(float(above.mean()) / negatives)
    return float(np.mean(areas)), total / scores.shape[1]
