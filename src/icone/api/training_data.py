"""The data of a training with the digests of its samples, and what a run records about the two."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from rich.console import Console

from icone.api.run_labels import labels_digest
from icone.api.training_parts import Parts
from icone.config import PretrainConfig
from icone.data import (
    DIGEST_VERSION,
    Data,
    DigestMemory,
    EarlierSplit,
    Preparation,
    cache_folder,
    load_data,
    open_source,
)
from icone.encoders import num_features
from icone.methods import chosen_options
from icone.recipe import RECIPE_VERSION
from icone.terminal import say
from icone.training.progress import ProgressBar


class KnownData(NamedTuple):
    """The data of runs, and the digests of the training samples by id."""

    data: Data
    digests: dict[str, str]


def load_training_data(
    config: PretrainConfig,
    console: Console,
    source: Any,
    labels: Any = None,
    groups: Any = None,
    earlier: EarlierSplit | None = None,
    kept: Preparation | None = None,
) -> KnownData:
    """Read the samples of a configuration, in memory where they fit, and digest their contents.

    What a run that goes on has held out and trained on before stays so, and its scale of intensities is `kept`.
    """
    with ProgressBar(console) as bar:
        opened = open_source(source, config, labels, groups)
        data = load_data(
            config,
            source=opened,
            report=partial(say, console),
            progress=bar,
            earlier=earlier,
            kept=kept,
        )
        memory = DigestMemory(cache_folder(config.cache) if opened.is_cacheable else None, config.source)
        digests = data.source.digests(
            data.train.positions,
            memory,
            config.workers,
            partial(bar, "digests of the contents"),
        )
        memory.save()
        if data.train.is_kept:
            data.source.close()
    return KnownData(data, dict(zip(data.train.ids, digests, strict=True)))


def instances_record(
    known: KnownData, trained_before: Sequence[str] = (), seen_by_weights: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of instances.json; samples that were trained on before are no test samples."""
    data, train = known.data, known.data.train
    seen = set(trained_before)
    return {
        "ids": list(train.ids),
        "labels": train.labels.tolist(),
        "class_names": list(train.class_names),
        "labels_digest": labels_digest(train),
        "digests": known.digests,
        "digest_version": DIGEST_VERSION,
        "test_ids": [name for name in data.test.ids if name not in seen] if data.test else [],
        "trained_before": list(trained_before),
        "seen_by_weights": list(seen_by_weights),
        "minority": list(data.minority_classes),
    }


def provenance(config: PretrainConfig, data: Data, parts: Parts) -> dict[str, Any]:
    """What was found, decided and applied: the run's provenance."""
    method, views, device = parts.method, parts.views, parts.loader.device
    packages = ("icone", "torch", "timm", "numpy", "scikit-learn")
    norms = sorted({type(m).__name__ for m in method.encoder.modules() if "Norm" in type(m).__name__})
    return {
        "recipe_version": RECIPE_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "data": {
            "fingerprint": data.source.fingerprint(),
            "instances": len(data.train),
            "held_out": len(data.test) if data.test else 0,
            "skipped": data.skipped,
            "notes": [*data.notes, *parts.notes],
            "preparation": data.preparation.to_json(),
        },
        "views": views.describe(),
        "encoder": {
            "num_features": num_features(method.encoder),
            "parameters": sum(p.numel() for p in method.encoder.parameters()),
            "norms": norms,
        },
        "method": {
            "name": config.method,
            "options": chosen_options(config.method, config.options, config.recipe),
        },
    }
