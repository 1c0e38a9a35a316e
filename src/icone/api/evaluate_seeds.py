"""The evaluation of a folder of seeds: each run as alone, and mean ± standard deviation over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from icone.api.evaluate import evaluate
from icone.errors import InputError
from icone.evaluation.metrics import Metric, metric_value, metrics_shown
from icone.seeds import seed_folders
from icone.terminal import Terminal, say

Result = Mapping[str, Any]


def evaluate_seeds(folder: str | Path, *, console: Console | None = None, **settings: Any) -> dict[str, dict[str, Any]]:
    """The result of `icone.evaluate(run, **settings)` for every run of a folder of seeds, by the name of its folder.

    `folder` holds seed-0, seed-1, …, as `icone pretrain --seeds` writes them.
    """
    folders = seed_folders(folder)
    if not folders:
        raise InputError(f"{folder} holds no folders seed-0, seed-1, … of runs: icone.evaluate measures a single run")
    console = Terminal() if console is None else console
    results = {}
    for number, one in enumerate(folders, start=1):
        say(console, f"evaluating {one} ({number} of {len(folders)})")
        results[one.name] = evaluate(one, **settings, console=console)
    return results


def mean_texts(results: Sequence[Result]) -> list[tuple[Metric, dict[str, str]]]:
    """Mean ± standard deviation over runs of every metric that all have, untrained and trained where measured."""
    rows = []
    for metric in metrics_shown("evaluation"):
        texts = {}
        for which in ("untrained", "trained"):
            values = [metric_value(result.get(which, {}), metric) for result in results]
            known = [value for value in values if value is not None]
            if len(known) == len(results):
                texts[which] = metric.mean_text(known)
        if "trained" in texts:
            rows.append((metric, texts))
    return rows


def seeds_table(results: Mapping[str, Result]) -> Table:
    """The metrics of a folder of seeds as a table."""
    rows = mean_texts(list(results.values()))
    columns = [which for which in ("untrained", "trained") if any(which in texts for _, texts in rows)]
    note = next(iter(results.values()))["data"]["note"]
    table = Table(title=f"mean ± standard deviation of {len(results)} seeds; {note}", title_justify="left")
    table.add_column("")
    for which in columns:
        table.add_column(which, justify="right")
    for metric, texts in rows:
        table.add_row(metric.heading, *(texts.get(which, "–") for which in columns))
    return table
