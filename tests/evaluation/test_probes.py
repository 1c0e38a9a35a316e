"""Probes against scikit-learn used directly, hand-made confusion, and what can be wrong with labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, recall_score

from icone.errors import InputError
from icone.evaluation import probes
from icone.evaluation.probes import ProbeResult, knn_probe, linear_probe

Part = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
PROBES = [linear_probe, knn_probe]


def part(counts: list[int], seed: int) -> Part:
    """Overlapping Gaussian classes in 6 dimensions of very different scale, with these class sizes."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    centres = np.random.default_rng(99).normal(size=(len(counts), 6))
    x = (centres[y] + rng.normal(size=(len(y), 6))) * [1, 100, 0.01, 1, 5, 1] + 3
    return x, y


TRAIN, TEST = part([60, 30, 10], seed=0), part([20, 20, 20], seed=1)


def scaled(train: Part, test: Part) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    mean, std = train[0].mean(axis=0), train[0].std(axis=0)
    return (train[0] - mean) / std, (test[0] - mean) / std


def check_scores(result: ProbeResult, expected: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> None:
    assert float(result) == result.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, expected))
    assert result.accuracy == pytest.approx(accuracy_score(truth, expected))
    recalls = recall_score(truth, expected, average=None)
    assert result.per_class == pytest.approx({str(i): recall for i, recall in enumerate(recalls)})
    np.testing.assert_array_equal(result.confusion, confusion_matrix(truth, expected))
    assert result.classes == ("0", "1", "2")


def test_linear_probe_is_scikit_learn_on_standardised_features() -> None:
    train_x, test_x = scaled(TRAIN, TEST)
    expected = LogisticRegression(max_iter=1000).fit(train_x, TRAIN[1]).predict(test_x)
    result = linear_probe(*TRAIN, *TEST)
    check_scores(result, expected, TEST[1])
    assert 0.5 < result.balanced_accuracy < 0.95  # the case can tell good from bad
    assert result.note is None


@pytest.mark.parametrize("k", [1, 5, 20])
def test_knn_probe_is_a_majority_vote_among_standardised_neighbours(k: int) -> None:
    train_x, test_x = scaled(TRAIN, TEST)
    votes = [TRAIN[1][np.argsort(((train_x - x) ** 2).sum(axis=1))[:k]] for x in test_x]
    expected = np.array([np.bincount(v, minlength=3).argmax() for v in votes])
    check_scores(knn_probe(*TRAIN, *TEST, k=k), expected, TEST[1])


def test_knn_takes_five_neighbours_by_default() -> None:
    five, one = knn_probe(*TRAIN, *TEST, k=5), knn_probe(*TRAIN, *TEST, k=1)
    np.testing.assert_array_equal(knn_probe(*TRAIN, *TEST).confusion, five.confusion)
    assert (five.confusion != one.confusion).any()


@pytest.mark.parametrize("probe", PROBES)
def test_minority_is_what_is_rarer_than_average_or_what_is_named(probe: Callable[..., ProbeResult]) -> None:
    result = probe(*TRAIN, *TEST)  # 60, 30 and 10 samples: the average class has 33
    assert result.minority_accuracy == pytest.approx((result.per_class["1"] + result.per_class["2"]) / 2)
    assert probe(*TRAIN, *TEST, minority=[2]).minority_accuracy == result.per_class["2"]
    assert probe(*TEST, *TRAIN).minority_accuracy is None  # balanced
    with pytest.raises(InputError, match="unknown minority class '7'"):
        probe(*TRAIN, *TEST, minority=[7])


def test_minority_of_five_classes_with_two_or_three_rare_ones() -> None:
    for counts, rare in (([50, 50, 50, 10, 10], "34"), ([50, 50, 10, 10, 10], "234")):
        result = knn_probe(*part(counts, seed=0), *part([20] * 5, seed=1))
        assert result.minority_accuracy == pytest.approx(np.mean([result.per_class[name] for name in rare]))


def test_names_numbers_and_tensors_are_the_same_classes() -> None:
    names = np.array(["blue", "green", "red"])
    plain = linear_probe(*TRAIN, *TEST)
    named = linear_probe(TRAIN[0], names[TRAIN[1]], TEST[0], list(names[TEST[1]]))
    tensors = linear_probe(*(torch.from_numpy(a) for a in (*TRAIN, *TEST)))
    assert named.classes == ("blue", "green", "red")
    assert plain.classes == tensors.classes
    for result in (named, tensors):
        np.testing.assert_array_equal(result.confusion, plain.confusion)


def test_numbers_are_ordered_by_value() -> None:
    x = np.arange(24.0).reshape(12, 2)
    assert knn_probe(x, np.arange(12), x, np.arange(12), k=1).classes == tuple(str(i) for i in range(12))


def test_numbers_of_any_length_are_ordered_by_value() -> None:
    names = ["7" * 5000, "10", "9", "b"]
    result = knn_probe(np.eye(4), names, np.eye(4), names, k=1)
    assert result.classes == ("9", "10", "7" * 5000, "b")


def test_unfinished_optimisation_is_a_note_not_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "MAX_ITERATIONS", 2)
    result = linear_probe(*TRAIN, *TEST)
    assert result.note is not None
    assert "stopped after 2 iterations, not yet converged" in result.note


@pytest.mark.parametrize("probe", PROBES)
def test_classes_in_one_part_only_are_told(probe: Callable[..., ProbeResult]) -> None:
    test_x, test_y = TEST
    fewer = probe(*TRAIN, test_x[test_y != 1], test_y[test_y != 1])
    assert set(fewer.per_class) == {"0", "2"}
    assert fewer.balanced_accuracy == pytest.approx((fewer.per_class["0"] + fewer.per_class["2"]) / 2)
    assert fewer.note == "without test samples, so left out: 1"
    train_x, train_y = TRAIN
    unseen = probe(train_x[train_y != 1], train_y[train_y != 1], *TEST)
    assert unseen.per_class["1"] == 0
    assert unseen.balanced_accuracy == pytest.approx(sum(unseen.per_class.values()) / 3)
    assert unseen.note == "without training samples, so never right: 1"


@pytest.mark.parametrize("probe", PROBES)
def test_constant_features_give_chance(probe: Callable[..., ProbeResult]) -> None:
    result = probe(np.ones((100, 6)), TRAIN[1], np.ones((60, 6)), TEST[1])
    assert result.balanced_accuracy == pytest.approx(1 / 3)


def with_nan() -> npt.NDArray[np.float64]:
    x = TRAIN[0].copy()
    x[4, 2] = np.nan
    return x


BROKEN: list[tuple[tuple[Any, Any, Any, Any], str]] = [
    (
        (with_nan(), TRAIN[1], *TEST),
        "training features hold NaN or infinite values in 1 of 100 rows, first in row 4",
    ),
    ((TRAIN[0], np.zeros(100, dtype=int), *TEST), "at least 2 classes, but all training samples are '0'"),
    (
        (TRAIN[0], TRAIN[1][:-1], *TEST),
        r"training labels must be one per sample, shape \(100,\), got \(99,\)",
    ),
    ((TRAIN[0], TRAIN[1], TEST[0], TEST[1][:, None]), r"test labels must be one per sample"),
    ((TRAIN[0], TRAIN[1], TEST[0][:, :5], TEST[1]), "training features have 6 dimensions, test features 5"),
    ((TRAIN[0], TRAIN[1], TEST[0][:0], TEST[1][:0]), r"test features must have shape \(samples, d\)"),
    ((TRAIN[0], [None, *TRAIN[1][1:]], *TEST), "training label of row 0 is missing"),
    ((*TRAIN, TEST[0], [*TEST[1][:-1], np.nan]), "test label of row 59 is missing"),
]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize(("arguments", "message"), BROKEN)
def test_what_cannot_be_probed_is_named(
    probe: Callable[..., ProbeResult], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        probe(*arguments)


@pytest.mark.parametrize("k", [0, 101])
def test_k_must_fit_the_training_part(k: int) -> None:
    with pytest.raises(InputError, match=f"number of training samples, 100, got {k}"):
        knn_probe(*TRAIN, *TEST, k=k)
