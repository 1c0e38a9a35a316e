"""`icone.evaluate`: probes and geometry of a run's encoder and of the untrained one, and the verdict on the two."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

from icone.api.build import Given, check_data, give_again, memory_errors
from icone.api.embed import extract_with_progress, load_encoder, load_with_notes, untrained_encoder
from icone.config import PretrainConfig, is_object
from icone.data import (
    DIGEST_VERSION,
    Dataset,
    DigestMemory,
    Source,
    cache_folder,
    grouped_split,
    open_source,
    stratified_split,
)
from icone.data.sources.registry import check_splits
from icone.errors import InputError
from icone.evaluation.assessment import Partition, assess, run_probes
from icone.evaluation.comparison import Difference, compare_probes
from icone.evaluation.features import FrozenEncoder, drawn_rows, extract_views
from icone.evaluation.metrics import metric_value, metrics_shown
from icone.evaluation.probes import ProbeResult
from icone.evaluation.verdict import JUDGED_PROBES, TAUGHT, judge
from icone.methods import method_class
from icone.run import Run, replacing, write_json
from icone.terminal import Terminal
from icone.validation import check_arguments

LIDAR_VIEWS = 10


@check_arguments
def evaluate(
    run: str | Path | Run,
    *,
    data: Any = None,
    labels: Any = None,
    encoder: nn.Module | None = None,
    views: Any = None,
    data_root: Path | None = None,
    official_test: bool = False,
    test_fraction: float = 0.2,
    untrained: bool = True,
    geometry_instances: int = 256,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure a run's encoder on the data it was trained on; written to its result.json and features.npz.

    `data` says where that data is now, or gives it again where it was a Python object; so do `encoder` and `views`.
    `labels` are a CSV, one label per sample, or a mapping from ids to labels.

    With labels (from `labels`, or those the source brings) a linear probe and kNN-1/5/20 are trained and tested on
    a partition: the part that the run held out, the source's official test split (`official_test`), or else a
    stratified share of `test_fraction`. A run of a supervised method gets no probes on samples whose labels it was
    taught. The encoder before training is measured in the same way, and the verdict compares the two; without
    `untrained` it can only tell a collapse.
    """
    for flag, given_object in (("data", data), ("labels", labels)):
        if given_object is not None:
            check_data(flag, given_object)
    run = run if isinstance(run, Run) else Run.open(run)
    console = console or Terminal()
    with memory_errors():
        if is_object(run.config.pipeline) and views is None and (untrained or geometry_instances):
            raise give_again("views", run.config.pipeline)
        encoders = {"trained": load_encoder(run, device, encoder=encoder, views=views)}
        samples = _read(run, data, labels, data_root, official_test, test_fraction, cache, console)
        if untrained:
            given = Given(encoder=encoder, views=views)
            encoders["untrained"] = untrained_encoder(run, samples.datasets[0], device, given)
        measured: dict[str, dict[str, Any]] = {}
        features: dict[str, np.ndarray] = {}
        probes: dict[str, dict[str, ProbeResult]] = {}
        for name, frozen in encoders.items():
            features[name] = np.concatenate([extract_with_progress(frozen, d, 16, console) for d in samples.datasets])
            seen, classes = _views(run, frozen, samples.datasets[0], geometry_instances)
            probes[name] = run_probes(features[name], samples.partition)
            measured[name] = assess(features[name], seen, probes[name], classes)
    comparison = _compare(probes, samples.partition)
    taught = method_class(run.config.method).needs_labels and samples.partition is None
    verdict = judge(measured["trained"], measured.get("untrained"), comparison, TAUGHT if taught else "")
    result = {
        "data": samples.describe() | {"view_samples": 0 if seen is None else len(seen)},
        "verdict": verdict.to_json(),
        "comparison": {name: difference.to_json() for name, difference in comparison.items()},
        **measured,
    }
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
    data: Any,
    labels: Any,
    data_root: Path | None,
    official_test: bool,
    test_fraction: float,
    cache: str | None,
    console: Console,
) -> _Samples:
    config = run.config
    config = dataclasses.replace(
        config,
        labels=Path(labels) if isinstance(labels, (str, os.PathLike)) else config.labels,
        data_root=data_root or config.data_root,
        cache=cache or config.cache,
    )
    given_labels = None if isinstance(labels, (str, os.PathLike)) else labels

    def opened(split: Literal["train", "val", "test"]) -> Source:
        where = config.source if data is None else data
        return open_source(where, dataclasses.replace(config, split=split), given_labels)

    preparation = run.preparation
    instances = run.instances
    source = opened(config.split)
    if official_test:
        _check_official_test(source, config)
    # A run that held samples out is measured on what it drew: a subset of 500 should not embed 90,000 images.
    drawn = {*instances["ids"], *instances["test_ids"]} if instances["test_ids"] and not official_test else None
    datasets = [load_with_notes(source, config, preparation, console, only=drawn)]
    if official_test:
        datasets.append(load_with_notes(opened("test"), config, preparation, console))
    ids = [name for dataset in datasets for name in dataset.ids]
    _note_changes(instances, datasets[0], console)
    if data is not None:
        _note_contents(instances, datasets[0], config, console)
    if config.labels is not None and len(set(ids)) < len(ids):
        raise InputError(
            f"{config.labels} names samples by ids that both official splits have, so it cannot label the test split: "
            "leave --official-test out"
        )
    names = np.concatenate([_class_names(dataset) for dataset in datasets])
    described = "the labels that were given" if given_labels is not None else config.labels
    partition, note = _partition(run, datasets, names, official_test, test_fraction, described)
    splits = np.repeat([config.split, "test"][: len(datasets)], [len(dataset) for dataset in datasets])
    return _Samples(datasets, ids, names, splits, partition, note)


def _note_changes(instances: dict[str, Any], dataset: Dataset, console: Console) -> None:
    """Say which samples of the run are gone, and how many the run did not know."""
    known = {*instances["ids"], *instances["test_ids"]}
    lost, gained = sorted(known.difference(dataset.ids)), set(dataset.ids) - known
    if lost:
        console.print(f"note: {len(lost)} samples of the run are no longer there, such as {lost[0]}", soft_wrap=True)
    if gained:
        console.print(f"note: {len(gained)} samples here took no part in the run and are measured too", soft_wrap=True)


def _note_contents(instances: dict[str, Any], dataset: Dataset, config: PretrainConfig, console: Console) -> None:
    """Say how many samples of data that was given again have another content than those the run was trained on."""
    if instances.get("digest_version") != DIGEST_VERSION:
        return
    memory = DigestMemory(cache_folder(config.cache) if dataset.source.is_cacheable else None, dataset.source.name)
    found = dict(zip(dataset.ids, dataset.source.digests(dataset.positions, memory), strict=True))
    trained_on = instances.get("digests", {})
    changed = [name for name, digest in found.items() if trained_on.get(name, digest) != digest]
    if changed:
        console.print(
            f"note: {len(changed)} samples have another content than those the run was trained on, such as "
            f"{changed[0]}: what is measured here is not about the run's own data",
            soft_wrap=True,
        )


def _class_names(dataset: Dataset) -> np.ndarray:
    names = np.array([*dataset.class_names, ""], dtype=str)  # label -1 takes the last
    chosen: np.ndarray = names[dataset.labels.numpy()]
    return chosen


def _check_official_test(source: Source, config: PretrainConfig) -> None:
    """Refuse what would test probes on the samples that train them."""
    check_splits(source, source.name, "--official-test")
    if config.split == "test":
        raise InputError(
            "the run was pretrained on the official test split itself (--split test): leave --official-test out"
        )


def _partition(
    run: Run,
    datasets: list[Dataset],
    names: np.ndarray,
    official_test: bool,
    test_fraction: float,
    labels: str | Path | None,
) -> tuple[Partition | None, str]:
    """Rows that train and test the probes, and the sentence that says how they were chosen."""
    labelled = np.flatnonzero(names != "")
    if len(set(names[labelled])) < 2:
        found = "there are no labels" if labels is None else f"{labels} holds fewer than two classes"
        return None, f"{found}, so geometry only" + ("; give --labels for probes" if labels is None else "")
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
    if method_class(run.config.method).needs_labels:
        return None, (
            f"{run.config.method} was taught the labels of all samples, so geometry only: probes would be tested on "
            "what it was taught. --test-fraction 0.2 at pretraining holds samples out"
        )
    codes = np.unique(names[labelled], return_inverse=True)[1]
    groups = datasets[0].groups
    if groups is None:
        train, test = stratified_split(codes, test_fraction, run.config.split_seed, tuple(np.unique(names[labelled])))
    else:
        chosen = [groups[row] for row in labelled]
        train, test = grouped_split(codes, chosen, test_fraction, run.config.split_seed)
    seen = np.isin(np.array(datasets[0].ids)[labelled[test]], instances["ids"])
    which = "those images too" if seen.all() else f"{seen.sum()} of those {len(seen)} images too"
    how = f"stratified {test_fraction:.0%}" if groups is None else f"{len(test) / len(codes):.0%}, groups kept together"
    note = f"probes are tested on a {how}; pretraining saw {which}, without labels"
    return Partition(labelled[train], labelled[test], names, minority), note


def _compare(probes: dict[str, dict[str, ProbeResult]], partition: Partition | None) -> dict[str, Difference]:
    """What the judged probes say about the encoder before and after training."""
    if partition is None or "untrained" not in probes:
        return {}
    return compare_probes(
        probes["untrained"], probes["trained"], partition.labels[partition.test].tolist(), list(JUDGED_PROBES)
    )


def _views(
    run: Run, encoder: FrozenEncoder, dataset: Dataset, instances: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Features of random views of some samples; and their classes, if the method was taught to unite these."""
    if instances < 2:
        return None, None
    rows = drawn_rows(dataset, instances)
    classes = dataset.labels[rows].numpy() if method_class(run.config.method).needs_labels else None
    return extract_views(encoder, dataset, rows, LIDAR_VIEWS), classes


def result_table(result: dict[str, Any]) -> Table:
    """The metrics of `evaluate` as a table, untrained encoder first where it was measured."""
    columns = [name for name in ("untrained", "trained") if name in result]
    table = Table(title=result["data"]["note"], title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for metric in metrics_shown("evaluation"):
        values = [metric_value(result[name], metric) for name in columns]
        texts = [metric.text(value) for value in values if value is not None]
        if len(texts) == len(columns):
            table.add_row(metric.heading, *texts)
    return table


def notes(result: dict[str, Any]) -> list[str]:
    """Sentences from the probes that a reader should know."""
    measured = result["trained"]
    return [f"{name}: {value['note']}" for name, value in measured.items() if isinstance(value, dict) and value["note"]]
