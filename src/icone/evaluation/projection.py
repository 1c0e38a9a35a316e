"""Features as a map: two coordinates per sample, nearest neighbours, density and clusters.

All of them look at standardised features, as the probes do. scikit-learn is imported where it is used.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from icone.errors import optional, unknown_name
from icone.evaluation.geometry import standardize
from icone.evaluation.inputs import Features

ProjectionName = Literal["umap", "tsne", "pca"]
PROJECTIONS: dict[ProjectionName, str] = {"umap": "UMAP", "tsne": "t-SNE", "pca": "PCA"}
UMAP_NEIGHBOURS = 15
PERPLEXITY = 30.0
FEWEST = 5
"""Samples below which UMAP and t-SNE have nothing to arrange."""
PRINCIPAL = 50
"""Principal components that UMAP and t-SNE see: it halves their time and drops noise."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Projection:
    """Coordinates (N, 2), and what a reader should know about them."""

    xy: Floats
    note: str | None = None


def project(x: Features, name: ProjectionName = "umap", seed: int = 0) -> Projection:
    """Two coordinates per sample of features (N, d) by UMAP, t-SNE or PCA, always the same for the same seed.

    >>> project(np.eye(3), "pca").xy.shape
    (3, 2)
    """
    if name not in PROJECTIONS:
        raise unknown_name("projection", name, PROJECTIONS)
    features = standardize(x)
    if not features.any():
        return Projection(np.zeros((len(features), 2), np.float32), "All features are the same: one point for all.")
    if name == "pca":
        return Projection(_principal(features, 2))
    if len(features) < FEWEST:
        note = f"{PROJECTIONS[name]} needs at least {FEWEST} samples; this is PCA."
        return Projection(_principal(features, 2), note)
    reduced = _principal(features, PRINCIPAL)
    return _umap(reduced, seed) if name == "umap" else _tsne(reduced, seed)


def _principal(features: npt.NDArray[np.float64], dimensions: int) -> Floats:
    """Principal components, as many as there are; columns of zeros up to two."""
    from sklearn.decomposition import PCA

    count = min(dimensions, *features.shape)
    components = PCA(count, svd_solver="full" if min(features.shape) < 500 else "auto", random_state=0)
    xy: Floats = components.fit_transform(features).astype(np.float32)
    return np.pad(xy, ((0, 0), (0, max(0, 2 - xy.shape[1]))))


def _umap(features: Floats, seed: int) -> Projection:
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports, and of small data that the note speaks of
        with optional("report", "the projection umap"):
            from umap import UMAP

        neighbours = min(UMAP_NEIGHBOURS, len(features) - 1)
        # The spectral start needs more samples than dimensions to solve for.
        start = "spectral" if len(features) > 4 * UMAP_NEIGHBOURS else "random"
        mapper = UMAP(n_neighbors=neighbours, init=start, random_state=seed, n_jobs=1)
        xy = np.asarray(mapper.fit_transform(features), dtype=np.float32)
    torch.set_num_threads(threads)  # its compiler takes all cores for the whole process, and sums come out differently
    few = f"Only {len(features)} samples: UMAP looks at {neighbours} neighbours, so read distances with care."
    return Projection(xy, few if neighbours < UMAP_NEIGHBOURS else None)


def _tsne(features: Floats, seed: int) -> Projection:
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    few = f"Only {len(features)} samples: t-SNE runs with perplexity {perplexity:.1f}, so read distances with care."
    xy = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(features)
    return Projection(xy.astype(np.float32), few if perplexity < PERPLEXITY else None)


@dataclass(frozen=True)
class Neighbourhood:
    """The k nearest other samples of each, nearest first: positions and distances, (N, k)."""

    index: Integers
    distance: Floats

    def density(self) -> Floats:
        """Rank of each sample by the mean distance to its neighbours: 0 the loneliest, 1 the most crowded."""
        order = np.argsort(np.argsort(-self.distance.mean(axis=1), kind="stable"), kind="stable")
        ranks: Floats = (order / max(len(order) - 1, 1)).astype(np.float32)
        return ranks


def neighbourhood(x: Features, k: int = 8) -> Neighbourhood:
    """Nearest neighbours by Euclidean distance of standardised features, without the sample itself.

    >>> neighbourhood([[0.0], [1.0], [5.0]], k=1).index.ravel()
    array([1, 0, 1])
    """
    from sklearn.neighbors import NearestNeighbors

    features = standardize(x).astype(np.float32)
    k = min(k, len(features) - 1)
    distance, index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(features).kneighbors()
    return Neighbourhood(index.astype(np.int64), distance.astype(np.float32))


def clusters(x: Features, count: int, seed: int = 0) -> Integers:
    """k-means on the first principal components: the cluster of each sample, largest cluster first.

    >>> clusters([[0.0], [0.1], [0.2], [9.0]], 2)
    array([0, 0, 0, 1])
    """
    from sklearn.cluster import KMeans

    features = standardize(x)
    if not features.any():
        return np.zeros(len(features), dtype=np.int64)
    reduced = _principal(features, PRINCIPAL)
    count = min(count, len(np.unique(reduced, axis=0)))
    labels = KMeans(count, n_init=4, random_state=seed).fit_predict(reduced)
    order = np.argsort(-np.bincount(labels, minlength=count), kind="stable")
    ranked: Integers = np.argsort(order)[labels]
    return ranked
