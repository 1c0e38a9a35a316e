"""Everything a page says about one run, as plain data that JSON can hold."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from icone.api.evaluated import evaluate_command
from icone.api.summaries import trained_time
from icone.config_text import to_command, to_json
from icone.encoders.pretrained import LoadedWeights
from icone.errors import InputError
from icone.evaluation.duplicates import Found, find_near_duplicates
from icone.evaluation.metrics import UNTRAINED, metric_texts, metrics_shown, sentence_case
from icone.evaluation.projection import PROJECTIONS, ProjectionName, clusters, neighbourhood, project
from icone.evaluation.verdict import Verdict
from icone.report.data_content import EXAMPLES, data_content, sample_parts
from icone.report.probe_content import efficiency_content, probe_content
from icone.report.samples import (
    Column,
    Samples,
    numbers_or_categories,
    read_samples,
    table_columns,
    with_flags,
)
from icone.report.thumbnails import Drawn, draw_samples
from icone.run import Run, free_folder
from icone.terminal import counted
from icone.training.progress import CLOCKS, MEASURED
from icone.wording import command_line

NEIGHBOURS = 8
QUERIES = 8
MOST = 1000
"""Near-duplicate pairs, and outliers, that the page holds; it shows a few of them until it is asked for all."""
DrawnMemory = dict[str, Drawn | None]
CHANGED_ON_THE_WAY = "The run had other samples or settings before. This command trains anew with its last ones:"
CLUSTERS = 8
"""Clusters where no labels say how many there might be, if there are enough samples."""
CLUSTERED = 8
"""Samples that a cluster has at least, on average."""


def run_content(
    run: Run,
    *,
    name: str,
    projections: Sequence[ProjectionName] = ("umap", "pca"),
    table: Path | None = None,
    thumbnails: bool = True,
    data: Any = None,
    data_root: Path | None = None,
    memory: DrawnMemory | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> dict[str, Any]:
    """The page's data of one run that has been evaluated; `progress` is told what is being worked on.

    `memory` keeps the pictures of samples for further runs of the same data.
    """
    with command_line():  # as the page calls all settings
        result = run.result
    if result is None:
        raise InputError(f"{run.folder} {run.why_no_result}: run `{evaluate_command(run)}` first")
    samples = read_samples(run)
    drawn = None
    if thumbnails:
        progress("pictures of the samples")
        drawn = _draw(run, samples, data, data_root, {} if memory is None else memory)
    shown, found = _map(samples, drawn, projections, table, progress)
    return {
        "name": name,
        "data": data_content(run, samples, drawn.examples if drawn else {}),
        "verdict": Verdict.from_json(result["verdict"]).to_json(),
        "metrics": [
            {"title": metric.heading, "explanation": metric.explanation, **texts}
            for metric, texts in metric_texts([result])
        ],
        "note": _note(result["data"]),
        "unprobed": result["data"]["note"],
        "warnings": live_warnings(run),
        "label_notes": result["data"].get("notes", []),
        "history": history_columns(run),
        "charts": _charts(),
        "live_samples": live_samples(run),
        "spectrum": {which: result[which]["spectrum"] for which in ("untrained", "trained") if which in result},
        "plane": {
            which: [result[which]["alignment"], result[which]["uniformity"]]
            for which in ("untrained", "trained")
            if "alignment" in result.get(which, {})
        },
        "map": shown,
        "duplicates": _duplicates(found, sample_parts(run, samples)),
        "probes": probe_content(result),
        "label_efficiency": efficiency_content(result.get("label_efficiency")),
        "provenance": provenance(run),
    }


def _note(data: dict[str, Any]) -> str:
    """What the numbers of the evaluation were measured on."""
    if "view_samples" not in data:  # an evaluation of version 0.1
        return f"Data: {data['note']}."
    views = f"recognition, LiDAR and alignment on random views of {data['view_samples']:,} of them; "
    return f"Measured on {counted(data['samples'], 'sample')}; {views if data['view_samples'] else ''}{data['note']}."


def live_samples(run: Run) -> int | None:
    """How many samples the geometry of the history was measured on, where it says so."""
    counts = [row["geometry"]["instances"] for row in run.history if "instances" in row.get("geometry", {})]
    return int(counts[-1]) if counts else None


def live_warnings(run: Run) -> list[str]:
    """What the alarm said while the run trained, one sentence for every state."""
    epochs: dict[str, list[int]] = {}
    for row in run.history:
        if state := row.get("geometry", {}).get("warning"):
            epochs.setdefault(state, []).append(row["epoch"] + 1)
    return [
        f"While training, the features were found {state} "
        + (f"at epoch {found[0]}." if len(found) == 1 else f"{len(found)} times, from epoch {found[0]} to {found[-1]}.")
        for state, found in epochs.items()
    ]


def _charts() -> list[dict[str, Any]]:
    """How the metrics that are measured while training are drawn over epochs."""
    return [
        {"name": m.name, "title": sentence_case(m.live_axis), "scale": m.scale, "from_zero": m.from_zero}
        for m in metrics_shown("training")
    ]


def history_columns(run: Run) -> dict[str, dict[str, list[list[float]]]]:
    """`terms` and `geometry`: by name, [epoch, value] for every epoch that has one.

    Epochs count from 1; epoch 0 is the encoder before training, measured like the others.
    """
    columns: dict[str, dict[str, list[list[float]]]] = {"terms": {}, "geometry": {}}
    drawn = {metric.name for metric in metrics_shown("training")}
    for row in run.history:
        terms = {k: v for k, v in row.items() if k not in ("epoch", *MEASURED, *drawn, *CLOCKS)}
        measured = {**row.get("geometry", {}), **row.get("probe", {})}
        geometry = {k: v for k, v in {**measured, **row}.items() if k in drawn}
        for key in geometry:
            if (untrained := measured.get(f"{UNTRAINED}{key}")) is not None:
                columns["geometry"].setdefault(key, [[0, untrained]])
        for column, values in ((columns["terms"], terms), (columns["geometry"], geometry)):
            for key, value in values.items():
                column.setdefault(key, []).append([row["epoch"] + 1, value])
    return columns


def _draw(run: Run, samples: Samples, data: Any, data_root: Path | None, memory: DrawnMemory) -> Drawn | None:
    """Pictures of the samples; those of an earlier run of the same samples, prepared alike, are taken again."""
    known = run.record["data"]
    external = ((run.result or {}).get("data") or {}).get("external_test")
    key = repr((known["fingerprint"], known["preparation"], samples.ids, external))
    if key not in memory:
        memory[key] = draw_samples(run, samples, gallery_queries(samples.classes, EXAMPLES), data, data_root)
    return memory[key]


def _map(
    samples: Samples,
    drawn: Drawn | None,
    projections: Sequence[ProjectionName],
    table: Path | None,
    progress: Callable[[str], None],
) -> tuple[dict[str, Any], Found]:
    progress("nearest neighbours")
    near = neighbourhood(samples.features, NEIGHBOURS)
    projected = {}
    for name in projections:
        progress(f"{PROJECTIONS[name]} of {len(samples.ids):,} samples")
        projected[PROJECTIONS[name]] = project(samples.features, name)
    queries = gallery_queries(samples.classes)
    untrained_near = None
    if samples.untrained is not None:
        name = projections[0]
        progress(f"{PROJECTIONS[name]} before training")
        projected[f"{PROJECTIONS[name]} before training"] = project(samples.untrained, name)
        untrained_near = neighbourhood(samples.untrained, NEIGHBOURS).index[queries].tolist()
    progress("clusters, near-duplicates and outliers")
    columns = [*_own_columns(samples, near.density()), *(table_columns(table, samples) if table else [])]
    found = find_near_duplicates(samples.features, drawn.small if drawn else None)
    shown = {
        "ids": samples.ids,
        "notes": samples.notes,
        "projections": [
            {"name": name, "note": p.note, "x": _rounded(p.xy[:, 0]), "y": _rounded(p.xy[:, 1])}
            for name, p in projected.items()
        ],
        "columns": [dataclasses.asdict(column) for column in columns],
        "labels": samples.classes if any(samples.classes) else None,
        "captions": None if any(samples.classes) or not samples.labelled else samples.label_texts(),
        "neighbours": near.index.tolist(),
        "thumbnails": dataclasses.asdict(drawn.sheets) if drawn else None,
        "queries": queries,
        "untrained_neighbours": untrained_near,
    }
    return shown, found


def _duplicates(found: Found, parts: Sequence[str]) -> dict[str, Any]:
    """The first pairs and outliers by row, and how many there are; of a pair also whether only one was trained on."""
    return {
        "pairs": [
            [p.first, p.second, round(p.cosine, 3), round(p.correlation, 3), _leaks(parts[p.first], parts[p.second])]
            for p in found.duplicates[:MOST]
        ],
        "outliers": [[o.row, round(o.distance, 3), round(o.score, 1)] for o in found.outliers[:MOST]],
        "counts": [len(found.duplicates), len(found.outliers)],
    }


def _leaks(first: str, second: str) -> bool:
    """Whether one of two samples was trained on and the other tests."""
    return "train" in (first, second) and bool({first, second} & {"test", "external"})


def _own_columns(samples: Samples, density: npt.NDArray[np.float32]) -> list[Column]:
    """Label, group, split, cluster and density, as far as they say something."""
    classes = len(set(samples.classes) - {""})
    found = clusters(samples.features, classes if classes > 1 else min(CLUSTERS, max(2, len(samples.ids) // CLUSTERED)))
    label = [samples.label_column()] if samples.labelled else []
    if any(samples.groups):
        label.append(numbers_or_categories("group", [name or None for name in samples.groups], names=True))
    split = [numbers_or_categories("split", samples.splits)] if len(set(samples.splits)) > 1 else []
    names = [f"cluster {i + 1}" for i in range(int(found.max()) + 1)]
    return [*label, *split, Column("cluster", names, found.tolist()), Column("density", None, _rounded(density))]


def gallery_queries(labels: Sequence[str], count: int = QUERIES) -> list[int]:
    """Samples whose neighbours the gallery shows: the classes take turns, the first of each first.

    >>> gallery_queries(["a", "a", "a", "b"], 3)
    [0, 3, 1]
    """
    turns: dict[str, int] = {}
    order = []
    for position, label in enumerate(labels):
        turns[label] = turns.get(label, 0) + 1
        order.append((turns[label], position))
    return [position for _, position in sorted(order)[:count]]


def provenance(run: Run) -> dict[str, Any]:
    """What reproduces the run: command, configuration, fingerprint of the data, versions."""
    record = run.record
    config = to_json(run.config)
    nested = {f"{key}.{k}": v for key, value in config.items() if isinstance(value, dict) for k, v in value.items()}
    flat = {key: value for key, value in config.items() if not isinstance(value, dict)} | nested
    data = record["data"]
    return {
        "help": CHANGED_ON_THE_WAY if record.get("extensions") or record.get("changes") else None,
        "command": shlex.join(to_command(run.config, free_folder(run.folder))),
        "fingerprint": data["fingerprint"],
        "facts": {
            "training samples": f"{data['instances']:,}",
            "held out": f"{data['held_out']:,}",
            "encoder parameters": f"{record['encoder']['parameters']:,}",
            "features": str(record["encoder"]["num_features"]),
            "epochs done": f"{len(run.history)} of {run.epochs}",
            "device": record["device"],
            "started": utc_text(record["created"]),
            "trained for": trained_time(run.history),
            **(LoadedWeights(**record["weights"]).facts() if record.get("weights") else {}),
            **{f"option {key}": str(value) for key, value in record["method"]["options"].items()},
        },
        "notes": with_flags([*data["notes"], *(f"left out: {reason}" for _, reason in data["skipped"])]),
        "versions": record["versions"],
        "config": {key: str(value) for key, value in flat.items()},
    }


def utc_text(moment: str) -> str:
    """A moment of a record as a reader writes it; what is no moment stays as it is.

    >>> utc_text("2026-11-17T14:02:31+00:00"), utc_text("today")
    ('2026-11-17 14:02 UTC', 'today')
    """
    try:
        return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return moment


def _rounded(values: npt.NDArray[np.float32]) -> list[float]:
    """Four significant digits: more than a screen can show, and half the size of the page."""
    return [float(f"{value:.4g}") for value in values]
