"""Everything that is measured about one encoder: probes where there are labels, geometry always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from icone.data.targets import Task, label_set
from icone.evaluation import geometry
from icone.evaluation.metrics import METRICS, UNTRAINED, Array, Embedding, Metric, metrics_shown
from icone.evaluation.multilabel import MultilabelResult, multilabel_probe
from icone.evaluation.probes import ProbeResult, knn_probe, linear_probe
from icone.evaluation.recognition import GAIN_ERROR, Recognition
from icone.evaluation.regression import RegressionResult, knn_regressor, ridge_probe

Result = ProbeResult | RegressionResult | MultilabelResult
NEIGHBOURS = 5
"""Of the regression by nearest neighbours."""


@dataclass(frozen=True)
class Partition:
    """Which rows of the features train a probe and which test it, with the label of every row.

    A label is the name of a class, a number, or several names (`a|b`), as `task` says.
    """

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    labels: npt.NDArray[np.str_]
    minority: Sequence[str] | None = None
    task: Task = "classification"
    groups: Sequence[str] | None = None
    """The group of every row, where there are groups: what chooses a penalty must not part them either."""

    def codes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The classes of these rows as numbers; all the same where labels are no classes."""
        if self.task != "classification":
            return np.zeros(len(rows), np.int64)
        return np.unique(self.labels[rows], return_inverse=True)[1].astype(np.int64)

    def groups_of(self, rows: npt.NDArray[np.int64]) -> list[str] | None:
        """The groups of these rows, where there are groups."""
        return None if self.groups is None else [self.groups[row] for row in rows]


def geometry_metrics(embedding: Embedding, before: Recognition | None = None) -> dict[str, float]:
    """What is measured while training, and what the verdict needs.

    As in the paper, geometry is measured on standardised features; first component and mean cosine are those of
    the features as they are. `rank_limit` is the largest rank that centred features of this shape can have.
    `before` is the recognition of the untrained encoder by the same views.
    """
    return _geometry(embedding, before, metrics_shown("training"))


def _geometry(embedding: Embedding, before: Recognition | None, metrics: Iterable[Metric]) -> dict[str, float]:
    values = {metric.name: metric.measure(embedding) for metric in metrics if metric.measure is not None}
    limit, now = float(min(len(embedding.features) - 1, embedding.features.shape[1])), embedding.recognised
    errors = {
        "recognition_error": None if now is None else now.error,
        GAIN_ERROR: None if now is None or before is None else now.gain_error(before),
    }
    return {name: value for name, value in {**values, "rank_limit": limit, **errors}.items() if value is not None}


def with_untrained(metrics: Mapping[str, float], untrained: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one epoch with those of the encoder before training, `untrained_…`, in one dictionary."""
    return {**metrics, **{f"{UNTRAINED}{name}": value for name, value in untrained.items()}}


def assess(
    embedding: Embedding, probes: Mapping[str, Result] | None = None, before: Recognition | None = None
) -> dict[str, Any]:
    """All metrics of one encoder as a dictionary that JSON can hold.

    `embedding` has features (N, d) of the deterministic views, and random views (n, V, d) for LiDAR, alignment and
    recognition; `probes` come from `run_probes`; `before` is the recognition of the untrained encoder by the same
    views. `spectrum` holds the singular values of the standardised features; `rankme_raw` is on the features as they
    are, where a common offset counts as a direction.
    """
    return {
        **_geometry(embedding, before, METRICS.values()),
        "rankme_raw": geometry.rankme(embedding.features),
        "spectrum": [float(f"{value:.5g}") for value in geometry.singular_values(embedding.standardized)],
        **{name: result.to_json() for name, result in (probes or {}).items()},
    }


def run_probes(features: Array, partition: Partition | None) -> dict[str, Result]:
    """Probes by name, as far as there are samples; none without a partition.

    Classes: linear probe and kNN-1/5/20. Numbers: ridge regression and the mean of 5 neighbours. Several labels per
    sample: one logistic regression per label.
    """
    if partition is None:
        return {}
    train_x, test_x = features[partition.train], features[partition.test]
    train_y, test_y = partition.labels[partition.train], partition.labels[partition.test]
    groups = partition.groups_of(partition.test)
    if partition.task == "regression":
        numbers = train_x, train_y.astype(np.float64), test_x, test_y.astype(np.float64)
        ridge = ridge_probe(*numbers, groups=partition.groups_of(partition.train), test_groups=groups)
        if len(train_x) < NEIGHBOURS:
            return {"ridge_probe": ridge}
        return {"ridge_probe": ridge, "knn_regressor": knn_regressor(*numbers, k=NEIGHBOURS, test_groups=groups)}
    if partition.task == "multilabel":
        known, truth = ([label_set(text) for text in part] for part in (train_y, test_y))
        return {"multilabel_probe": multilabel_probe(train_x, known, test_x, truth)}
    about: dict[str, Any] = {"minority": partition.minority, "test_groups": groups}
    results: dict[str, Result] = {"linear_probe": linear_probe(train_x, train_y, test_x, test_y, **about)}
    for k in (1, 5, 20):
        if k <= len(train_x):
            results[f"knn_{k}"] = knn_probe(train_x, train_y, test_x, test_y, k=k, **about)
    return results
