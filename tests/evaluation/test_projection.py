"""Maps of features: structure is kept, and the odd cases have a value and a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icone.errors import InputError
from icone.evaluation.projection import PROJECTIONS, ProjectionName, clusters, neighbourhood, project

RNG = np.random.default_rng(0)
CODES = np.arange(90) % 3
BLOBS = 20 * RNG.normal(size=(3, 12))[CODES] + RNG.normal(size=(90, 12))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "umap" else name for name in PROJECTIONS]
)
def test_separate_clusters_stay_separate_and_the_map_is_repeatable(name: ProjectionName) -> None:
    first, second = project(BLOBS, name), project(BLOBS, name)
    np.testing.assert_array_equal(first.xy, second.xy)
    centres = np.stack([first.xy[c == CODES].mean(0) for c in range(3)])
    nearest = np.linalg.norm(first.xy[:, None] - centres, axis=-1).argmin(axis=1)
    assert (nearest == CODES).all()
    assert first.note is None or "perplexity 29.7" in first.note


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("count", [2, 4, 5, 9, 16])
def test_few_samples_are_placed_with_a_sentence(name: ProjectionName, count: int) -> None:
    placed = project(BLOBS[:count], name)
    assert placed.xy.shape == (count, 2)
    assert np.isfinite(placed.xy).all()
    if name != "pca" and count < 16:
        assert placed.note is not None
        assert ("this is PCA" in placed.note) == (count < 5)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_constant_features_lie_at_one_point_and_nan_is_refused(name: ProjectionName) -> None:
    placed = project(np.full((40, 3), 0.1), name)
    assert (placed.xy == 0).all()
    assert placed.note == "All features are the same: one point for all."
    with pytest.raises(InputError, match="NaN"):
        project(np.full((40, 3), np.nan), name)


def test_one_feature_has_a_second_coordinate_of_zero() -> None:
    placed = project(RNG.normal(size=(20, 1)), "pca")
    assert (placed.xy[:, 1] == 0).all()
    assert len(np.unique(placed.xy[:, 0])) == 20


def test_pca_is_the_first_two_left_singular_directions() -> None:
    x = (BLOBS - BLOBS.mean(0)) / BLOBS.std(0)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(np.abs(project(BLOBS, "pca").xy), np.abs(u[:, :2] * s[:2]), rtol=1e-3, atol=1e-4)


def test_a_map_leaves_the_number_of_threads_alone() -> None:
    """With another number a run trained afterwards in the same process would differ in its last digits."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        project(np.random.default_rng(0).normal(size=(40, 5)), "umap")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_an_unknown_projection_is_named() -> None:
    with pytest.raises(InputError, match="unknown projection 'umapp'; did you mean umap"):
        project(BLOBS, "umapp")  # type: ignore[arg-type]


def test_neighbours_are_those_of_a_brute_force_search() -> None:
    near = neighbourhood(BLOBS, 4)
    x = (BLOBS - BLOBS.mean(0)) / BLOBS.std(0)
    distance = np.linalg.norm(x[:, None] - x[None], axis=-1) + 1e9 * np.eye(len(x))
    np.testing.assert_array_equal(near.index, np.argsort(distance, axis=1)[:, :4])
    np.testing.assert_allclose(near.distance, np.sort(distance, axis=1)[:, :4], rtol=1e-3)
    assert neighbourhood(BLOBS[:3], 8).index.shape == (3, 2)


def test_density_ranks_the_crowded_above_the_lonely() -> None:
    x = np.concatenate([np.linspace(0, 0.1, 20), [5.0], [9.0]])[:, None]
    density = neighbourhood(x, 3).density()
    assert density.min() == 0
    assert density.max() == 1
    assert (density[:20] > density[20]).all()
    assert density.argmin() in (20, 21)


def test_clusters_find_the_blobs_and_survive_fewer_points_than_asked() -> None:
    found = clusters(BLOBS, 3)
    assert len({(c, f) for c, f in zip(CODES, found, strict=True)}) == 3
    assert set(clusters(np.zeros((10, 4)), 5)) == {0}
    sizes = np.bincount(clusters(np.concatenate([BLOBS, BLOBS[CODES == 1]]), 3))
    assert (np.diff(sizes) <= 0).all()
