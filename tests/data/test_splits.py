"""Stratification against exact proportions, reproducibility, and the paper's imbalance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from icone.data import imbalanced_subset, stratified_split, stratified_subset
from icone.data.splits import Integers
from icone.errors import InputError


def random_labels(seed: int) -> Integers:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 60, rng.integers(2, 8))
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int64)


def largest_remainder(sizes: Integers, total: int) -> list[int]:
    """The textbook rule, in whole numbers."""
    n = int(sizes.sum())
    counts = [total * int(s) // n for s in sizes]
    order = sorted(range(len(sizes)), key=lambda c: (-(total * int(sizes[c]) % n), c))
    for c in order[: total - sum(counts)]:
        counts[c] += 1
    return counts


@pytest.mark.parametrize("seed", range(20))
def test_subset_follows_the_largest_remainder(seed: int) -> None:
    labels = random_labels(seed)
    for n in (1, 5, len(labels) // 2, len(labels) - 1, len(labels)):
        chosen = stratified_subset(labels, n, seed)
        assert len(np.unique(chosen)) == len(chosen) == n
        assert (np.diff(chosen) > 0).all()
        sizes = np.bincount(labels)
        assert np.bincount(labels[chosen], minlength=len(sizes)).tolist() == largest_remainder(sizes, n)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.9])
def test_split_is_a_proportional_partition(seed: int, fraction: float) -> None:
    labels = random_labels(seed)
    train, test = stratified_split(labels, fraction, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    sizes, counts = np.bincount(labels), np.bincount(labels[test], minlength=labels.max() + 1)
    assert (counts >= 1).all()
    assert (sizes - counts >= 1).all()
    np.testing.assert_array_less(np.abs(counts - fraction * sizes), 1.5)
    if sizes.min() >= 10:
        assert len(test) == round(fraction * len(labels))


def test_the_papers_split_is_exact() -> None:
    train, test = stratified_split(np.repeat([0, 1], [400, 100]), 0.2, seed=3)
    assert np.bincount(np.repeat([0, 1], [400, 100])[test]).tolist() == [80, 20]
    assert (len(train), len(test)) == (400, 100)


def test_every_class_is_on_both_sides() -> None:
    labels = np.repeat([0, 1, 2], [100, 2, 2])
    _, test = stratified_split(labels, 0.05, seed=0)
    assert np.bincount(labels[test]).tolist() == [3, 1, 1]


def test_draws_depend_on_the_seed_alone() -> None:
    labels = random_labels(0)
    draws: list[Callable[[int], Integers]] = [
        lambda seed: stratified_subset(labels, 20, seed),
        lambda seed: stratified_split(labels, 0.2, seed)[1],
        lambda seed: imbalanced_subset(labels, 5, seed)[0],
    ]
    for draw in draws:
        np.testing.assert_array_equal(draw(1), draw(1))
        assert len({tuple(draw(seed).tolist()) for seed in range(5)}) > 1


def test_draws_are_uniform_within_a_class() -> None:
    labels = np.repeat([0, 1], [10, 10])
    hits = sum(np.bincount(stratified_subset(labels, 10, seed), minlength=20) for seed in range(400))
    assert 150 < np.min(hits) <= np.max(hits) < 250  # 200 ± 5 standard deviations


def test_asking_for_too_many_gives_all_and_for_none_is_refused() -> None:
    assert stratified_subset(np.zeros(4, np.int64), 9, 0).tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="at least one sample, got 0"):
        stratified_subset(np.zeros(4, np.int64), 0, 0)


def test_unlabelled_data_is_drawn_plainly() -> None:
    train, test = stratified_split(np.full(50, -1), 0.2, 0)
    assert (len(train), len(test)) == (40, 10)


def test_a_single_unlabelled_sample_is_trained_on() -> None:
    labels = np.array([0, 0, 1, -1, 1, 0, 0, 1, 1, 0])
    for seed in range(20):
        train, test = stratified_split(labels, 0.3, seed)
        assert (len(train), len(test)) == (7, 3)
        assert 3 in train
        assert {*labels[test].tolist()} == {0, 1}


def test_a_split_of_labelled_and_unlabelled_samples_stays_what_it_was() -> None:
    """Stored runs were drawn so."""
    labels = np.array([0, 0, 1, -1, 1, 0, -1, 1, -1, 0])
    assert stratified_split(labels, 0.3, 5)[1].tolist() == [4, 5, 6]


def test_class_with_one_member_is_named() -> None:
    with pytest.raises(InputError, match="one sample cannot be parted"):
        stratified_split(np.array([-1]), 0.2, 0)
    with pytest.raises(InputError, match="class basophil has one member"):
        stratified_split(np.array([0, 0, 1, 2, 2]), 0.2, 0, ("a", "basophil", "c"))
    with pytest.raises(InputError, match="class 1 has one member"):
        stratified_split(np.array([0, 0, 1]), 0.2, 0)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_impossible_fractions(fraction: float) -> None:
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        stratified_split(np.zeros(4, np.int64), fraction, 0)


def test_imbalance_keeps_the_majority_and_thins_half_of_the_classes() -> None:
    labels = np.repeat(np.arange(5), 40)
    chosen, minority = imbalanced_subset(labels, 10, seed=0)
    counts = np.bincount(labels[chosen])
    assert len(minority) == 2
    assert all(counts[c] == (4 if c in minority else 40) for c in range(5))
    assert len({imbalanced_subset(labels, 10, seed)[1] for seed in range(20)}) > 3


def test_imbalance_never_empties_a_class() -> None:
    labels = np.repeat([0, 1], [3, 3])
    chosen, minority = imbalanced_subset(labels, 100, seed=0)
    assert np.bincount(labels[chosen])[minority[0]] == 1


def test_imbalance_needs_classes_and_a_ratio() -> None:
    with pytest.raises(InputError, match="needs labels"):
        imbalanced_subset(np.full(10, -1), 5, 0)
    with pytest.raises(InputError, match=r"at least 1, got 0\.5"):
        imbalanced_subset(np.repeat([0, 1], 5), 0.5, 0)
