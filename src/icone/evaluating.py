"""`icone.evaluate`: probes and geometry of a run's encoder, beside the untrained one where asked."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from icone.building import memory_errors
from icone.data import Dataset, Preparation, stratified_split
from icone.evaluation.assessment import Partition, assess, beside_untrained
from icone.evaluation.features import FrozenEncoder, drawn_rows, extract_views
from icone.evaluation.verdict import judge
from icone.inference import extract_with_progress, load_encoder, load_with_notes, untrained_encoder
from icone.methods import method_class
from icone.runs import Run, replacing, write_json
from icone.terminal import Terminal
from icone.validation import check_arguments

LIDAR_VIEWS = 10


@check_arguments
def evaluate(
    run: str | Path | Run,
    *,
    labels: Path | None = None,
    data_root: Path | None = None,
    official_test: bool = False,
    test_fraction: float = 0.2,
    untrained: bool = False,
    geometry_instances: int = 256,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure a run's encoder on the data it was trained on; written to its result.json and features.npz.

    With labels (from `labels`, or those the source brings) a linear probe and kNN-1/5/20 are trained and tested on
    a partition: the part that the run held out, the source's official test split (`official_test`), or else a
    stratified share of `test_fraction`. `untrained` measures the encoder before training too.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    console = console or Terminal()
    with memory_errors():
        encoders = {"trained": load_encoder(run, device)}
        if untrained:
            encoders["untrained"] = untrained_encoder(run, device)
        samples = _read(run, labels, data_root, official_test, test_fraction, cache, console)
        measured, features = {}, {}
        for name, encoder in encoders.items():
            features[name] = np.concatenate([extract_with_progress(encoder, d, 16, console) for d in samples.datasets])
            views, classes = _views(run, encoder, samples.datasets[0], geometry_instances)
            measured[name] = assess(features[name], views, samples.partition, classes)
    measured["trained"] = beside_untrained(measured["trained"], measured.get("untrained") or _before_training(run))
    result = {"data": samples.describe(), "verdict": str(judge(measured["trained"])), **measured}
    with run.locked():
        with replacing(run.features_file) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                ids=np.array(samples.ids),
                labels=samples.labels,
                splits=samples.splits,
                features=features["trained"],
            )
        write_json(run.result_file, result)
    return result


@dataclass(frozen=True)
class _Samples:
    """What is evaluated: prepared samples with class names ("" where unknown), and how they are parted."""

    datasets: list[Dataset]
    ids: list[str]
    labels: np.ndarray
    splits: np.ndarray
    partition: Partition | None
    note: str

    def describe(self) -> dict[str, Any]:
        sizes = {"train": len(self.partition.train), "test": len(self.partition.test)} if self.partition else {}
        return {"samples": len(self.ids), **sizes, "note": self.note}


def _read(
    run: Run,
    labels: Path | None,
    data_root: Path | None,
    official_test: bool,
    test_fraction: float,
    cache: str | None,
    console: Console,
) -> _Samples:
    config = run.config
    config = dataclasses.replace(
        config,
        labels=labels or config.labels,
        data_root=data_root or config.data_root,
        cache=cache or config.cache,
    )
    preparation = Preparation.from_json(run.record["data"]["preparation"])
    instances = run.instances
    # A run that held samples out is measured on what it drew: a subset of 500 should not embed 90,000 images.
    drawn = {*instances["ids"], *instances["test_ids"]} if instances["test_ids"] and not official_test else None
    datasets = [load_with_notes(config, preparation, console, only=drawn)]
    if official_test:
        datasets.append(load_with_notes(dataclasses.replace(config, split="test"), preparation, console))
    ids = [name for dataset in datasets for name in dataset.ids]
    names = np.concatenate([_class_names(dataset) for dataset in datasets])
    partition, note = _partition(run, datasets, names, official_test, test_fraction)
    splits = np.repeat([config.split, "test"][: len(datasets)], [len(dataset) for dataset in datasets])
    return _Samples(datasets, ids, names, splits, partition, note)


def _class_names(dataset: Dataset) -> np.ndarray:
    names = np.array([*dataset.class_names, ""], dtype=str)  # label -1 takes the last
    chosen: np.ndarray = names[dataset.labels.numpy()]
    return chosen


def _partition(
    run: Run, datasets: list[Dataset], names: np.ndarray, official_test: bool, test_fraction: float
) -> tuple[Partition | None, str]:
    """Rows that train and test the probes, and the sentence that says how they were chosen."""
    labelled = np.flatnonzero(names != "")
    if len(set(names[labelled])) < 2:
        return None, "no labels with at least two classes, so geometry only; give --labels for probes"
    instances = run.instances
    minority = instances["minority"] or None
    if official_test:
        parts = np.arange(len(names)) < len(datasets[0])
        note = "probes train on the official training split and are tested on the official test split"
        return Partition(labelled[parts[labelled]], labelled[~parts[labelled]], names, minority), note
    if instances["test_ids"]:
        held_out = np.isin(datasets[0].ids, instances["test_ids"])
        seen = np.isin(datasets[0].ids, instances["ids"])
        train, test = labelled[seen[labelled]], labelled[held_out[labelled]]
        return Partition(train, test, names, minority), "probes are tested on the part that pretraining never saw"
    codes = np.unique(names[labelled], return_inverse=True)[1]
    train, test = stratified_split(codes, test_fraction, run.config.split_seed, tuple(np.unique(names[labelled])))
    note = f"probes are tested on a stratified {test_fraction:.0%}; pretraining saw those images too, without labels"
    return Partition(labelled[train], labelled[test], names, minority), note


def _views(
    run: Run, encoder: FrozenEncoder, dataset: Dataset, instances: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Features of random views of some samples; and their classes, if the method was taught to unite these."""
    if instances < 2:
        return None, None
    rows = drawn_rows(dataset, instances)
    classes = dataset.labels[rows].numpy() if method_class(run.config.method).needs_labels else None
    return extract_views(encoder, dataset, rows, LIDAR_VIEWS), classes


def _before_training(run: Run) -> dict[str, float]:
    """What the live probe found before the first step, under the names of `assess`."""
    measured = [row["geometry"] for row in run.history if "geometry" in row]
    before = {name: value for name, value in measured[-1].items() if name.startswith("untrained_")} if measured else {}
    return {name.removeprefix("untrained_"): value for name, value in before.items()}


ROWS = {
    "linear_probe": "linear probe, balanced accuracy (%)",
    "knn_1": "kNN-1, balanced accuracy (%)",
    "knn_5": "kNN-5, balanced accuracy (%)",
    "knn_20": "kNN-20, balanced accuracy (%)",
    "minority": "linear probe, minority classes (%)",
    "recognition": "views nearer to their own sample than to another (%)",
    "rankme": "RankMe",
    "variance_rank": "directions that hold the variance",
    "effective_rank": "effective rank",
    "lidar": "LiDAR",
    "alignment": "alignment (lower: views agree)",
    "uniformity": "uniformity (lower: more spread)",
    "first_component": "variance in the first component (%)",
    "mean_cosine": "mean cosine between samples",
}
PERCENT = {"linear_probe", "knn_1", "knn_5", "knn_20", "minority", "recognition", "first_component"}


def result_table(result: dict[str, Any]) -> Table:
    """The figures of `evaluate` as a table, untrained encoder first where it was measured."""
    columns = [name for name in ("untrained", "trained") if name in result]
    table = Table(title=result["data"]["note"], title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for key, title in ROWS.items():
        values = [figure(result[name], key) for name in columns]
        if all(value is not None for value in values):
            scale, digits = (100, 1) if key in PERCENT else (1, 4 if key == "mean_cosine" else 2)
            table.add_row(
                title,
                *(f"{scale * value:.{digits}f}" for value in values if value is not None),
            )
    return table


def figure(figures: dict[str, Any], key: str) -> float | None:
    """The number under one of `ROWS`: a geometry figure, or the balanced accuracy of a probe."""
    value = figures.get("linear_probe" if key == "minority" else key)
    if isinstance(value, dict):
        value = value["minority_accuracy" if key == "minority" else "balanced_accuracy"]
    return None if value is None else float(value)


def notes(result: dict[str, Any]) -> list[str]:
    """Sentences from the probes that a reader should know."""
    figures = result["trained"]
    return [f"{name}: {value['note']}" for name, value in figures.items() if isinstance(value, dict) and value["note"]]
