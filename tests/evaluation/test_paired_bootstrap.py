"""The bootstrap of a difference: its value, when it is sure, rare classes, groups and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score

from icone.data.targets import Task
from icone.evaluation.bootstrap import group_codes
from icone.evaluation.paired_bootstrap import Predictions, score_difference

RARE = [*"a" * 41, *"b" * 17, *"c" * 7, *"d" * 4, "e"]
"""Test samples of five classes, as they are in a small set of blood cells."""


def made_up(
    predicted: Any, labels: Any, task: Task = "classification", groups: Sequence[str] = (), **more: Any
) -> Predictions:
    count = len(labels)
    return Predictions(
        task=task, ids=[str(i) for i in range(count)], labels=np.array(labels, dtype=str),
        groups=np.array(list(groups) or [""] * count), predicted=np.array(predicted), **more,
    )  # fmt: skip


def right(marks: Any, labels: Sequence[str], groups: Sequence[str] = ()) -> Predictions:
    """Predictions that are right where the marks are true, and else a class that does not occur."""
    return made_up(np.where(marks, labels, "wrong"), labels, groups=groups)


def test_the_value_is_the_difference_of_the_scores() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice([*"abbb"], 80)
    ours, theirs = (np.where(rng.random(80) < share, labels, "a") for share in (0.8, 0.4))
    found = score_difference([made_up(ours, labels)], [made_up(theirs, labels)])
    assert found.value == pytest.approx(balanced_accuracy_score(labels, ours) - balanced_accuracy_score(labels, theirs))
    assert found.low < found.value < found.high

    numbers = rng.normal(size=50)
    near, far = (numbers + rng.normal(scale=s, size=50) for s in (0.3, 0.9))
    found = score_difference([made_up(near, numbers, "regression")], [made_up(far, numbers, "regression")])
    assert found.value == pytest.approx(r2_score(numbers, near) - r2_score(numbers, far))
    assert found.is_ahead

    present = rng.random((90, 2)) < 0.4
    texts = ["|".join(name for name, has in zip("ab", row, strict=True) if has) for row in present]
    good, bad = (present + rng.normal(scale=s, size=(90, 2)) for s in (0.4, 1.2))
    sides = [made_up(scores, texts, "multilabel", names=("a", "b")) for scores in (good, bad)]
    found = score_difference(sides[:1], sides[1:])
    assert found.scores == pytest.approx([roc_auc_score(present, scores) for scores in (good, bad)])
    assert found.is_ahead


def test_what_is_sure_agrees_with_the_exact_test_of_mcnemar() -> None:
    labels = ["a"] * 60
    for changed in range(3, 10):
        found = score_difference([right(np.ones(60), labels)], [right(np.arange(60) >= changed, labels)])
        assert found.is_sure == (binomtest(changed, changed).pvalue < 0.05), changed


def test_runs_that_say_the_same_are_not_told_apart() -> None:
    same = right(np.random.default_rng(0).random(len(RARE)) < 0.6, RARE)
    found = score_difference([same], [same])
    assert found.value == 0
    assert found.low < 0 < found.high  # that no sample differed here does not mean that none would


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_equal_encoders_are_rarely_told_apart_with_rare_classes(shared: float) -> None:
    """Draws of samples within their class call a third of these sure: the only sample of a class is in every draw."""
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(200):
        both = rng.random(len(RARE)) < 0.6
        one, other = (
            right(np.where(rng.random(len(RARE)) < shared, both, rng.random(len(RARE)) < 0.6), RARE) for _ in range(2)
        )
        called += score_difference([one], [other]).is_sure
    assert called <= 16


def test_samples_of_a_group_count_together() -> None:
    """Groups that are right or wrong as a whole: 30 of them are 30 samples, not 300."""
    rng = np.random.default_rng(0)
    of = np.repeat(np.arange(30), 10)
    labels, groups = np.where(of % 2, "a", "b").tolist(), [f"patient {group}" for group in of]
    called = {"with": 0, "without": 0}
    for _ in range(60):
        one, other = (rng.random(30)[of] < 0.6 for _ in range(2))
        called["without"] += score_difference([right(one, labels)], [right(other, labels)]).is_sure
        found = score_difference([right(one, labels, groups)], [right(other, labels, groups)])
        called["with"] += found.is_sure
        assert found.groups == 30
    assert called["with"] <= 8
    assert called["without"] >= 20


def test_samples_without_a_group_are_groups_of_one() -> None:
    assert group_codes(["", "a", ""]) is None
    codes = group_codes(["", "a", "", "a"])
    assert codes is not None
    assert len(set(codes)) == 3
    assert codes[1] == codes[3]


@pytest.mark.parametrize("paired", [True, False])
def test_seeds_of_equal_settings_are_rarely_told_apart(paired: bool) -> None:
    """The accuracy moves by five points from seed to seed, and test samples are many."""
    rng = np.random.default_rng(0)
    labels = ["a"] * 500 + ["b"] * 500
    called = 0
    for _ in range(60):
        sides = [[right(rng.random(1000) < 0.6 + 0.05 * rng.normal(), labels) for _ in range(3)] for _ in range(2)]
        called += score_difference(*sides, paired_seeds=paired).is_sure
    assert called <= 7


def test_seeds_that_agree_are_sure() -> None:
    rng = np.random.default_rng(0)
    labels = ["a"] * 200 + ["b"] * 200
    ours, theirs = ([right(rng.random(400) < share, labels) for _ in range(3)] for share in (0.85, 0.6))
    found = score_difference(ours, theirs, paired_seeds=True)
    assert found.is_ahead
    assert found.runs == (3, 3)
    assert found.low < 0.25 < found.high


def test_a_difference_below_a_point_is_not_ahead() -> None:
    labels = ["a"] * 4000
    found = score_difference([right(np.ones(4000), labels)], [right(np.arange(4000) >= 30, labels)])
    assert found.is_sure
    assert not found.is_ahead
