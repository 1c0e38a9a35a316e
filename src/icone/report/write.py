"""`icone report`: one page about one run, or about several side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from icone.api.build import memory_errors
from icone.api.evaluate import evaluate
from icone.api.run_data import check_moved, open_run_data
from icone.errors import InputError
from icone.evaluation.projection import ProjectionName
from icone.report.content import DrawnMemory, run_content
from icone.report.finetuned_content import finetuned_content
from icone.report.group_content import group_content
from icone.report.page import page
from icone.run import Run, refuse_own_file, write_text
from icone.seeds import expand_seeds, group_seeds, run_names
from icone.terminal import Terminal, printable_lines
from icone.validation import check_arguments, check_target


@check_arguments
def report(
    runs: str | Path | Run | Sequence[str | Path | Run],
    *,
    out: str | Path = "report.html",
    projections: Sequence[ProjectionName] = ("umap", "pca"),
    table: Path | None = None,
    thumbnails: bool = True,
    data: Any = None,
    data_root: Path | None = None,
    cache: str | None = None,
    console: Console | None = None,
) -> Path:
    """Write the page about a run, or about several, and return its path.

    A run that has not been evaluated is evaluated first.
    `data` says where the data of the runs is now, or gives it again where it was a Python object.

    Folders of `icone finetune` get a page of their own: scores beside the linear probe and the network from scratch.

    `table` is a CSV whose columns the map can be coloured by; `projections` are the maps to choose from.
    """
    console = console or Terminal()
    check_target(Path(out))
    refuse_own_file(Path(out))
    if not runs or not projections:
        raise InputError("a report needs at least one run and one projection")
    found = expand_seeds(runs)
    if tuned := [run for run in found if run.is_finetuned]:
        return _write_finetuned(tuned, len(found), Path(out))
    opened = [Run.open(run.folder) for run in found]
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
    return _write(contents, Path(out), groups=group_content(groups, opened))


def _write_finetuned(tuned: Sequence[Run], given: int, target: Path) -> Path:
    if len(tuned) < given:
        raise InputError(f"{tuned[0].folder} is a fine-tuning and others are pretrainings: give each kind its own page")
    contents = [finetuned_content(run, name=name) for run, name in zip(tuned, run_names(tuned), strict=True)]
    return _write(contents, target, kind="fine-tuning")


def _write(contents: Sequence[dict[str, Any]], target: Path, **more: Any) -> Path:
    names = [group["name"] for group in more.get("groups", ())] or [content["name"] for content in contents]
    title = names[0] if len(names) == 1 else f"{len(names)} runs"
    write_text(target, page({"title": title, "runs": contents, **more}))
    return target


def _show(status: Status, name: str, stage: str) -> None:
    status.update(Text(printable_lines(f"{name}: {stage}")))


def ensure_evaluated(run: Run, data: Any, data_root: Path | None, cache: str | None, console: Console) -> None:
    """Evaluate with the default settings what has not been evaluated, and say so; compare data that was moved."""
    if run.result is None or not run.features_file.is_file():
        console.print(f"{run.folder} has not been evaluated yet: doing that now", highlight=False, markup=False)
        evaluate(run, data=data, data_root=data_root, cache=cache, console=console)
    elif data is not None:
        config = dataclasses.replace(run.config, labels=None, label_column=(), group_column=None)
        config = dataclasses.replace(config, data_root=data_root or config.data_root, cache=cache or config.cache)
        check_moved(run, open_run_data(run.folder, config, data), config, console)
