"""What the page says about several runs together: metrics side by side, mean ± standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icone.api.evaluate_seeds import mean_texts
from icone.evaluation.metrics import METRICS
from icone.run import Run
from icone.seeds import SeedGroup


def group_content(groups: Sequence[SeedGroup], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every group with the positions of its runs on the page, the means of their metrics and of their classes."""
    contents = []
    for group in groups:
        results = [run.result or {} for run in group.runs]
        metrics = [{"title": metric.heading, **texts} for metric, texts in mean_texts(results)]
        contents.append(
            {
                "name": group.name,
                "runs": [runs.index(run) for run in group.runs],
                "metrics": metrics,
                "classes": _classes(results) if len(results) > 1 else [],
            }
        )
    return contents


def _classes(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean ± standard deviation of the share of every class that the linear probe gets right."""
    found = [result["trained"].get("linear_probe") for result in results]
    probes = [probe for probe in found if probe is not None]
    if len(probes) < len(results):
        return []
    shared = [name for name in probes[0]["classes"] if all(name in probe["per_class"] for probe in probes)]
    before = [result.get("untrained", {}).get("linear_probe") or {"per_class": {}} for result in results]
    text = METRICS["linear_probe"].mean_text
    rows = []
    for name in shared:
        old = [probe["per_class"][name] for probe in before if name in probe["per_class"]]
        rows.append(
            {
                "name": name,
                "trained": text([probe["per_class"][name] for probe in probes]),
                "untrained": text(old) if len(old) == len(results) else "–",
            }
        )
    return rows
