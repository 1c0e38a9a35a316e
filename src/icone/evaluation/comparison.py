"""Whether a probe reads more from one encoder than from another: a paired comparison over the same test samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from icone.evaluation.probes import ProbeResult
from icone.evaluation.recognition import SURE

PSEUDO_COUNT = 2.0
"""Changed samples that are added to those found. Up to some 20 changed samples it makes two standard errors agree with
the exact test of McNemar: 6 of 6 are sure, 5 of 5 are not; 13 of 17 are, 12 of 16 are not."""
NOTICEABLE = 0.01
"""A difference of less than a point is none, however many test samples make it sure."""
RELEVANT = 0.05
"""A gain of five points is what training is for: where it can be ruled out, training brought nothing."""


@dataclass(frozen=True)
class Difference:
    """Balanced accuracy of one probe on the encoder before and after training, and the error of their difference."""

    before: float
    after: float
    error: float
    samples: int
    """Test samples."""

    @property
    def value(self) -> float:
        return self.after - self.before

    @property
    def low(self) -> float:
        return max(-1.0, self.value - SURE * self.error)

    @property
    def high(self) -> float:
        return min(1.0, self.value + SURE * self.error)

    @property
    def better(self) -> bool:
        return self.value >= NOTICEABLE and self.low > 0

    @property
    def worse(self) -> bool:
        return self.value <= -NOTICEABLE and self.high < 0

    def to_json(self) -> dict[str, float]:
        names = ("before", "after", "value", "low", "high", "samples")
        return {"difference" if name == "value" else name: getattr(self, name) for name in names}


def compare_probes(
    before: Mapping[str, ProbeResult], after: Mapping[str, ProbeResult], labels: Sequence[str], names: Sequence[str]
) -> dict[str, Difference]:
    """The difference of each named probe that both encoders have; `labels` are the classes of the test samples."""
    return {name: compare(before[name], after[name], labels) for name in names if name in before and name in after}


def compare(before: ProbeResult, after: ProbeResult, labels: Sequence[str]) -> Difference:
    """Balanced accuracy after − before, with the standard error of McNemar's test.

        D = Σ_i w_i d_i,   error² = Σ_i w_i² d_i² + 2 · mean(w²)

    d_i is 1 where only the second encoder is right about test sample i, −1 where only the first is, else 0. The weight
    w_i = 1 / (classes · samples of its class) makes it the difference of balanced accuracies. If training changed
    nothing, d_i and −d_i are equally likely, which gives the first part of the error; the second is for small sets,
    where the few samples that changed may all have changed in one way by chance.
    (McNemar, 1947, Psychometrika 12, 153–157, is the case of equal weights.)
    """
    _, codes, counts = np.unique(np.asarray(labels, dtype=str), return_inverse=True, return_counts=True)
    weights = 1 / (len(counts) * counts[codes])
    changed = after.right.astype(np.float64) - before.right
    error = math.sqrt(float((weights**2 * changed**2).sum() + PSEUDO_COUNT * (weights**2).mean()))
    return Difference(before.balanced_accuracy, after.balanced_accuracy, error, len(codes))
