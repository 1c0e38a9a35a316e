"""Everything a page says about one fine-tuning, as plain data that JSON can hold."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any

from icone.api.evaluated import finetuned_result
from icone.api.predict import read_record
from icone.api.summaries import NETWORKS, PROBES, SCORES, TITLES, finetune_sentences, finetune_states, trained_time
from icone.config import FinetuneConfig
from icone.evaluation.metrics import METRICS, metric_value
from icone.report.content import utc_text
from icone.report.samples import with_flags
from icone.run import Run, free_folder

CURVES = {
    "loss": "Loss of the training samples",
    "val_loss": "Loss of the validation samples",
    "val_balanced_accuracy": "Balanced accuracy of the validation samples (%)",
}
"""Entries of a row of the history that are drawn, and what their charts are called."""


def finetuned_content(run: Run, *, name: str) -> dict[str, Any]:
    """The page's data of one folder of `icone finetune`, which must be finished."""
    record, result = read_record(run.folder), with_flags(finetuned_result(run))
    data = result["data"]
    return {
        "name": name,
        "sentences": finetune_sentences(result),
        "states": list(finetune_states(result).values()),
        "networks": [NETWORKS[key] for key in NETWORKS if key in result],
        "metrics": _metrics(result),
        "note": f"{data['train']} training, {data['val']} validation and {data['test']} test samples; "
        f"{data['note'].removeprefix('probes are ')}.",
        "label_notes": data["notes"],
        "curves": _curves(run, result),
        "probes": [{"name": NETWORKS[key], **result[key]} for key in NETWORKS if key in result],
        "provenance": _provenance(run, record, result),
    }


def _metrics(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the table: a title, and of every network the value, and behind it its interval where there is one."""
    task, keys = result["data"]["task"], [key for key in NETWORKS if key in result]
    rows = []
    for score in SCORES[task]:
        metric = METRICS[score]
        values = [metric_value({PROBES[task]: result[key]}, metric) for key in keys]
        texts = [["–" if value is None else metric.text(value)] for value in values]
        if score == PROBES[task]:
            texts = [[*text, *interval_text(result[key], metric.text)] for text, key in zip(texts, keys, strict=True)]
        rows.append({"title": TITLES[score], "values": texts})
    epochs = [result["training"].get(key) for key in keys]
    told = [["–"] if found is None else [f"{found['best_epoch']} of {found['epochs']}"] for found in epochs]
    return [*rows, {"title": "kept epoch", "values": told}]


def interval_text(found: dict[str, Any], text: Callable[[float], str]) -> list[str]:
    """The interval of a score in a list, which is empty where there is none.

    >>> interval_text({"interval": [0.5, 0.75]}, "{:.2f}".format), interval_text({"interval": [-1, 1]}, str)
    (['0.50 – 0.75'], ['-1 to 1'])
    """
    if found.get("interval") is None:
        return []
    low, high = map(text, found["interval"])
    return [f"{low} {'to' if low.startswith('-') else '–'} {high}"]  # beside a minus sign a dash reads like another


def _curves(run: Run, result: dict[str, Any]) -> list[dict[str, Any]]:
    """A chart for every quantity, with [epoch, value] of every network and the epoch that was kept."""
    rows, charts = run.history, []
    for key, title in CURVES.items():
        scale = 100 if title.endswith("(%)") else 1
        networks = [
            {
                "name": NETWORKS[network],
                "points": [[r["epoch"] + 1, scale * r[key]] for r in rows if r["network"] == network and key in r],
                "kept": result["training"][network]["best_epoch"],
            }
            for network in NETWORKS
            if network in result["training"]
        ]
        if any(network["points"] for network in networks):
            charts.append({"title": title, "networks": networks})
    return charts


def _provenance(run: Run, record: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What reproduces the fine-tuning: the run that it came from, settings, versions, and the command."""
    settings, usual = record["settings"], {**dataclasses.asdict(FinetuneConfig()), "scratch": True}
    given = record.get("given", [])
    words = ["icone", "finetune", record["run"], *given, "--out", str(free_folder(run.folder))]
    for key, value in settings.items():
        if value != usual.get(key):
            words += ["--no-scratch"] if key == "scratch" else [f"--{key.replace('_', '-')}", str(value)]
    counts = {f"{part} samples": str(len(ids)) for part, ids in record["parts"].items()}
    return {
        "command": shlex.join(words),
        "help": f"This command{'' if '--labels' in given else ', with its labels,'} repeats the fine-tuning:",
        "fingerprint": None,
        "facts": {
            "pretrained run": record["run"],
            "source": str(record["pretraining"]["source"]),
            "encoder": str(record["pretraining"]["encoder"]),
            "task": result["data"]["task"],
            **counts,
            "started": utc_text(record["created"]),
            "trained for": trained_time(run.history),
        },
        "notes": [],
        "versions": record["versions"],
        "config": {key: str(value) for key, value in settings.items()},
    }
