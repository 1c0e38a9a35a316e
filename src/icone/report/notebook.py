"""What a notebook shows for a run and its result: state, verdict and metrics as small tables."""

from __future__ import annotations

from html import escape

from icone.api.evaluate import evaluation_parts, result_table
from icone.evaluation.verdict import TAUGHT, Verdict, judge_live
from icone.methods import method_class
from icone.readable import as_html, html_table
from icone.report.content import live_warnings
from icone.run import Run
from icone.terminal import counted

__all__ = ["evaluation_parts", "run_html"]


def run_html(run: Run) -> str:
    """The run in a few lines of HTML; everything in it is escaped."""
    config, result = run.config, run.result
    rows = [
        ["method", f"{config.method}, batch size {config.batch_size}"],
        ["data", config.source],
        ["epochs", f"{len(run.history)} of {run.epochs}" + ("" if run.finished else ", unfinished")],
    ]
    if result is None:
        measured = [row for row in run.history if "geometry" in row]
        if measured:
            samples = measured[-1]["geometry"].get("instances")
            of = "" if samples is None else f", on {counted(samples, 'sample')}"
            obstacle = TAUGHT if method_class(config.method).needs_labels else ""
            rows.append([f"while training{of}", str(judge_live(measured[-1], obstacle))])
        rows.append(["next", f"icone.evaluate({str(run.folder)!r})"])
    else:
        rows.append(["verdict", str(Verdict.from_json(result["verdict"]))])
    rows += [["warning", text] for text in live_warnings(run)]
    metrics = "" if result is None else as_html([result_table(result)])
    return f"<b>Run {escape(str(run.folder))}</b>{html_table(rows)}{metrics}"
