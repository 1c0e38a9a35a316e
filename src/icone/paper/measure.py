"""The metrics of a trained run, as the results table holds them."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from icone.api.embed import load_encoder
from icone.api.evaluate import evaluate, notes
from icone.config import PretrainConfig
from icone.data import load_for_inference, stratified_split
from icone.data.splits import minority_classes
from icone.evaluation.features import extract
from icone.evaluation.geometry import uniformity
from icone.evaluation.metrics import UNTRAINED, metric_value, metrics_shown
from icone.evaluation.probes import knn_probe, linear_probe
from icone.files import replacing
from icone.paper.outcome import Outcome, Point
from icone.paper.results import TESTED
from icone.paper.spec import RunSpec
from icone.run import Run
from icone.tensor_files import read_tensors

FEATURES = "features.npz"
KEPT_SEED = 0
"""Features are kept for the first seed only: the maps show one run, and a sweep of thousands must fit on a disk."""


def _time(run: Run, config: PretrainConfig) -> dict[str, Any]:
    """What the history of a run tells about its time, as `Outcome` holds it."""
    seconds = [row["seconds"] for row in run.history]
    per_epoch = math.ceil(run.record["data"]["instances"] / (config.batch_size * config.accumulate))
    preparation = run.record["data"]["preparation"]
    return {
        "train_seconds": round(sum(seconds), 3),
        "steps": len(seconds) * per_epoch,
        "step_seconds": statistics.median(seconds[1:] or seconds) / per_epoch,
        "sample": "x".join(map(str, (preparation["channels"], *preparation["size"]))),
    }


def measure(run: Run, spec: RunSpec, config: PretrainConfig, device: str, console: Console) -> Outcome:
    """Probes and geometry of the encoder; with a trace, the metrics of the synthetic study by epoch instead."""
    time = _time(run, config)
    target = run.folder.parent / FEATURES
    if spec.trace:
        metrics, trace, panels = measure_synthetic(run, spec)
        if config.seed == KEPT_SEED:
            _save(target, panels)
        return Outcome(status="done", metrics=metrics, trace=trace, **time)
    result = evaluate(
        run,
        data_root=config.data_root,
        official_test=spec.official_test,
        test_fraction=spec.test_fraction,
        untrained=spec.untrained,
        geometry_instances=spec.geometry_instances,
        device=device,
        console=console,
    )
    metrics = _values(result["trained"])
    metrics |= {"linear_accuracy": result["trained"]["linear_probe"]["accuracy"], "loss": run.history[-1]["loss"]}
    if config.imbalance is None and (recall := _minority_recall(run, result["trained"]["linear_probe"]["per_class"])):
        metrics["minority_unthinned"] = recall
    if spec.untrained:
        metrics |= {f"{UNTRAINED}{name}": value for name, value in _values(result["untrained"]).items()}
    if config.seed == KEPT_SEED:
        _save(target, _light_features(run))
    said = [*run.record["data"]["notes"], *notes(result)]
    return Outcome(status="done", metrics=metrics, notes=said, tested=_tested(result), **time)


def _tested(result: dict[str, Any]) -> dict[str, str]:
    """Test samples and which of them the probes have right, in the words of `Outcome`; nothing without probes."""
    if "tested" not in result:
        return {}
    samples = {f"test_{name}": found for name, found in result["tested"].items() if name != "right"}
    right = {f"right_{name}": found for name, found in result["tested"]["right"].items()}
    return {name: found for name, found in {**samples, **right}.items() if name in TESTED}


def _minority_recall(run: Run, per_class: dict[str, float]) -> float | None:
    """Mean recall of the classes that the imbalance experiment would thin out: its point at k = 1."""
    names, labels = run.instances["class_names"], np.unique(run.instances["labels"])
    designated = [names[code] for code in minority_classes(labels[labels >= 0], run.config.split_seed)]
    found = [per_class[name] for name in designated if name in per_class]
    return float(np.mean(found)) if found else None


def _values(measured: dict[str, Any]) -> dict[str, float]:
    found = {metric.name: metric_value(measured, metric) for metric in metrics_shown("evaluation", "sweep")}
    return {name: value for name, value in found.items() if value is not None}


def _light_features(run: Run) -> dict[str, Any]:
    with np.load(run.features_file) as content:
        return {"features": content["features"].astype(np.float16), "labels": content["labels"]}


def _save(path: Path, arrays: dict[str, Any]) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


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
        encoder.encoder.load_state_dict(read_tensors(run.snapshot_file(epoch + 1))[0])
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
