"""What a notebook shows for a run: state, verdict and metrics as a small table."""

from __future__ import annotations

from html import escape
from typing import Any

from icone.evaluation.metrics import metric_value, metrics_shown
from icone.evaluation.verdict import TAUGHT, Verdict, judge_live
from icone.methods import method_class
from icone.report.content import live_warnings
from icone.run import Run

STYLE = "text-align: left; vertical-align: top"
"""Of every cell: notebooks put text to the right and break headings."""


def run_html(run: Run) -> str:
    """The run in a few lines of HTML; everything in it is escaped."""
    config, result = run.config, run.result
    rows = [
        ["method", f"{config.method}, batch size {config.batch_size}"],
        ["data", config.source],
        ["epochs", f"{len(run.history)} of {run.epochs}" + ("" if run.finished else ", unfinished")],
    ]
    if result is None:
        measured = [row["geometry"] for row in run.history if "geometry" in row]
        if measured:
            of = f" of {measured[-1]['instances']} samples" if "instances" in measured[-1] else ""
            obstacle = TAUGHT if method_class(config.method).needs_labels else ""
            rows.append([f"while training, by views{of}", str(judge_live(measured[-1], obstacle))])
        rows.append(["next", f"icone.evaluate({str(run.folder)!r})"])
    else:
        rows.append(["verdict", str(Verdict.from_json(result["verdict"]))])
    rows += [["warning", text] for text in live_warnings(run)]
    return f"<b>Run {escape(str(run.folder))}</b>{_table(rows)}{'' if result is None else _table(_metrics(result))}"


def _metrics(result: dict[str, Any]) -> list[list[str]]:
    """Every metric before and after training."""
    encoders = [which for which in ("untrained", "trained") if which in result]
    rows = [["", *encoders]]
    for metric in metrics_shown("evaluation"):
        values = [metric_value(result[which], metric) for which in encoders]
        if values[-1] is not None:
            rows.append([metric.heading, *("–" if value is None else metric.text(value) for value in values)])
    return rows


def _table(rows: list[list[str]]) -> str:
    def cell(tag: str, text: str) -> str:
        space = "; white-space: nowrap" if tag == "th" else ""
        return f'<{tag} style="{STYLE}{space}">{escape(text)}</{tag}>'

    body = "".join("<tr>" + cell("th", name) + "".join(cell("td", t) for t in texts) + "</tr>" for name, *texts in rows)
    return f"<table>{body}</table>"
