"""Metrics of the synthetic study (Appendix F): the representation on the circle, epoch by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from icone.api.embed import load_encoder
from icone.data import load_for_inference, stratified_split
from icone.evaluation.features import extract
from icone.evaluation.geometry import uniformity
from icone.evaluation.probes import knn_probe, linear_probe
from icone.paper.outcome import Point
from icone.paper.spec import RunSpec
from icone.run import Run, read_tensors

PANELS = (0, 5, 25, 100, 200, 299)
"""Epochs (counted from 0) of the paper's evolution figure."""
Floats = npt.NDArray[np.float64]


def measure_synthetic(run: Run, spec: RunSpec) -> tuple[dict[str, float], list[Point], dict[str, Any]]:
    """Final metrics, metrics by epoch, and the arrays of the pictures (points, labels, representations)."""
    encoder = load_encoder(run)
    data = load_for_inference(run.config.source, encoder.preparation, run.config)
    labels = data.labels.numpy()
    train, test = stratified_split(labels, spec.test_fraction, run.config.split_seed)
    trace: list[Point] = []
    kept: dict[int, npt.NDArray[np.float32]] = {}
    for epoch in spec.trace:
        encoder.encoder.load_state_dict(read_tensors(run.snapshot_file(epoch))[0])
        on_circle = _unit(extract(encoder, data, batch_size=len(data)))
        metrics = circle_metrics(on_circle, labels, train, test)
        trace += [Point(epoch, name, value) for name, value in metrics.items()]
        if epoch in shown_epochs(spec.trace):
            kept[epoch] = on_circle.astype(np.float32)
    points = np.stack([np.ravel(image) for image in data.images_at(torch.arange(len(data))).numpy()])
    panels = {"points": points, "labels": labels, **{f"epoch_{epoch}": xy for epoch, xy in kept.items()}}
    return metrics, trace, panels


def circle_metrics(z: Floats, labels: npt.NDArray[np.int64], train: Any, test: Any) -> dict[str, float]:
    """kNN-5, linear probe, alignment of same-class pairs, uniformity and silhouette of unit vectors (N, d)."""
    from sklearn.metrics import silhouette_score

    probes = [probe(z[train], labels[train], z[test], labels[test]) for probe in (knn_probe, linear_probe)]
    return {
        "knn_5": probes[0].balanced_accuracy,
        "linear_probe": probes[1].balanced_accuracy,
        "class_alignment": class_alignment(z, labels),
        "uniformity": uniformity(z),
        "silhouette": float(silhouette_score(z, labels)),
    }


def class_alignment(z: Floats, labels: npt.NDArray[np.int64]) -> float:
    """Mean squared distance between two different samples of one class, over all such pairs.

    >>> class_alignment(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 1]))
    4.0
    """
    total, pairs = 0.0, 0
    for name in np.unique(labels):
        members = z[labels == name]
        n = len(members)
        total += 2 * (n * float((members**2).sum()) - float((members.sum(axis=0) ** 2).sum()))  # both orders of a pair
        pairs += n * (n - 1)
    return total / pairs


def shown_epochs(trace: tuple[int, ...]) -> tuple[int, ...]:
    """The epochs of the evolution figure: the paper's where they were measured, else six spread over the trace."""
    if set(PANELS) <= set(trace):
        return PANELS
    places = np.unique(np.linspace(0, len(trace) - 1, len(PANELS)).round().astype(int))
    return tuple(trace[i] for i in places)


def _unit(x: npt.NDArray[np.float32]) -> Floats:
    norm = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    unit: Floats = x / np.where(norm == 0, 1, norm)
    return unit
