"""Everything that is measured about one encoder: probes where there are labels, geometry always."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from icone.evaluation import geometry
from icone.evaluation.inputs import FloatArray
from icone.evaluation.probes import ProbeResult, knn_probe, linear_probe
from icone.evaluation.recognition import recognition

Features = npt.NDArray[np.float32]
Groups = npt.NDArray[np.int64] | None


@dataclass(frozen=True)
class Partition:
    """Which rows of the features train a probe and which test it, with the class name of every row."""

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    labels: npt.NDArray[np.str_]
    minority: Sequence[str] | None = None


def geometry_figures(features: Features, view_features: Features | None, groups: Groups = None) -> dict[str, float]:
    """What the verdict and the plots need of features (N, d), and of random views (n, V, d) where there are any.

    As in the paper, geometry is measured on standardised features; first component and mean cosine are those of
    the features as they are. `rank_limit` is the largest rank that centred features of this shape can have.
    `groups` (n,) are the classes that an encoder was taught to unite.
    """
    standardized = geometry.standardize(features)
    figures = {
        "rankme": geometry.rankme(standardized),
        "variance_rank": geometry.variance_rank(standardized),
        "rank_limit": float(min(len(features) - 1, features.shape[1])),
        "first_component": geometry.first_component_share(features),
        "mean_cosine": geometry.mean_cosine(features),
        "uniformity": geometry.uniformity(standardized),
    }
    if view_features is not None:
        views = _standardize_views(view_features)
        figures["alignment"] = geometry.alignment(views)
        recognised = recognition(views, groups)
        if recognised is not None:
            figures |= {"recognition": recognised.share, "recognition_error": recognised.error}
    return figures


def beside_untrained(figures: Mapping[str, float], untrained: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one epoch with those of the encoder before training, `untrained_…`, in one dictionary."""
    return {**figures, **{f"untrained_{name}": value for name, value in untrained.items()}}


def assess(
    features: Features,
    view_features: Features | None,
    probes: Mapping[str, ProbeResult] | None = None,
    groups: Groups = None,
) -> dict[str, Any]:
    """All metrics of one encoder as a dictionary that JSON can hold.

    `features` (N, d) are those of the deterministic views; `view_features` (n, V, d) those of random ones, for
    LiDAR, alignment and recognition; `probes` come from `run_probes`. `spectrum` holds the singular values of the
    standardised features; `rankme_raw` is on the features as they are, where a common offset counts as a direction.
    """
    spectrum = geometry.singular_values(geometry.standardize(features))
    figures: dict[str, Any] = {
        **geometry_figures(features, view_features, groups),
        "effective_rank": geometry.entropy_rank(spectrum),
        "rankme_raw": geometry.rankme(features),
        "spectrum": [float(f"{value:.5g}") for value in spectrum],
    }
    if view_features is not None:
        figures["lidar"] = geometry.lidar(_standardize_views(view_features))
    return figures | {name: _plain(result) for name, result in (probes or {}).items()}


def _standardize_views(views: Features) -> FloatArray:
    return geometry.standardize(views.reshape(-1, views.shape[-1])).reshape(views.shape)


def run_probes(features: Features, partition: Partition | None) -> dict[str, ProbeResult]:
    """Linear probe and kNN-1/5/20 by name, as far as there are samples; none without a partition."""
    if partition is None:
        return {}
    train_x, test_x = features[partition.train], features[partition.test]
    train_y, test_y = partition.labels[partition.train], partition.labels[partition.test]
    results = {"linear_probe": linear_probe(train_x, train_y, test_x, test_y, minority=partition.minority)}
    for k in (1, 5, 20):
        if k <= len(train_x):
            results[f"knn_{k}"] = knn_probe(train_x, train_y, test_x, test_y, k=k, minority=partition.minority)
    return results


def _plain(result: ProbeResult) -> dict[str, Any]:
    return {
        "balanced_accuracy": result.balanced_accuracy,
        "accuracy": result.accuracy,
        "minority_accuracy": result.minority_accuracy,
        "per_class": result.per_class,
        "classes": list(result.classes),
        "confusion": result.confusion.tolist(),
        "note": result.note,
    }
