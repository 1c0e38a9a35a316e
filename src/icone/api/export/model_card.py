"""The model card of an export: data, recipe, metrics, use, licence, citation."""

from __future__ import annotations

import json
import shlex
from typing import Any

from icone.api.export.base import Export
from icone.config import is_object, to_command
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
    run, config, record = export.run, export.run.config, export.run.record
    data, preparation = record["data"], export.preparation
    source = "a Python object" if is_object(config.source) else config.source.rstrip("/").rsplit("/", 1)[-1]
    size = "×".join(map(str, preparation.size)) or "points"
    weights = record.get("weights")
    return [
        f"# {config.encoder}, trained without labels by {config.method}",
        "",
        f"It turns samples of {preparation.channels} channels and {size} into {record['encoder']['num_features']} "
        "features.",
        "",
        "## Use",
        "",
        "```python",
        "import icone",
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
        *(f"| {name} | {value} |" for name, value in preparation.to_json().items()),
        *(f"| {name} | {value} |" for name, value in export.normalisation().items()),
        "",
        "## Training",
        "",
        f"Started from {weights['origin'] if weights else 'random weights'}; {counted(len(run.history), 'epoch')}, "
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
    words = to_command(export.run.config)
    words[2] = words[2].rstrip("/").rsplit("/", 1)[-1]  # where the data lay is nobody's business
    return shlex.join(words)


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
