"""Near-duplicates and outliers among samples: by features, and by a perceptual hash of the prepared samples.

A pair counts as a near-duplicate where two independent signs agree: the encoder has the two among each other's nearest
neighbours with almost the same features, and their hashes differ in few bits. An encoder alone unites what looks alike
to it, and a hash alone what has the same coarse shape; both together are rarely wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.evaluation.geometry import standardize
from icone.evaluation.inputs import Features, FloatArray

NEIGHBOURS = 5
COSINE = 0.9
"""Least cosine between the standardised features of a pair."""
HASH_SHARE = 0.1
"""Largest share of the bits of two hashes that differ; unrelated pictures differ in about half, or less where a common
background decides some of them."""
CUTOFF = 3.5
"""Modified z-score beyond which a distance is an outlier (Iglewicz and Hoaglin 1993)."""
HASH_EDGE = 8

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pair:
    """Two samples, by row, that are nearly the same."""

    first: int
    second: int
    cosine: float
    hash_distance: float
    """Share of the bits of their hashes that differ."""


@dataclass(frozen=True)
class Outlier:
    """A sample, by row, that is far from all others."""

    row: int
    distance: float
    """Mean distance to its 5 nearest neighbours, on standardised features."""
    score: float
    """Modified z-score of the logarithm of the distance."""


@dataclass(frozen=True)
class Found:
    """Near-duplicates, most alike first, and outliers, farthest first."""

    duplicates: list[Pair]
    outliers: list[Outlier]

    def to_json(self, ids: Sequence[str], splits: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
        """Plain data with what is known about the samples."""

        def sample(row: int) -> dict[str, str]:
            return {"id": ids[row], "split": splits[row], "label": labels[row]}

        return {
            "samples": len(ids),
            "duplicates": [
                {"samples": [sample(p.first), sample(p.second)], "cosine": p.cosine, "hash_distance": p.hash_distance}
                for p in self.duplicates
            ],
            "outliers": [{**sample(o.row), "distance": o.distance, "score": o.score} for o in self.outliers],
            "thresholds": {"cosine": COSINE, "hash_distance": HASH_SHARE, "score": CUTOFF, "neighbours": NEIGHBOURS},
        }


def perceptual_hash(image: Tensor) -> Bits:
    """The difference hash of a prepared sample (C, *size): 128 bits of an image, 384 of a volume's centre slices.

    The mean of the channels is reduced to 9 x 9 by area; a bit says whether a cell is brighter than its left
    neighbour, or than the one above. Brightness, contrast, size and compression hardly change it.

    >>> perceptual_hash(torch.rand(3, 32, 32)).shape, perceptual_hash(torch.rand(1, 16, 16, 16)).shape
    ((128,), (384,))
    """
    gray = image.float().mean(dim=0)
    planes = [gray] if gray.dim() == 2 else [gray.select(axis, gray.shape[axis] // 2) for axis in range(3)]
    bits = []
    for plane in planes:
        cells = F.interpolate(plane[None, None], size=(HASH_EDGE + 1, HASH_EDGE + 1), mode="area")[0, 0]
        bits += [(cells[1:, 1:] > cells[1:, :-1]).flatten(), (cells[1:, 1:] > cells[:-1, 1:]).flatten()]
    hashed: Bits = torch.cat(bits).numpy()
    return hashed


def find_near_duplicates(x: Features, hashes: Bits | None) -> Found:
    """Near-duplicates and outliers by features (N, d) and hashes (N, bits); without hashes outliers only."""
    features = standardize(x)
    outliers = _outliers(features)
    return Found([] if hashes is None else _pairs(features, hashes), outliers)


def _neighbours(features: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Distances and rows of the nearest other samples, (N, k)."""
    from sklearn.neighbors import NearestNeighbors

    k = min(NEIGHBOURS, len(features) - 1)
    distances, rows = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(features.astype(np.float32)).kneighbors()
    return distances.astype(np.float64), rows.astype(np.int64)


def _pairs(features: FloatArray, hashes: Bits) -> list[Pair]:
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.where(norms == 0, 1, norms)
    rows = _neighbours(unit)[1]  # on the sphere, the nearest are those of the largest cosine
    both = np.stack([np.repeat(np.arange(len(rows)), rows.shape[1]), rows.ravel()], axis=1)
    candidates = np.unique(np.sort(both, axis=1), axis=0)
    cosines = np.einsum("ij,ij->i", unit[candidates[:, 0]], unit[candidates[:, 1]])
    differing = (hashes[candidates[:, 0]] != hashes[candidates[:, 1]]).mean(axis=1)
    agreed = np.flatnonzero((cosines >= COSINE) & (differing <= HASH_SHARE))
    pairs = [Pair(int(candidates[i, 0]), int(candidates[i, 1]), float(cosines[i]), float(differing[i])) for i in agreed]
    return sorted(pairs, key=lambda pair: (-pair.cosine, pair.first, pair.second))


def _outliers(features: FloatArray) -> list[Outlier]:
    """Samples whose distance to their neighbours is far above the median: 0.6745 (log d − median) / MAD > 3.5."""
    distances = _neighbours(features)[0].mean(axis=1)
    positive = distances[distances > 0]
    if len(positive) < 3:
        return []
    logs = np.log(np.maximum(distances, positive.min()))  # copies have no distance, and are no outliers
    deviations = logs - np.median(logs)
    spread = np.median(np.abs(deviations))
    scores = 0.6745 * deviations / spread if spread > 0 else np.zeros_like(deviations)
    found = [Outlier(int(row), float(distances[row]), float(scores[row])) for row in np.flatnonzero(scores > CUTOFF)]
    return sorted(found, key=lambda outlier: -outlier.score)
