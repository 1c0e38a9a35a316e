"""The evaluation of a folder of seeds: each run as alone, and mean ± standard deviation over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from icone.evaluation.metrics import Metric, metric_value, metrics_shown

Result = Mapping[str, Any]


def evaluate_seeds(
    folders: Sequence[Path], measure: Callable[[Path], dict[str, Any]], console: Console
) -> dict[str, dict[str, Any]]:
    """The result of every run by the name of its folder; `measure` is `icone.evaluate` with its settings."""
    results = {}
    for number, folder in enumerate(folders, start=1):
        console.print(f"evaluating {folder} ({number} of {len(folders)})", highlight=False, markup=False)
        results[folder.name] = measure(folder)
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
