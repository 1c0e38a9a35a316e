"""The metrics of a trained run, as the results table holds them."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from icone.api.evaluate import evaluate, notes
from icone.config import PretrainConfig
from icone.data.splits import minority_classes
from icone.evaluation.metrics import UNTRAINED, metric_value, metrics_shown
from icone.paper.outcome import Point
from icone.paper.results import TESTED
from icone.paper.spec import RunSpec
from icone.paper.synthetic_measures import measure_synthetic
from icone.run import Run, replacing

FEATURES = "features.npz"
KEPT_SEED = 0
"""Features are kept for the first seed only: the maps show one run, and a sweep of thousands must fit on a disk."""


@dataclass(frozen=True)
class Measured:
    """What is known about a trained run."""

    metrics: dict[str, float] = field(default_factory=dict)
    trace: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tested: dict[str, str] = field(default_factory=dict)
    train_seconds: float = 0.0
    steps: int = 0
    step_seconds: float = 0.0
    sample: str | None = None


class _Time(NamedTuple):
    """What the history of a run tells about its time."""

    train_seconds: float
    steps: int
    step_seconds: float
    sample: str


def _time(run: Run, config: PretrainConfig) -> _Time:
    seconds = [row["seconds"] for row in run.history]
    per_epoch = math.ceil(run.record["data"]["instances"] / (config.batch_size * config.accumulate))
    steady = statistics.median(seconds[1:] or seconds) / per_epoch
    preparation = run.record["data"]["preparation"]
    sample = "x".join(map(str, (preparation["channels"], *preparation["size"])))
    return _Time(sum(seconds), len(seconds) * per_epoch, steady, sample)


def measure(run: Run, spec: RunSpec, config: PretrainConfig, device: str, console: Console) -> Measured:
    """Probes and geometry of the encoder; with a trace, the metrics of the synthetic study by epoch instead."""
    time = _time(run, config)
    target = run.folder.parent / FEATURES
    if spec.trace:
        metrics, trace, panels = measure_synthetic(run, spec)
        if config.seed == KEPT_SEED:
            _save(target, panels)
        return Measured(metrics, trace, [], {}, *time)
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
    return Measured(metrics, [], [*run.record["data"]["notes"], *notes(result)], _tested(result), *time)


def _tested(result: dict[str, Any]) -> dict[str, str]:
    """Test samples and which of them the probes have right, in the words of `Outcome`; nothing without probes."""
    if "tested" not in result:
        return {}
    right = {f"right_{name}": found for name, found in result["tested"]["right"].items()}
    return {
        name: found for name, found in {"test_labels": result["tested"]["labels"], **right}.items() if name in TESTED
    }


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
