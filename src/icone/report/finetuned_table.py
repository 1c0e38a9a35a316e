"""Fine-tunings side by side: the table that a page of several of them begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icone.api.evaluated import finetuned_result
from icone.api.predict import read_record
from icone.api.summaries import NETWORKS, PROBES, SCORES, TITLES
from icone.evaluation.metrics import METRICS, metric_value
from icone.report.finetuned_content import interval_text
from icone.run import Run
from icone.seeds import SeedGroup, run_names


def side_by_side(groups: Sequence[SeedGroup]) -> list[dict[str, Any]]:
    """A table for every task: `scores` and `networks` name its columns, and `rows` are fine-tunings.

    Of a group of seeds there is a row with the mean ± standard deviation; the rows of its seeds come after all groups.
    A group of fine-tunings whose tasks differ has no mean.
    """
    runs = [run for group in groups for run in group.runs]
    rows = [_Row(name, "seed", [run]) for name, run in zip(run_names(runs), runs, strict=True)]
    alone = {row.runs[0].folder: row for row in rows}
    first: list[_Row] = []
    for group in groups:
        own = [alone[run.folder] for run in group.runs]
        if len(own) == 1 or len({row.task for row in own}) > 1:
            first += [_Row(row.name, "", row.runs) for row in own]
            rows = [row for row in rows if row not in own]
        else:
            first.append(_Row(f"{group.name}: mean ± sd of {len(own)} seeds", "mean", list(group.runs)))
    tasks = dict.fromkeys(row.task for row in first)
    return [_table(task, [row for row in (*first, *rows) if row.task == task]) for task in tasks]


class _Row:
    """One fine-tuning, or all seeds of a group."""

    def __init__(self, name: str, kind: str, runs: list[Run]) -> None:
        self.name, self.kind, self.runs = name, kind, runs
        self.results = [finetuned_result(run) for run in runs]
        self.task: str = self.results[0]["data"]["task"]

    def content(self, networks: Sequence[str]) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "samples": {part: self._count(part) for part in ("train", "val", "test")},
            "values": [[self._cell(network, score) for network in networks] for score in SCORES[self.task]],
        }

    def _count(self, part: str) -> str:
        """How many samples a part has; of seeds that differ the fewest and the most."""
        counts = [result["data"][part] for result in self.results]
        return f"{min(counts):,}" if len(set(counts)) == 1 else f"{min(counts):,} to {max(counts):,}"

    def _cell(self, network: str, score: str) -> list[str]:
        """A score, and behind it its interval where it has one; of several seeds the mean, and the deviation."""
        metric, probe = METRICS[score], PROBES[self.task]
        values = [metric_value({probe: result.get(network)}, metric) for result in self.results]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return ["–"]
        if len(known) > 1:
            mean, deviation = metric.mean_text(known).split(" ± ")
            return [mean, f"± {deviation}"]
        bounds = interval_text(self.results[0][network], metric.text) if score == probe else []
        return [metric.text(known[0]), *bounds]


def _table(task: str, rows: Sequence[_Row]) -> dict[str, Any]:
    networks = [network for network in NETWORKS if any(network in result for row in rows for result in row.results)]
    return {
        "scores": [TITLES[score] for score in SCORES[task]],
        "networks": [NETWORKS[network] for network in networks],
        "rows": [row.content(networks) for row in rows],
    }


def unequal_finetuning(runs: Sequence[Run]) -> str:
    """A sentence where fine-tunings of one group differ in more than their seeds. Else nothing."""
    records = [read_record(run.folder) for run in runs]
    differing = [
        f"{name}{suffix}"
        for part, suffix in (("settings", ""), ("pretraining", " of the pretraining"))
        for name in records[0][part]
        if name != "seed" and len({repr(record[part].get(name)) for record in records}) > 1
    ]
    if len({frozenset(record["parts"]["test"]) for record in records}) > 1:
        differing.append("their test samples")
    if not differing:
        return ""
    return f"the seeds were not fine-tuned alike ({', '.join(differing)}), so that their mean is of different trainings"
