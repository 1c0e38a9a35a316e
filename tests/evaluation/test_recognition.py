"""Recognition of a sample by another view, against a loop and where the answer is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from icone.evaluation.recognition import Recognition, recognition

RNG = np.random.default_rng(0)


def by_hand(views: np.ndarray, groups: np.ndarray) -> float:
    """One comparison after the other."""
    n, count, _ = views.shape
    shares = []
    for i in range(n):
        won = []
        for a, b in itertools.permutations(range(count), 2):
            distance = np.linalg.norm(views[:, b] - views[i, a], axis=1)
            own, foreign = distance[groups == groups[i]], distance[groups != groups[i]]
            won += [float(x < y) + 0.5 * float(x == y) for x in own for y in foreign]
        shares.append(np.mean(won))
    return float(np.mean(shares))


@pytest.mark.parametrize("classes", [None, 3])
def test_it_is_the_share_of_comparisons_that_the_own_view_wins(classes: int | None) -> None:
    views = RNG.normal(size=(14, 1, 4)) + 0.7 * RNG.normal(size=(14, 3, 4))
    groups = np.arange(14) if classes is None else np.arange(14) % classes
    found = recognition(views, None if classes is None else groups)
    assert found is not None
    assert found.share == pytest.approx(by_hand(views, groups))


def test_noise_alone_is_chance_and_no_noise_is_certain() -> None:
    noise = recognition(RNG.normal(size=(200, 2, 16)))
    assert noise is not None
    assert abs(noise.share - 0.5) < 3 * noise.error < 0.1
    constant = recognition(np.ones((20, 3, 4)))
    assert constant == Recognition(0.5, 1 / 40)
    certain = recognition(np.repeat(RNG.normal(size=(20, 1, 4)), 2, axis=1))
    assert certain == Recognition(1.0, 1 / 40)


def test_the_number_of_instances_does_not_shift_it() -> None:
    views = RNG.normal(size=(400, 1, 3)) + 0.6 * RNG.normal(size=(400, 2, 3))
    whole = recognition(views)
    parts = [recognition(part) for part in np.split(views, 20)]
    assert whole is not None
    assert np.mean([p.share for p in parts if p is not None]) == pytest.approx(whole.share, abs=0.01)


def test_the_error_is_that_of_the_mean_over_draws() -> None:
    def draw() -> Recognition:
        found = recognition(RNG.normal(size=(60, 1, 3)) + 0.8 * RNG.normal(size=(60, 2, 3)))
        assert found is not None
        return found

    found = [draw() for _ in range(200)]
    assert np.std([f.share for f in found]) == pytest.approx(np.mean([f.error for f in found]), rel=0.35)


def test_the_error_of_a_gain_is_that_of_the_gain_over_draws_and_smaller_than_of_two_separate_shares() -> None:
    def draw() -> tuple[Recognition, Recognition]:
        means, noise, other = RNG.normal(size=(120, 1, 3)), RNG.normal(size=(120, 2, 3)), RNG.normal(size=(120, 2, 3))
        before, after = recognition(means + noise), recognition(means + 0.6 * noise + 0.6 * other)
        assert before is not None
        assert after is not None
        return before, after

    found = [draw() for _ in range(200)]
    spread = np.std([after.share - before.share for before, after in found])
    errors = np.mean([after.gain_error(before) for before, after in found])
    assert spread > 2 / 240  # far from the least error that there is
    assert spread == pytest.approx(errors, rel=0.15)
    assert errors < 0.8 * np.mean([after.gain_error(Recognition(b.share, b.error)) for b, after in found])


def test_the_same_instances_make_a_small_gain_sure() -> None:
    shares = RNG.uniform(0.4, 0.9, size=200)
    before, after = (Recognition(float(s.mean()), float(s.std()) / 14, s) for s in (shares, shares + 0.02))
    assert after.beats(before)
    assert not before.beats(after)
    assert not Recognition(after.share, after.error).beats(Recognition(before.share, before.error))


def test_a_sure_gain_of_half_a_point_is_none_unless_half_a_point_is_all_there_is() -> None:
    assert not Recognition(0.505, 1e-4).beats(Recognition(0.5, 1e-4))
    assert Recognition(0.999, 1e-4).beats(Recognition(0.994, 1e-4))
    assert not Recognition(0.996, 1e-4).beats(Recognition(0.994, 1e-4))


def test_one_class_has_nothing_to_be_told_from() -> None:
    assert recognition(RNG.normal(size=(5, 2, 3)), np.zeros(5, dtype=np.int64)) is None


def test_comparisons_ask_for_more_than_chance() -> None:
    assert Recognition(0.60, 0.01).beats(Recognition(0.55, 0.01))
    assert not Recognition(0.60, 0.03).beats(Recognition(0.55, 0.01))
    assert Recognition(0.90, 0.005).lost(Recognition(0.994, 0.001))
    assert not Recognition(0.97, 0.003).lost(Recognition(0.994, 0.001))
    assert not Recognition(0.49, 0.01).lost(Recognition(0.51, 0.01))  # there was nothing to lose
    assert not Recognition(0.96, 0.005).lost(Recognition(1.0, 0.0))  # between certain and nearly certain
    assert not Recognition(0.5, 1 / 4).lost(Recognition(1.0, 1 / 4))  # two instances prove nothing
