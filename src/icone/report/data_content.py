"""What the page says about the data of a run: what was read, how it was prepared, and what training sees of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icone.api.build import make_training_views
from icone.config import is_object
from icone.data.targets import label_set
from icone.evaluation.probes import sorted_classes
from icone.report.samples import Samples
from icone.report.thumbnails import lay_out, picture
from icone.run import Run
from icone.terminal import counted, either
from icone.training.context import kept_random_state
from icone.views.base import Views, unit_range

EXAMPLES = 6
"""Samples that are shown with their views."""
VIEWS = 4
EDGE = 96
"""Pixels of their pictures."""
PARTS = {
    "train": "trained on", "rest": "not trained on", "val": "validation", "test": "held out",
    "external": "external test",
}  # fmt: skip
"""What the parts of the data are called on the page."""
KINDS = {0: "points", 2: "images (2D)", 3: "volumes (3D)"}


def data_content(run: Run, samples: Samples, examples: Mapping[int, Tensor]) -> dict[str, Any]:
    """Facts, labels, notes, what was left out, and prepared samples with random views of them."""
    data = run.record["data"]
    return {
        "key": [data["fingerprint"], data["preparation"], run.record.get("views")],
        "facts": _facts(run),
        "labels": _labels(samples, sample_parts(run, samples)),
        "notes": run.notes,
        "skipped": [[str(name), str(reason)] for name, reason in data["skipped"]],
        "views": _views_text(run),
        "examples": _examples(run, examples),
    }


def _facts(run: Run) -> dict[str, str]:
    data, preparation, config = run.record["data"], run.preparation, run.config
    held_out = f", {data['held_out']:,} held out" if data["held_out"] else ""
    facts = {
        "source": config.source,
        "samples": f"{data['instances']:,} {KINDS[preparation.spatial_dims]} to train on{held_out}",
    }
    if preparation.spatial_dims:
        channels = counted(preparation.channels, "channel")
        colour = " (red, green, blue)" if preparation.channels == 3 and preparation.is_rgb else ""
        size = " × ".join(map(str, preparation.size))
        if preparation.crops:
            facts["crops"] = f"{size}, {channels}{colour}, from samples at their own resolution"
        else:
            spacing = f", {preparation.spacing:g} mm per voxel" if preparation.spacing else ""
            facts["brought to"] = f"{size}, {channels}{colour}, {preparation.fit}{spacing}"
    if config.labels:
        facts["labels from"] = str(config.labels)
    return facts


def sample_parts(run: Run, samples: Samples) -> list[str]:
    """The part of the data (`PARTS`) that every sample belongs to.

    The splits are those of the source. Of its training split the run may have held samples out, and taken some of the
    others alone (`--subset`).
    """
    trained_on, held_out = set(run.instances["ids"]), set(run.instances["test_ids"])
    return [
        split if split != "train" else "test" if name in held_out else "train" if name in trained_on else "rest"
        for name, split in zip(samples.source_ids, samples.splits, strict=True)
    ]


def _labels(samples: Samples, parts: Sequence[str]) -> dict[str, Any] | None:
    """How many of the evaluated samples have each label, in each part of the data; of numbers, their range."""
    known = [label for label in samples.labels if label]
    if not known:
        return None
    if samples.task == "regression":
        low, middle, high = np.quantile(np.array(known, dtype=float), (0, 0.5, 1))
        return {"text": f"{len(known):,} numbers from {low:g} to {high:g}, median {middle:g}", "counts": []}
    several = samples.task != "classification"
    counts: dict[str, Counter[str]] = {split: Counter() for split in PARTS if split in parts}
    for label, split in zip(samples.labels, parts, strict=True):
        counts[split].update(label_set(label) if several else [label] if label else [])
    names = sorted_classes({name for found in counts.values() for name in found})
    without = len(samples.labels) - len(known)
    text = f"{counted(len(names), 'label')}, several per sample" if several else _classes(len(names))
    return {
        "text": text + (f"; {counted(without, 'sample')} without" if without else ""),
        "parts": [PARTS[split] for split in counts],
        "counts": [[name, *(found[name] for found in counts.values())] for name in names],
    }


def _classes(count: int) -> str:
    return f"{count:,} {either(count, 'class', 'classes')}"


def _views_text(run: Run) -> str:
    """The steps of the views that were applied, and those that were left out with the reason."""
    views = run.record.get("views") or {}
    steps = [name.replace("_", " ") for name in views.get("applied", {})]
    reasons: dict[str, list[str]] = {}
    for name, reason in views.get("left_out", {}).items():
        reasons.setdefault(reason, []).append(name.replace("_", " "))
    left_out = [f"{', '.join(names)} ({reason})" for reason, names in reasons.items()]
    text = f"Every view: {', '.join(steps)}." if steps else ""
    return text + (f" Left out: {'; '.join(left_out)}." if left_out else "")


def _examples(run: Run, examples: Mapping[int, Tensor]) -> dict[str, Any] | None:
    """A sheet of pictures, a sample and its views after another; without views where they are not at hand."""
    if not examples:
        return None
    config, preparation = run.config, run.preparation
    with_views = not preparation.crops and not is_object(config.pipeline)
    pictures = []
    with kept_random_state(torch.device("cpu"), 0), torch.inference_mode():
        views = make_training_views(config, preparation) if with_views else None
        for image in examples.values():
            pictures.append(picture(image, EDGE))
            if views is not None:
                pictures += [picture(view, EDGE) for view in _visible(views, image[None])]
    sheet = lay_out(iter(pictures), EDGE)
    return {"rows": list(examples), "views": VIEWS if with_views else 0, "sheet": dataclasses.asdict(sheet)}


def _visible(views: Views, image: Tensor) -> Tensor:
    """Random views (V, C, *size) of one sample in [0, 1], as they were before their normalisation."""
    stored = unit_range(image)
    zero, one = views.plain(torch.zeros_like(stored)), views.plain(torch.ones_like(stored))
    drawn: Tensor = views(image, VIEWS)[0]
    return ((drawn - zero) / (one - zero)).clamp(0, 1)
