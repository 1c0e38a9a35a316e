"""`icone.find_duplicates`: near-duplicates and outliers among the samples of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from icone.api.build import check_given, memory_errors
from icone.api.embed import extract_with_progress, load_encoder, load_with_notes, splits_of
from icone.api.run_data import check_moved, has_lost_labels, open_run_data, with_moved_labels, without_labels
from icone.config import with_given
from icone.data import Dataset
from icone.errors import InputError
from icone.evaluation.duplicates import Pictures, find_near_duplicates, small_picture
from icone.files import write_json
from icone.readable import Part, Readable
from icone.run import Run, refuse_own_file
from icone.terminal import Terminal, counted
from icone.validation import check_arguments, check_target

ROWS_SHOWN = 30
"""Pairs and outliers that a table in the terminal lists; the JSON file holds all."""


@check_arguments
def find_duplicates(
    run: str | Path | Run,
    *,
    data: Any = None,
    encoder: nn.Module | None = None,
    views: Any = None,
    out: str | Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> Readable:
    """Pairs of samples whose features and pictures are both nearly the same, and samples far from all others.

    `data` says where the run's data is now, or gives it again where it was a Python object; so do `encoder` and
    `views`. With `out`, written there as JSON: `duplicates` (two samples with id, split and label; cosine of
    standardised features; correlation of the pictures), `outliers` (id, distance to the nearest neighbours, modified
    z-score) and `thresholds`. A pair with one sample in train and one in test flatters every score on the test part.
    """
    check_given(data=data)
    run = run if isinstance(run, Run) else Run.open(run)
    given = run.objects if data is None else {}
    data = given.get("data", data)
    console = console or Terminal()
    target = None if out is None else Path(out)
    if target is not None:
        check_target(target)
        refuse_own_file(target)
    config = with_moved_labels(with_given(run.config, data_root=data_root, cache=cache), data)
    if config.labels is not None and not config.labels.is_file():
        config = dataclasses.replace(config, labels=None, label_column=(), group_column=None)
    if given.get("labels") is None and has_lost_labels(config, data):
        config = without_labels(config)
    frozen = load_encoder(run, device, encoder=encoder, views=views)
    with memory_errors():
        source = open_run_data(run.folder, config, data, given.get("labels"), given.get("groups"))
        if data is not None:
            check_moved(run, source, config, console)
        dataset = load_with_notes(source, config, frozen.preparation, console)
        if len(dataset) < 3:
            raise InputError(
                f"{source.name} holds {counted(len(dataset), 'sample')}: near-duplicates and outliers need more"
            )
        features = extract_with_progress(frozen, dataset, console)
        found = find_near_duplicates(features, _pictures(dataset))
    labels = ["" if source.labels is None else source.labels[position] or "" for position in dataset.positions]
    splits = splits_of(run, dataset, is_own=True) or [""] * len(dataset)
    result = found.to_json(dataset.ids, splits, labels)
    if target is not None:
        write_json(target, result)
    return Readable(result, duplicate_parts)


def _pictures(dataset: Dataset) -> Pictures | None:
    """The small picture of every sample; None for points, which have none."""
    if dataset.preparation.spatial_dims == 0:
        return None
    return np.stack([small_picture(dataset.images_at(torch.tensor([row]))[0]) for row in range(len(dataset))])


def duplicate_parts(result: dict[str, Any]) -> list[Part]:
    """What is said about near-duplicates and outliers: a table of each where any were found, and how many there are."""
    parts: list[Part] = []
    if result["duplicates"]:
        table = Table(title=_title("near-duplicate pair", result["duplicates"]), title_justify="left")
        for column in ("sample", "sample", "cosine of features", "correlation of pictures", "remark"):
            table.add_column(column)
        for pair in result["duplicates"][:ROWS_SHOWN]:
            first, second = pair["samples"]
            shown = f"{pair['cosine']:.3f}", f"{pair['correlation']:.3f}"
            table.add_row(first["id"], second["id"], *shown, remark(first, second))
        parts.append(table)
    if result["outliers"]:
        table = Table(title=_title("outlier", result["outliers"]), title_justify="left")
        for column in ("sample", "distance", "score"):
            table.add_column(column)
        for one in result["outliers"][:ROWS_SHOWN]:
            table.add_row(one["id"], f"{one['distance']:.2f}", f"{one['score']:.1f}")
        parts.append(table)
    pairs = counted(len(result["duplicates"]), "near-duplicate pair")
    outliers = counted(len(result["outliers"]), "outlier")
    return [*parts, f"{pairs} and {outliers} among {counted(result['samples'], 'sample')}"]


def remark(first: dict[str, str], second: dict[str, str]) -> str:
    """What is worth knowing about a pair: on both sides of the split, or with two labels."""
    parted = "train and test" if {first["split"], second["split"]} == {"train", "test"} else ""
    differ = f"{first['label']} and {second['label']}" if first["label"] != second["label"] else ""
    return ", ".join(filter(None, [parted, differ]))


def _title(what: str, rows: list[Any]) -> str:
    return counted(len(rows), what) + (f", the first {ROWS_SHOWN}" if len(rows) > ROWS_SHOWN else "")
