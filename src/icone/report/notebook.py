"""What a notebook shows for a run: state, verdict and metrics as a small table."""

from __future__ import annotations

from html import escape

from icone.evaluation.metrics import metric_value, metrics_shown
from icone.evaluation.verdict import TAUGHT, Verdict, judge_live
from icone.methods import method_class
from icone.report.content import live_warnings
from icone.run import Run


def run_html(run: Run) -> str:
    """The run in a few lines of HTML; everything in it is escaped."""
    config, result = run.config, run.result
    rows = [
        ("method", f"{config.method}, batch size {config.batch_size}"),
        ("data", config.source),
        ("epochs", f"{len(run.history)} of {run.epochs}" + ("" if run.finished else ", unfinished")),
    ]
    if result is None:
        measured = [row["geometry"] for row in run.history if "geometry" in row]
        if measured:
            of = f" of {measured[-1]['instances']} samples" if "instances" in measured[-1] else ""
            obstacle = TAUGHT if method_class(config.method).needs_labels else ""
            rows.append((f"while training, by views{of}", str(judge_live(measured[-1], obstacle))))
        rows += [("next", f"icone.evaluate({str(run.folder)!r})")]
    else:
        rows += [("verdict", str(Verdict.from_json(result["verdict"])))]
        for metric in metrics_shown("evaluation"):
            value = metric_value(result["trained"], metric)
            if value is not None:
                rows.append((metric.heading, metric.text(value)))
    rows += [("warning", text) for text in live_warnings(run)]
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<b>Run {escape(str(run.folder))}</b><table>{cells}</table>"
