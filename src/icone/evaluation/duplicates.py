"""Near-duplicates and outliers among samples: by features, and by the pictures of the prepared samples.

A pair counts as a near-duplicate where two independent signs agree: the encoder has the two among each other's nearest
neighbours with almost the same features, and their pictures, made small, are nearly the same. An encoder alone unites
what looks alike to it. How alike pictures must be depends on the samples: digits on a black ground are all much alike,
photographs are not. A copy is therefore one that is far nearer than the nearest other picture usually is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor

from icone.evaluation.geometry import standardize
from icone.evaluation.inputs import Features, FloatArray

NEIGHBOURS = 5
COSINE = 0.9
"""Least cosine between the standardised features of a pair."""
CLOSER = 10
"""How many times nearer than the nearest other picture usually is a near-duplicate must be."""
COPY, MOST_DIFFERENT = 0.002, 0.04
"""1 − correlation of two pictures: below the first they are copies in any set, above the second in none. Weak noise and
compression of good quality stay below the first; a shift by a sixtieth of the edge is about at half of the second.
docs/decisions/near-duplicates.md has the measurements."""
ASKED = 1000
"""Samples, spread over all, whose nearest other picture says what is usual."""
CUTOFF = 3.5
"""Modified z-score beyond which a distance is an outlier (Iglewicz and Hoaglin 1993)."""
UNIFORM = 1e-6
"""Length per cell below which the rest of a picture without its mean is rounding."""
CELLS = {2: 16, 3: 8}
"""Cells along an edge of the small picture of an image and of a volume."""

Pictures = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pair:
    """Two samples, by row, that are nearly the same."""

    first: int
    second: int
    cosine: float
    correlation: float
    """Of their small pictures."""


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
    least_correlation: float | None = None
    """What the pictures of a pair had to reach in this set; None without pictures."""

    def to_json(self, ids: Sequence[str], splits: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
        """Plain data with what is known about the samples."""

        def sample(row: int) -> dict[str, str]:
            return {"id": ids[row], "split": splits[row], "label": labels[row]}

        return {
            "samples": len(ids),
            "duplicates": [
                {"samples": [sample(p.first), sample(p.second)], "cosine": p.cosine, "correlation": p.correlation}
                for p in self.duplicates
            ],
            "outliers": [{**sample(o.row), "distance": o.distance, "score": o.score} for o in self.outliers],
            "thresholds": {
                "cosine": COSINE,
                "correlation": self.least_correlation,
                "score": CUTOFF,
                "neighbours": NEIGHBOURS,
            },
        }


def small_picture(image: Tensor) -> Pictures:
    """The small gray picture of a prepared sample (C, *size) as a vector of mean 0 and length 1; 0 where it is uniform.

    The mean of the channels is reduced by area to 16 x 16 cells, of a volume 8 x 8 x 8, or fewer where it has fewer
    pixels. The product of two such vectors is the correlation of the pictures, which brightness and contrast do not
    change, and noise and compression hardly.

    >>> import torch
    >>> small_picture(torch.rand(3, 32, 32)).shape, small_picture(torch.rand(1, 16, 16, 6)).shape
    ((256,), (384,))
    """
    gray = image.float().mean(dim=0)
    cells = [min(CELLS[gray.dim()], edge) for edge in gray.shape]
    values = F.interpolate(gray[None, None], size=cells, mode="area").flatten().double().numpy()
    values = values - values.mean()
    length = float(np.linalg.norm(values))
    unit = values / length if length > UNIFORM * len(values) else np.zeros_like(values)
    return np.asarray(unit, np.float32)


def find_near_duplicates(x: Features, pictures: Pictures | None) -> Found:
    """Near-duplicates and outliers by features (N, d) and small pictures (N, cells); without these outliers only."""
    features = standardize(x)
    outliers = _outliers(features)
    if pictures is None:
        return Found([], outliers)
    least = least_correlation(pictures)
    return Found(_pairs(features, pictures, least), outliers, least)


def least_correlation(pictures: Pictures) -> float:
    """What the correlation of a pair must reach in this set of small pictures (N, cells).

    The distance 1 − correlation to the nearest other picture that is no copy has a median; a tenth of it is the limit.
    """
    rows = np.unique(np.linspace(0, len(pictures) - 1, ASKED).round().astype(np.int64))
    nearest = []
    for part in np.array_split(rows, -(-len(rows) // 100)):
        distances = 1 - pictures[part] @ pictures.T
        distances[np.arange(len(part)), part] = np.inf
        nearest.append(np.where(distances < COPY, np.inf, distances).min(axis=1))
    known = np.concatenate(nearest)
    known = known[np.isfinite(known)]
    usual = float(np.median(known)) if len(known) else 0.0
    return 1 - min(max(usual / CLOSER, COPY), MOST_DIFFERENT)


def _neighbours(features: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Distances and rows of the nearest other samples, (N, k)."""
    from sklearn.neighbors import NearestNeighbors

    k = min(NEIGHBOURS, len(features) - 1)
    distances, rows = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(features.astype(np.float32)).kneighbors()
    return distances.astype(np.float64), rows.astype(np.int64)


def _pairs(features: FloatArray, pictures: Pictures, least: float) -> list[Pair]:
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.where(norms == 0, 1, norms)
    rows = _neighbours(unit)[1]  # on the sphere, the nearest are those of the largest cosine
    both = np.stack([np.repeat(np.arange(len(rows)), rows.shape[1]), rows.ravel()], axis=1)
    candidates = np.unique(np.sort(both, axis=1), axis=0)
    cosines = np.einsum("ij,ij->i", unit[candidates[:, 0]], unit[candidates[:, 1]])
    alike = np.einsum("ij,ij->i", pictures[candidates[:, 0]], pictures[candidates[:, 1]])
    agreed = np.flatnonzero((cosines >= COSINE) & (alike >= least))
    pairs = [Pair(int(candidates[i, 0]), int(candidates[i, 1]), float(cosines[i]), float(alike[i])) for i in agreed]
    return sorted(pairs, key=lambda pair: (-round(pair.correlation, 5), pair.first, pair.second))


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
