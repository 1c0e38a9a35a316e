"""The result of `icone finetune` as a table and as sentences."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from icone.evaluation.comparison import NOTICEABLE
from icone.evaluation.metrics import METRICS, metric_value

PROBES = {"classification": "linear_probe", "regression": "ridge_probe", "multilabel": "multilabel_probe"}
"""What fine-tuning is compared with."""
NETWORKS = {"from_scratch": "from scratch", "probe": "linear probe", "fine_tuned": "fine-tuned"}
"""What a result holds scores of, and what tables call it."""
SCORES = {
    "classification": ("linear_probe", "auroc"),
    "regression": ("ridge_probe", "ridge_spearman"),
    "multilabel": ("multilabel_probe", "average_precision"),
}
"""Metrics of the table, by task."""
TITLES = {
    "linear_probe": "balanced accuracy (%)", "auroc": "AUROC", "ridge_probe": "R²",
    "ridge_spearman": "Spearman correlation", "multilabel_probe": "mean AUROC",
    "average_precision": "mean average precision",
}  # fmt: skip


def finetune_table(result: dict[str, Any]) -> Table:
    """The scores of the network from scratch, the linear probe and the fine-tuned network, side by side."""
    task, data = result["data"]["task"], result["data"]
    columns = [name for name in NETWORKS if name in result]
    sizes = f"{data['train']} training, {data['val']} validation, {data['test']} test samples"
    table = Table(title=sizes, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(NETWORKS[name], justify="right")
    for score in SCORES[task]:
        values = [metric_value({PROBES[task]: result[name]}, METRICS[score]) for name in columns]
        table.add_row(TITLES[score], *("–" if value is None else METRICS[score].text(value) for value in values))
    table.add_row("best epoch", *(str(result["training"].get(name, {}).get("best_epoch", "–")) for name in columns))
    return table


def finetune_sentences(result: dict[str, Any]) -> list[str]:
    """Whether fine-tuning is better than what stands beside it, a sentence each."""
    metric = METRICS[PROBES[result["data"]["task"]]]
    score, unit = TITLES[metric.name].removesuffix(" (%)"), " points" if metric.percent else ""
    sentences = []
    for name, found in result["comparison"].items():
        is_better = found["difference"] >= NOTICEABLE and found["low"] > 0
        is_worse = found["difference"] <= -NOTICEABLE and found["high"] < 0
        word = "better than" if is_better else "worse than" if is_worse else "not told apart from"
        low, high = (metric.text(found[bound]) for bound in ("low", "high"))
        other = {"probe": "the linear probe", "from_scratch": "the same network from scratch"}[name]
        sentences.append(f"Fine-tuned is {word} {other}: {score} differs by {low} to {high}{unit}.")
    return sentences
