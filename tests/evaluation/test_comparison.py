"""The paired comparison of two encoders: the difference of balanced accuracies, and when it is sure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from icone.evaluation.comparison import Difference, compare, compare_regressions
from icone.evaluation.probes import ProbeResult, knn_probe
from icone.evaluation.recognition import NOTICEABLE
from icone.evaluation.regression import regression_result

Bools = npt.NDArray[np.bool_]


def result(right: Bools, labels: list[str]) -> ProbeResult:
    names = sorted(set(labels))
    recall = {name: float(right[np.array(labels) == name].mean()) for name in names}
    return ProbeResult(
        balanced_accuracy=float(np.mean(list(recall.values()))), accuracy=float(right.mean()), per_class=recall,
        minority_accuracy=None, classes=tuple(names), confusion=np.zeros((1, 1), np.int64), right=right, note=None,
    )  # fmt: skip


def difference(gained: int, lost: int, same: int = 20) -> Difference:
    """One class: so many samples became right, so many wrong, so many stayed."""
    before = np.array([False] * gained + [True] * lost + [True] * same)
    after = np.array([True] * gained + [False] * lost + [True] * same)
    labels = ["a"] * len(before)
    return compare(result(before, labels), result(after, labels), labels)


@pytest.mark.parametrize("lost", range(6))
def test_with_one_class_it_agrees_with_the_exact_test_of_mcnemar(lost: int) -> None:
    for gained in range(lost + 1, 30):
        exact = binomtest(gained, gained + lost).pvalue
        if not 0.03 < exact < 0.06:  # a normal approximation may decide otherwise at the border
            assert difference(gained, lost).better == (exact < 0.05), (gained, lost)
            assert difference(lost, gained).worse == (exact < 0.05)


def test_the_value_is_the_difference_of_balanced_accuracies() -> None:
    rng = np.random.default_rng(0)
    labels = ["a"] * 40 + ["b"] * 7 + ["c"] * 3
    before, after = rng.random(50) < 0.5, rng.random(50) < 0.6
    found = compare(result(before, labels), result(after, labels), labels)
    weights = np.repeat([1 / 120, 1 / 21, 1 / 9], [40, 7, 3])
    assert found.value == pytest.approx(float((weights * (after.astype(float) - before)).sum()))
    assert found.low < found.value < found.high
    assert found.to_json()["difference"] == found.value


def test_encoders_of_the_same_worth_are_rarely_told_apart() -> None:
    """Under chance alone, about one in twenty differences is called sure, unbalanced classes or not."""
    rng = np.random.default_rng(0)
    labels = [*"a" * 60, *"b" * 20, *"c" * 6]
    called = 0
    for _ in range(400):
        before, after = (result(rng.random(len(labels)) < 0.6, labels) for _ in range(2))
        found = compare(before, after, labels)
        called += found.better or found.worse
    assert 4 <= called <= 32


def test_an_interval_stays_within_what_is_possible() -> None:
    wild = Difference(before=0.5, after=1.0, error=0.9, samples=2)
    assert (wild.low, wild.high) == (-1.0, 1.0)


def test_a_regression_that_is_far_below_the_mean_is_worse_for_sure() -> None:
    """An R² below 0 counts as 0, and so do the ends of its interval: here all of it."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=70)
    good, bad = (regression_result(true + rng.normal(scale=s, size=70), true, 80) for s in (0.4, 1.6))
    lost, gained = compare_regressions(good, bad), compare_regressions(bad, good)
    assert bad.r2 < -1
    assert lost.worse
    assert lost.low == lost.value == lost.high == -good.r2
    assert gained.low <= gained.value == good.r2 <= gained.high


def test_a_sure_difference_of_half_a_point_is_none() -> None:
    tiny = Difference(before=0.5, after=0.5 + NOTICEABLE / 2, error=1e-4, samples=100_000)
    assert tiny.low > 0
    assert not tiny.better


def test_probes_say_which_samples_they_are_right_about() -> None:
    x, y = np.array([[0.0], [0.1], [0.9], [1.0]]), ["a", "a", "b", "b"]
    assert knn_probe(x, y, x[[0, 2, 3]], ["a", "a", "b"], k=1).right.tolist() == [True, False, True]
