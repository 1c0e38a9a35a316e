"""`icone report`: one page about one run, or about several side by side.

It is one HTML file that opens from disk and needs no network: style, plotting library, data and script inside. File
names, labels and table columns are untrusted text. They travel as JSON in a script element that is never executed, with
every character escaped that could end it; the script puts them on the page as text only; and the page's own policy
forbids any script but ours, and any connection.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from icone.api.build import memory_errors
from icone.api.compare import check_one_kind, compare_groups, comparison_parts, unequal_evaluation
from icone.api.evaluate import evaluate
from icone.api.predict import FineTuned
from icone.api.run_data import check_moved, open_run_data
from icone.config import with_given
from icone.errors import InputError, optional
from icone.evaluation.metrics import METRICS, metric_texts
from icone.evaluation.projection import ProjectionName
from icone.files import write_text
from icone.find_runs import no_run
from icone.outputs import output_of_runs
from icone.readable import show
from icone.report.content import DrawnMemory, run_content, utc_text
from icone.report.finetuned_content import finetuned_content
from icone.report.finetuned_table import side_by_side, unequal_finetuning
from icone.report.samples import with_flags
from icone.run import Run, refuse_own_file
from icone.seeds import SeedGroup, expand_seeds, group_seeds, run_names, unequal_training
from icone.terminal import Terminal, counted, printable_lines, say
from icone.validation import check_arguments, check_target

with optional("report", "icone report"):
    from plotly.offline import get_plotlyjs

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

SCRIPTS = (
    "base.js", "verdict.js", "pictures.js", "charts.js", "map.js", "tables.js", "probes.js", "finetuned.js", "main.js",
)  # fmt: skip


@check_arguments
def report(
    runs: str | Path | Run | FineTuned | Sequence[str | Path | Run | FineTuned],
    *,
    out: str | Path | None = None,
    projections: Sequence[ProjectionName] = ("umap", "pca"),
    table: Path | None = None,
    thumbnails: bool = True,
    data: Any = None,
    data_root: Path | None = None,
    cache: str | None = None,
    console: Console | None = None,
) -> Path:
    """Write the page about a run, or about several, and return its path.

    Without `out` it is report.html in the run folder, or in the folder of seeds; of several runs it is in the current
    folder, with their names.
    A run that has not been evaluated is evaluated first.
    Of several runs it says whether they differ in the score of their main probe (`icone.compare`).
    `data` says where the data of the runs is now, or gives it again where it was a Python object.

    What `icone.finetune` returns, or its folder, gets a page of its own: scores beside the linear probe and
    the network from scratch.

    `table` is a CSV whose columns the map can be coloured by; `projections` are the maps to choose from.
    """
    console = console or Terminal()
    written_at()  # a wrong SOURCE_DATE_EPOCH is told before the work
    if not runs:
        raise no_run(None, "a report needs at least one run")
    if not projections:
        raise InputError("a report needs at least one projection")
    given = [runs] if isinstance(runs, str | Path | Run | FineTuned) else runs
    found = expand_seeds([one.folder if isinstance(one, FineTuned) else one for one in given])
    tuned = [run for run in found if run.is_finetuned]
    opened = [Run.open(run.folder) for run in found if not run.is_finetuned]
    target = output_of_runs(found, "report.html") if out is None else Path(out)
    check_target(target)
    refuse_own_file(target)
    check_one_kind(found, "give each kind its own page")
    if tuned:
        return _write_finetuned(tuned, target, console)
    contents = []
    memory: DrawnMemory = {}
    for run, name in zip(opened, run_names(opened), strict=True):
        ensure_evaluated(run, data, data_root, cache, console)
        with console.status(Text(printable_lines(name))) as status, memory_errors():
            content = run_content(
                run,
                name=name,
                projections=projections,
                table=table,
                thumbnails=thumbnails,
                data=data,
                data_root=data_root,
                memory=memory,
                progress=partial(_show, status, name),
            )
        contents.append(content)
    groups = group_seeds(opened)
    grouped = group_content(groups, opened)
    return _write(contents, target, groups=grouped, compared=_compared(groups, grouped, console))


def _write_finetuned(tuned: Sequence[Run], target: Path, console: Console) -> Path:
    contents = [finetuned_content(run, name=name) for run, name in zip(tuned, run_names(tuned), strict=True)]
    groups = group_seeds(tuned)
    grouped = [
        {"name": g.name, "runs": [tuned.index(run) for run in g.runs], "note": unequal_finetuning(g.runs)}
        for g in groups
    ]
    more = {"kind": "fine-tuning", "groups": grouped, "tables": side_by_side(groups) if len(tuned) > 1 else []}
    return _write(contents, target, **more, compared=_compared(groups, grouped, console))


def _compared(
    groups: Sequence[SeedGroup], grouped: Sequence[dict[str, Any]], console: Console
) -> dict[str, Any] | None:
    """Whether groups differ, which is said on the terminal too, after what is wrong with a group."""
    for group in grouped:
        if group["note"]:
            say(console, f"note: {group['name']}: {group['note']}")
    if len(groups) == 1:
        return None
    compared = compare_groups(groups)
    show(console, comparison_parts(compared))
    found: dict[str, Any] = with_flags(compared)
    return found


def _write(contents: Sequence[dict[str, Any]], target: Path, **more: Any) -> Path:
    title = _title(contents, more.get("groups", ()))
    about = {"title": title, "written": utc_text(written_at()), "version": version("icone")}
    write_text(target, page({**about, "runs": contents, **more}))
    return target


def _title(contents: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]]) -> str:
    """The name of the run or of the folder of seeds; of two both; of more their number."""
    names = [one["name"] for one in groups or contents]
    if len(names) <= 2:
        return " and ".join(names)
    seeds = f"{len(names)} groups of seeds, " if len(names) < len(contents) else ""
    return f"{seeds}{len(contents)} runs"


def written_at() -> str:
    """The moment of writing; that of SOURCE_DATE_EPOCH, in seconds since 1970, where it is set.

    With it two pages of the same runs are the same file (https://reproducible-builds.org/specs/source-date-epoch).
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return datetime.now(UTC).isoformat(timespec="seconds")
    if not given.isdecimal():
        raise InputError(f"SOURCE_DATE_EPOCH is {given!r}: give whole seconds since 1970, or unset it")
    return datetime.fromtimestamp(int(given), UTC).isoformat(timespec="seconds")


def _show(status: Status, name: str, stage: str) -> None:
    status.update(Text(printable_lines(f"{name}: {stage}")))


def ensure_evaluated(run: Run, data: Any, data_root: Path | None, cache: str | None, console: Console) -> None:
    """Evaluate with the default settings what has not been evaluated, and say so; compare data that was moved."""
    if run.result is None or not run.features_file.is_file():
        _check_finished(run)
        console.print(f"{run.folder} {run.why_no_result}: evaluating it now", highlight=False, markup=False)
        evaluate(run, data=data, data_root=data_root, cache=cache, console=console)
    elif data is not None:
        config = dataclasses.replace(run.config, labels=None, label_column=(), group_column=None)
        config = with_given(config, data_root=data_root, cache=cache)
        check_moved(run, open_run_data(run.folder, config, data), config, console)


def _check_finished(run: Run) -> None:
    """Refuse a run that was interrupted: there is no encoder to measure, and only its losses can be drawn."""
    if run.finished:
        return
    done = len(run.history)
    losses = f"; until then `{shlex.join(['icone', 'figures', str(run.folder)])}` draws its losses" if done else ""
    raise InputError(
        f"{run.folder} is not finished ({done} of {counted(run.epochs, 'epoch')}): go on with --resume{losses}"
    )


def group_content(groups: Sequence[SeedGroup], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every group with the positions of its runs on the page, the means of their metrics and of their classes."""
    contents = []
    for group in groups:
        results = [run.result or {} for run in group.runs]
        metrics = [{"title": metric.heading, **texts} for metric, texts in metric_texts(results)]
        contents.append(
            {
                "name": group.name,
                "runs": [runs.index(run) for run in group.runs],
                "metrics": metrics,
                "note": "; ".join(filter(None, [unequal_training(group.runs), unequal_evaluation(group)])),
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


def page(content: dict[str, Any]) -> str:
    """The whole page for `content`: {"title": …, "runs": [one `run_content` each]}.

    With the kind "fine-tuning" the runs are one `finetuned_content` each.
    """
    script, plotting = _script(), get_plotlyjs()
    content = share_sheets(content)
    parts = {
        "policy": _policy([plotting, script]),
        "style": _asset("page.css"),
        "plotly": plotting,
        "data": embed_json(content),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def share_sheets(content: dict[str, Any]) -> dict[str, Any]:
    """The same content with the thumbnails of all runs in one list: runs of the same samples share theirs."""
    sheets: list[Any] = []
    runs = []
    for run in content["runs"]:
        if (own := run.get("map", {}).get("thumbnails")) is not None:
            if own not in sheets:
                sheets.append(own)
            run = {**run, "map": {**run["map"], "thumbnails": sheets.index(own)}}
        runs.append(run)
    return {**content, "runs": runs, "sheets": sheets}


def embed_json(content: Any) -> str:
    """JSON that can stand inside a script element whatever its strings hold; plain ASCII.

    >>> embed_json({"id": "</script><!--"})
    '{"id":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: ESCAPES[match[0]], text)


def _policy(scripts: list[str]) -> str:
    """Only these scripts run, nothing is fetched. The plotting library compiles its WebGL code at run time (eval)."""
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _script() -> str:
    """The page's own script: the parts share one scope, and nothing of it is global."""
    return '"use strict";\n(() => {\n' + "".join(_asset(name) for name in SCRIPTS) + "})();\n"


def _asset(name: str) -> str:
    return (files("icone.report") / "assets" / name).read_text(encoding="utf-8")
