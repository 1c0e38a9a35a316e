"""Geometry metrics against closed forms and against their printed definitions, spelled out in loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from icone.errors import InputError
from icone.evaluation import geometry
from icone.evaluation.geometry import (
    alignment,
    effective_rank,
    first_component_share,
    lidar,
    mean_cosine,
    rankme,
    singular_values,
    standardize,
    uniformity,
)

Array = npt.NDArray[np.float64]
OF_FEATURES = [effective_rank, rankme, uniformity, mean_cosine, first_component_share]
OF_VIEWS = [lidar, alignment]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def with_singular_values(n: int, values: list[float], *, centred: bool) -> Array:
    """An (n, d) array with these singular values; its columns have mean 0 where `centred`."""
    start = np.ones((n, 1)) if centred else np.empty((n, 0))
    left = np.linalg.qr(np.hstack([start, normal(n, len(values))]))[0][:, start.shape[1] :]
    right = np.linalg.qr(normal(len(values), len(values), seed=1))[0]
    return np.asarray(left * np.array(values) @ right)


def exp_entropy(values: list[float]) -> float:
    p = [v / sum(values) for v in values]
    return math.exp(-sum(q * math.log(q) for q in p if q > 0))


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0, 1.0], [5.0, 1.0, 0.1], [9.0, 4.0, 0.0]])
def test_ranks_of_a_known_spectrum(values: list[float]) -> None:
    x = with_singular_values(30, values, centred=True)
    np.testing.assert_allclose(singular_values(x), sorted(values, reverse=True), atol=1e-12)
    assert effective_rank(x) == pytest.approx(exp_entropy(values), rel=1e-9)
    assert rankme(x) == pytest.approx(exp_entropy(values), rel=1e-5)
    assert first_component_share(x) == pytest.approx(values[0] ** 2 / sum(v**2 for v in values))


def test_rankme_adds_its_epsilon_to_every_share() -> None:
    x = np.diag([2.0, 1.0, 0.0])
    p = [2 / 3 + 1e-7, 1 / 3 + 1e-7, 1e-7]
    assert rankme(x) == pytest.approx(math.exp(-sum(q * math.log(q) for q in p)), rel=1e-12)


def test_effective_rank_centres_and_rankme_does_not() -> None:
    spectrum = [3.0, 2.0, 1.0, 1.0]
    x = with_singular_values(40, spectrum, centred=True)
    moved = x + np.array([100.0, 0.0, 0.0, 0.0])
    assert effective_rank(moved) == pytest.approx(exp_entropy(spectrum))
    assert rankme(moved) < 1.2
    assert first_component_share(moved) == pytest.approx(9 / 15)
    whole = standardize(normal(300, 6))
    assert effective_rank(whole) == pytest.approx(rankme(whole), rel=1e-5)


def test_more_dimensions_than_samples() -> None:
    x = normal(5, 40)
    assert effective_rank(x) <= 4 + 1e-9
    assert rankme(x) > 4.5


def test_standardize_is_what_scikit_learn_does_and_leaves_no_residue_in_constant_dimensions() -> None:
    x = normal(50, 4) * [1, 10, 1e-3, 1] + [0, 5, 0, 0]
    x[:, 3] = 0.1  # the float64 mean of fifty 0.1 is not 0.1
    np.testing.assert_allclose(standardize(x), StandardScaler().fit_transform(x), atol=1e-12)
    assert (standardize(x)[:, 3] == 0).all()


def brute_lidar(views: Array, delta: float = 1e-4) -> float:
    n, q, d = views.shape
    mean = views.mean(axis=(0, 1))
    between, within = np.zeros((d, d)), delta * np.eye(d)
    for instance in views:
        mu = instance.mean(axis=0)
        between += np.outer(mu - mean, mu - mean) / (n - 1)
        for view in instance:
            within += np.outer(view - mu, view - mu) / (n * (q - 1))
    values, vectors = np.linalg.eigh(within)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    return exp_entropy([max(0.0, float(v)) for v in np.linalg.eigvalsh(root @ between @ root)])


@pytest.mark.parametrize(("n", "q", "d"), [(20, 10, 6), (4, 2, 9), (7, 3, 2)])
def test_lidar_is_its_definition(n: int, q: int, d: int) -> None:
    views = normal(n, 1, d) * np.arange(1, d + 1) + 0.3 * normal(n, q, d, seed=1)
    assert lidar(views) == pytest.approx(brute_lidar(views), rel=1e-8)


def test_lidar_goes_by_blocks_of_instances_to_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    views = normal(23, 1, 4) + 0.3 * normal(23, 3, 4, seed=1)
    whole = lidar(views)
    monkeypatch.setattr(geometry, "BLOCK", 5)
    assert lidar(views) == pytest.approx(whole, rel=1e-12)


def test_lidar_depends_on_which_views_belong_together() -> None:
    """Instances differ along one of eight directions, views scatter along the other seven."""
    means, scatter = np.zeros((400, 1, 8)), normal(400, 10, 8, seed=1)
    means[:, 0, 0] = 20 * normal(400)
    scatter[:, :, 0] *= 0.01
    views = means + scatter
    shuffled = np.random.default_rng(0).permutation(views.reshape(-1, 8)).reshape(views.shape)
    assert lidar(views) < 1.01
    assert lidar(shuffled) > 6


def test_lidar_of_isotropic_instances_is_the_dimension() -> None:
    views = normal(20_000, 1, 5) + 0.1 * normal(20_000, 2, 5, seed=1)
    assert lidar(views) == pytest.approx(5, rel=1e-3)


def test_alignment_is_the_mean_over_pairs_of_views_of_an_instance() -> None:
    views = normal(6, 4, 3)
    unit = views / np.linalg.norm(views, axis=-1, keepdims=True)
    pairs = [((a - b) ** 2).sum() for instance in unit for a, b in itertools.combinations(instance, 2)]
    assert alignment(views) == pytest.approx(np.mean(pairs))


def test_alignment_of_equal_and_opposite_views() -> None:
    x = normal(5, 1, 3)
    assert alignment(np.concatenate([x, 7 * x], axis=1)) == pytest.approx(0, abs=1e-15)
    assert alignment(np.concatenate([x, -x], axis=1)) == pytest.approx(4)


def brute_uniformity(x: Array) -> float:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    potentials = [math.exp(-2 * ((a - b) ** 2).sum()) for a, b in itertools.combinations(unit, 2)]
    return math.log(sum(potentials) / len(potentials))


@pytest.mark.parametrize("block", [1, 7, 40, 100])
def test_uniformity_is_the_mean_over_different_samples(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "BLOCK", block)
    x = normal(40, 3) + 0.5
    assert uniformity(x) == pytest.approx(brute_uniformity(x), rel=1e-10)


def test_uniformity_of_opposite_poles() -> None:
    assert uniformity([[1.0, 0.0], [-3.0, 0.0]]) == pytest.approx(-8)


def test_uniformity_of_many_samples_is_close_to_all_pairs_and_repeatable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenth of the rows, on clustered features, the case where a sample of pairs varies most."""
    centres = normal(10, 16)
    x = centres[np.random.default_rng(1).integers(10, size=4000)] + 0.3 * normal(4000, 16)
    exact = uniformity(x)
    monkeypatch.setattr(geometry, "UNIFORMITY_ROWS", 400)
    assert uniformity(x) != exact
    assert uniformity(x) == pytest.approx(exact, abs=0.02)
    assert uniformity(x) == uniformity(x.copy())


def test_mean_cosine_is_the_mean_over_different_samples() -> None:
    x = normal(30, 4) + 0.3
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert mean_cosine(x) == pytest.approx(np.mean([a @ b for a, b in itertools.combinations(unit, 2)]))


def test_collapsed_features_have_stated_values() -> None:
    constant = np.full((10, 4), 0.1)
    assert effective_rank(constant) == pytest.approx(1)
    assert rankme(constant) == pytest.approx(1, abs=1e-4)
    assert [uniformity(constant), mean_cosine(constant)] == pytest.approx([0, 1])
    zeros = standardize(constant)
    assert (effective_rank(zeros), rankme(zeros), first_component_share(zeros)) == (1, 1, 1)
    assert (uniformity(zeros), mean_cosine(zeros)) == (0, 0)
    assert (lidar(np.zeros((5, 3, 4))), alignment(np.zeros((5, 3, 4)))) == (1, 0)


@pytest.mark.parametrize("metric", OF_FEATURES)
def test_tensors_are_taken_in_any_precision(metric: Callable[..., float]) -> None:
    x = torch.from_numpy(normal(20, 3)).to(torch.bfloat16).requires_grad_()
    assert metric(x) == metric(x.detach().double().numpy())


@pytest.mark.parametrize("metric", [*OF_FEATURES, standardize, singular_values])
def test_features_that_have_no_geometry_are_refused(metric: Callable[..., float]) -> None:
    with pytest.raises(InputError, match=r"at least 2 samples, got \(1, 3\)"):
        metric(np.ones((1, 3)))
    with pytest.raises(InputError, match=r"shape \(samples, d\)"):
        metric(np.ones(3))
    broken = normal(5, 3)
    broken[2, 1] = np.nan
    with pytest.raises(InputError, match="NaN or infinite values in 1 of 5 rows, first in row 2"):
        metric(broken)


@pytest.mark.parametrize("metric", OF_VIEWS)
def test_views_that_cannot_be_compared_are_refused(metric: Callable[..., float]) -> None:
    with pytest.raises(InputError, match=r"2 views of each, got \(4, 1, 3\)"):
        metric(np.ones((4, 1, 3)))
    with pytest.raises(InputError, match=r"shape \(instances, views, d\)"):
        metric(np.ones((4, 3)))
    with pytest.raises(InputError, match="infinite"):
        metric(np.full((4, 2, 3), np.inf))


def test_lidar_needs_two_instances() -> None:
    with pytest.raises(InputError, match="at least 2 instance"):
        lidar(normal(1, 5, 3))
