"""`icone report`: one page about one run, or about several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from icone.building import memory_errors
from icone.errors import InputError
from icone.evaluating import evaluate
from icone.evaluation.projection import ProjectionName
from icone.report.content import run_content
from icone.report.page import page
from icone.runs import Run, write_text


def report(
    runs: Sequence[str | Path | Run],
    *,
    out: str | Path = "report.html",
    projections: Sequence[ProjectionName] = ("umap", "pca"),
    table: Path | None = None,
    thumbnails: bool = True,
    data_root: Path | None = None,
    console: Console | None = None,
) -> Path:
    """Write the page and return its path; a run that has not been evaluated is evaluated first.

    `table` is a CSV whose columns the map can be coloured by; `projections` are the maps to choose from.
    """
    console = console or Console()
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    if not opened or not projections:
        raise InputError("a report needs at least one run and one projection")
    contents = []
    for run, name in zip(opened, run_names(opened), strict=True):
        ensure_evaluated(run, data_root, console)
        with console.status(f"{name}: neighbours, projections, thumbnails"), memory_errors():
            contents.append(
                run_content(
                    run, name=name, projections=projections, table=table, thumbnails=thumbnails, data_root=data_root
                )
            )
    title = contents[0]["name"] if len(contents) == 1 else f"{len(contents)} runs"
    target = Path(out)
    write_text(target, page({"title": title, "runs": contents}))
    return target


def ensure_evaluated(run: Run, data_root: Path | None, console: Console) -> None:
    """Evaluate with the default settings what has not been evaluated, and say so."""
    if run.result is None or not run.features_file.is_file():
        console.print(f"{run.folder} has not been evaluated yet: doing that now", highlight=False, markup=False)
        evaluate(run, data_root=data_root, console=console)


def run_names(runs: Sequence[Run]) -> list[str]:
    """Names that tell runs apart: the last folder, or the whole path where two are called the same.

    >>> run_names([Run("a/x"), Run("b/x")]), run_names([Run("runs/scans/")])
    (['a/x', 'b/x'], ['scans'])
    """
    short = [run.folder.absolute().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.folder) for run in runs]
