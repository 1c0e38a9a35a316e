"""The model card of an export: data, recipe, metrics, use, licence, citation."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from icone.api.export.base import Export
from icone.api.weights import HUB, RUN_ORIGIN
from icone.config import is_object
from icone.config_text import to_command
from icone.evaluation.metrics import metric_value, metrics_shown
from icone.terminal import counted

CITATION = """@misc{icone,
  title = {{IConE}: Batch Independent Collapse Prevention for Self-Supervised Representation Learning},
  author = {Almpanakis, Konstantinos and Kreshuk, Anna},
  year = {2026},
  eprint = {2603.15263},
  archiveprefix = {arXiv}
}"""


def model_card(export: Export, *, is_timm: bool) -> str:
    """README.md with the header that the Hub reads."""
    library = "timm" if is_timm else "icone"
    header = [
        "---", f"license: {json.dumps(export.licence)}", f"library_name: {library}",
        "pipeline_tag: image-feature-extraction", "tags: [icone, self-supervised, feature-extraction]", "---",
    ]  # fmt: skip
    return "\n".join([*header, *_text(export, is_timm), ""])


def _text(export: Export, is_timm: bool) -> list[str]:
    run, config, record = export.run, export.config, export.run.record
    data, preparation = record["data"], export.preparation
    source = "a Python object" if is_object(config.source) else _without_folders(config.source)
    size = "×".join(map(str, preparation.size)) or "points"
    weights = record.get("weights")
    start = _without_folders(weights["origin"]) if weights else "random weights"
    return [
        f"# {config.encoder}, trained without labels by {config.method}",
        "",
        f"It turns samples of {counted(preparation.channels, 'channel')} and {size} into "
        f"{counted(record['encoder']['num_features'], 'feature')}.",
        "",
        "## Use",
        "",
        "```python",
        "import icone",
        *(["import timm"] if is_timm else []),
        "",
        'encoder = icone.from_export("this folder")  # raw samples in, features out: the preparation is part of it',
        *(['network = timm.create_model("local-dir:this folder", pretrained=True)  # the network'] if is_timm else []),
        "```",
        "",
        "## Data",
        "",
        f"{data['instances']:,} training samples of {source}, {data['held_out']:,} held out. "
        f"Fingerprint of the data: `{data['fingerprint']}`.",
        "",
        "| preparation | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in export.preparation_json().items()),
        *(f"| {name} | {value} |" for name, value in export.normalisation().items()),
        "",
        "## Training",
        "",
        f"Started from {start}; {counted(len(run.history), 'epoch')}, "
        f"recipe version {record['recipe_version']}, icone {record['versions']['icone']}, "
        f"torch {record['versions']['torch']}.",
        "",
        "```",
        "a Python program" if is_object(config.source) or is_object(config.encoder) else _command(export),
        "```",
        "",
        "## Metrics",
        "",
        *_metrics(run.result),
        "",
        "## Licence",
        "",
        f"{export.licence}. The licence of the data, and of weights that training started from, may restrict it.",
        "",
        "## Citation",
        "",
        "```bibtex",
        CITATION,
        "```",
    ]


def _command(export: Export) -> str:
    return shlex.join(["icone", *map(_without_folders, to_command(export.config)[1:])])


def _without_folders(text: str) -> str:
    """A source, file or run by its last name: where things lay is nobody's business. Names on the Hub stay whole.

    >>> _without_folders("/home/me/labels.csv"), _without_folders("the run runs/a/"), _without_folders("hf-hub:a/b")
    ('labels.csv', 'the run a', 'hf-hub:a/b')
    """
    if text.startswith(HUB):
        return text
    kind = RUN_ORIGIN if text.startswith(RUN_ORIGIN) else ""
    return kind + re.split(r"[/\\]", text.removeprefix(kind).rstrip("/\\"))[-1]


def _metrics(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return ["Not measured: `icone evaluate` was not run."]
    measured = [which for which in ("untrained", "trained") if which in result]
    rows = []
    for metric in metrics_shown("evaluation"):
        values = {which: metric_value(result[which], metric) for which in measured}
        if values["trained"] is not None:
            texts = ("" if value is None else metric.text(value) for value in values.values())
            rows.append(f"| {metric.heading} | {' | '.join(texts)} |")
    names = {"untrained": "before training", "trained": "after training"}
    heads = [f"| metric | {' | '.join(names[which] for which in measured)} |", "| --- |" + " --- |" * len(measured)]
    return [*heads, *rows, "", f"Measured on {result['data'].get('samples', 'its')} samples."]
