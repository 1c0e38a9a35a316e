"""What is said when a training has ended: the table of a fine-tuning, a few lines, and the commands that come next."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from icone.evaluation.metrics import METRICS, metric_value
from icone.evaluation.recognition import NOTICEABLE
from icone.evaluation.verdict import TAUGHT, judge_live
from icone.methods import method_class
from icone.readable import Part
from icone.run import Run
from icone.seeds import group_seeds
from icone.terminal import counted
from icone.training.live_score import live_score
from icone.training.progress import format_rank, format_seconds

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
    networks = [name for name in NETWORKS if name in result]
    sizes = f"{data['train']} training, {data['val']} validation, {data['test']} test samples"
    table = Table(title=sizes, title_justify="left")
    table.add_column("")
    for name in networks:
        table.add_column(NETWORKS[name], justify="right")
    for score in SCORES[task]:
        values = [metric_value({PROBES[task]: result[name]}, METRICS[score]) for name in networks]
        table.add_row(TITLES[score], *("–" if value is None else METRICS[score].text(value) for value in values))
    epochs = [str(result["training"].get(name, {}).get("best_epoch", "–")) for name in networks]
    table.add_row("kept epoch", *epochs)
    return table


def finetune_parts(result: dict[str, Any]) -> list[Part]:
    """What is said about a fine-tuning: its table, whether it is better, and notes."""
    data = result["data"]
    return [
        finetune_table(result), data["note"], *finetune_sentences(result), *(f"note: {note}" for note in data["notes"])
    ]  # fmt: skip


def finetune_states(result: dict[str, Any]) -> dict[str, str]:
    """Whether fine-tuning is better than what stands beside it, by the name of that in `comparison`."""
    states = {}
    for name, found in result["comparison"].items():
        other = {"probe": "the linear probe", "from_scratch": "the same network from scratch"}[name]
        if max(found["before"], found["after"]) < found.get("floor", -math.inf):
            states[name] = f"Neither fine-tuned nor {other} is better than the mean of the training labels"
            continue
        is_better = found["difference"] >= NOTICEABLE and found["low"] > 0
        is_worse = found["difference"] <= -NOTICEABLE and found["high"] < 0
        word = "better than" if is_better else "worse than" if is_worse else "not clearly better or worse than"
        states[name] = f"Fine-tuned is {word} {other}"
    return states


def finetune_sentences(result: dict[str, Any]) -> list[str]:
    """Whether fine-tuning is better than what stands beside it, and by how much, a sentence each."""
    metric = METRICS[PROBES[result["data"]["task"]]]
    score, unit = TITLES[metric.name].removesuffix(" (%)"), " points" if metric.percent else ""
    sentences = []
    for name, state in finetune_states(result).items():
        found = result["comparison"][name]
        value, low, high = (metric.signed(found[key]) for key in ("difference", "low", "high"))
        size = f": {score} differs by {value}{unit}, 95 % interval {low} to {high}"
        sentences.append(f"{state}{'' if state.startswith('Neither') else size}.")
    return sentences


WIDTH = 9
"""Of the words before the lines, as in what is said before training."""


def pretraining_summary(run: Run) -> list[str]:
    """Time, loss, RankMe, probe and verdict of a finished run, as its history holds them, and the next commands."""
    history = run.history
    lines = [
        f"done: {run.folder}",
        _line("time", f"{trained_time(history)} of training, {counted(len(history), 'epoch')}"),
    ]
    first, last = history[0], history[-1]
    before = f", {first['loss']:.3f} in the first epoch" if len(history) > 1 else ""
    lines.append(_line("loss", f"{last['loss']:.3f}{before}"))
    lines += _measured(run, [row for row in history if "geometry" in row])
    lines += _earlier(run)
    labels = "" if run.instances.get("class_names") or run.config.labels else "  (--labels=FILE.csv adds probes)"
    return [
        *lines,
        *_next([_icone("evaluate", run.folder) + labels, *(_icone(v, run.folder) for v in ("embed", "report"))]),
    ]


def summary_of_many(runs: Sequence[Run]) -> list[str]:
    """Epochs, time, loss and RankMe of several finished runs, a line each, and the commands that look at all."""
    lines = [f"done: {', '.join(str(run.folder) for run in runs)}"]
    for run in runs:
        history = run.history
        ranks = [row["geometry"] for row in history if "geometry" in row]
        rank = f"  RankMe {format_rank(ranks[-1])}" if ranks else ""
        epochs = counted(len(history), "epoch")
        lines.append(f"{run.folder.name}: {epochs}, {trained_time(history)}  loss {history[-1]['loss']:.3f}{rank}")
    if len(runs) > 1 and len(group_seeds(runs)) == 1:
        return [*lines, *_next([_icone(verb, runs[0].folder.parent) for verb in ("evaluate", "report")])]
    return [*lines, *_next([_icone("report", *(run.folder for run in runs))])]


def finetuning_summary(folder: Path, history: Sequence[dict[str, Any]]) -> list[str]:
    """The time of a fine-tuning, of all its networks, and the next commands; its scores are in a table."""
    epochs = Counter(row["network"] for row in history)
    each = ", ".join(f"{counted(count, 'epoch')} ({NETWORKS[network]})" for network, count in epochs.items())
    time = _line("time", f"{trained_time(history)} of training, {each}")
    return [f"done: {folder}", time, *_next([_icone("report", folder), _icone("predict", folder) + " FOLDER"])]


def _measured(run: Run, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the live probe found, on few samples: RankMe, probe and verdict of its last measurement, and alarms."""
    if not rows:
        return []
    last, geometry = rows[-1], rows[-1]["geometry"]
    untrained = geometry.get("untrained_rankme")
    earlier = f"{rows[0]['geometry']['rankme']:.1f} in epoch {rows[0]['epoch'] + 1}"
    before = earlier if untrained is None else f"{untrained:.1f} before training"
    lines = [
        _line("RankMe", f"{geometry['rankme']:.1f} of at most {geometry['rank_limit']:.0f}, {before}"),
    ]
    if (found := live_score(last)) is not None:
        now, before = (f"{value}{found.unit}" for value in (found.now, found.before))
        lines.append(_line("probe", f"{found.score} {now}, {before} before training"))
    verdict = judge_live(last, TAUGHT if method_class(run.config.method).needs_labels else "")
    lines.append(
        _line(
            "so far", f"{verdict.headline} ({counted(geometry.get('instances', 0), 'sample')}: evaluate measures all)"
        )
    )
    alarms = [row["epoch"] + 1 for row in rows if "warning" in row["geometry"]]
    if alarms:
        state = next(row for row in reversed(rows) if "warning" in row["geometry"])["geometry"]["warning"]
        lines.append(
            _line("alarm", f"{state}, last in epoch {alarms[-1]} of {len(run.history)}. {verdict.advice}".strip())
        )
    return lines


def _earlier(run: Run) -> list[str]:
    """Where the last evaluation before the run was extended is, which was of another encoder."""
    if not run.earlier_results or run.result_file.is_file():
        return []
    epochs, file = max(run.earlier_results.items())
    return [_line("evaluated", f"after {counted(epochs, 'epoch')} ({file}), not since the run was extended")]


def trained_time(history: Sequence[dict[str, Any]]) -> str:
    """The time of all epochs, with what was measured after them; that of earlier parts of a resumed run counts."""
    return format_seconds(sum(row.get("seconds", 0.0) + row.get("probe_seconds", 0.0) for row in history))


def _line(word: str, text: str) -> str:
    return f"{word:<{WIDTH}} {text}"


def _next(commands: Sequence[str]) -> list[str]:
    return [_line("" if number else "next", command) for number, command in enumerate(commands)]


def _icone(verb: str, *folders: Path) -> str:
    """
    >>> _icone("evaluate", Path("my runs/a"))
    "icone evaluate 'my runs/a'"
    """
    return shlex.join(["icone", verb, *map(str, folders)])
