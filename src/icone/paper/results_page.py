"""`icone paper report --runs FOLDER`: a page whose text is written by hand and whose numbers come from stored runs.

The folder holds `page.md` and files as `icone paper show` writes them (`runs.csv`, one run a line). In the text these
places are filled in:

    <!-- table FILE rows=method columns=batch_size metric=linear_probe method=IConE,SimCLR -->
    <!-- table FILE rows=recipe,batch_size metrics=linear_probe,knn_5 -->
    <!-- summary metric=linear_probe at=16 "Natural images=FILE" "Volumes=FILE" -->
    <!-- compare FILE rows=method,batch_size to=IConE,1 metrics=linear_probe,knn_5 -->
    <!-- standings to=IConE,1 metrics=linear_probe,knn_5 times=FILE.json "Natural images=FILE" "Volumes=FILE k=1" -->
    <!-- figure NAME.png metric=linear_probe "Natural images=FILE" "Volumes=FILE" -->
    <!-- figure NAME.png to=IConE,1 metrics=linear_probe,knn_5 "Natural images=FILE" "Volumes=FILE k=1" -->
    <!-- figure NAME.png "Natural images=FILE" -->
    {{ FILE linear_probe method=IConE batch_size=1 }}

A cell is the mean ± standard deviation over seeds, "undefined" where a method has no loss, "out of memory" where a step
did not fit, and – where nothing was measured. A table names its number of seeds. `compare` subtracts every other
setting from the one named by `to`, seed by seed and sample by sample, with a 95 % interval (`icone.paper.paired`), in
bold where the interval leaves zero out. `standings` does so for several sets, and adds what each setting reaches and
the GPU time of its samples; a file may be followed by the values that choose its runs. A figure shows the metric
against the batch size, a panel per set; with `to` the differences of `standings`; without either linear probe, kNN-5
and RankMe of one set. It is written into a folder beside the page, of the same name as the folder of the runs. The last
form is one such cell within a sentence.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from icone.encoders.registry import PAPER_ENCODER
from icone.errors import InputError, one_line
from icone.evaluation.metrics import find_metric
from icone.files import replacing
from icone.paper.paired import PairedDifference, paired_difference
from icone.paper.standings import Setting, relative_times, standings, standings_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE = "page.md"
HEADINGS = {"batch_size": "B", "k": "k", "n": "N"}
MADE = "<!-- Made by `icone paper report`: edit {name}, and run it again. -->\n\n"
_TABLE = re.compile(r"<!-- (table|summary|compare|standings) (.+?) -->", re.DOTALL)
_FIGURE = re.compile(r"<!-- figure (.+?) -->", re.DOTALL)
_VALUE = re.compile(r"\{\{ (.+?) \}\}")


def write_page(folder: Path, out: Path) -> Path:
    """Write the page of a folder of runs."""
    if out.suffix.lower() != ".md":
        raise InputError(f"--runs makes a Markdown page: give --out a name that ends in .md, not {out}")
    source = folder / SOURCE
    if not source.is_file():
        raise InputError(f"there is no {source}: it holds the text of the page, and says where its tables are")
    text = fill(source.read_text(encoding="utf-8"), folder)
    text = _FIGURE.sub(lambda found: _figure(folder, shlex.split(found[1]), out.parent / folder.name), text)
    text = MADE.format(name=f"{folder.name}/{SOURCE}") + text
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return out


def fill(text: str, folder: Path) -> str:
    """The text with its tables and values."""

    def table(found: re.Match[str]) -> str:
        try:
            return _KINDS[found[1]](folder, shlex.split(found[2]))
        except (KeyError, ValueError, OSError) as error:
            raise InputError(f"cannot fill {found[0]} in {folder / SOURCE}: {one_line(error)}") from error

    def value(found: re.Match[str]) -> str:
        try:
            file, metric, *filters = found[1].split()
            return cell(_read(folder, file, dict(f.split("=", 1) for f in filters)), metric)
        except (KeyError, ValueError, OSError) as error:
            raise InputError(f"cannot fill {found[0]} in {folder / SOURCE}: {one_line(error)}") from error

    return _VALUE.sub(value, _TABLE.sub(table, text))


def cell(runs: pd.DataFrame, metric: str) -> str:
    """Mean ± standard deviation of a metric over runs that differ in their seed.

    >>> runs = pd.DataFrame({"status": ["done", "done"], "seed": [0, 1], "linear_probe": [0.5, 0.6]})
    >>> cell(runs, "linear_probe"), cell(runs.assign(status="undefined", linear_probe=float("nan")), "linear_probe")
    ('55.0 ± 7.1', 'undefined')
    """
    values = runs[metric].dropna()
    if values.empty and "out_of_memory" in runs and (runs["out_of_memory"] == 1).any():
        return "out of memory"
    if values.empty:
        return "undefined" if len(runs) and (runs["status"] == "undefined").all() else "–"
    if runs["seed"].duplicated().any():
        raise ValueError(f"a cell holds several runs of one seed: {len(runs)} runs, {runs['seed'].nunique()} seeds")
    known = find_metric(metric)
    digits = 0 if metric in ("rankme", "effective_rank", "lidar") else known.digits
    mean = f"{known.scale * values.mean():.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {known.scale * values.std():.{digits}f}"


def _read(folder: Path, file: str, filters: dict[str, str]) -> pd.DataFrame:
    """The runs of a file whose columns have one of the wanted values."""
    marks = [name for name in pd.read_csv(folder / file, nrows=0).columns if name.startswith("right_")]
    runs = pd.read_csv(folder / file, dtype=dict.fromkeys(marks, str))  # marks of few samples look like numbers
    for name, wanted in filters.items():
        runs = runs[runs[name].astype(str).isin(wanted.split(","))]
    if runs.empty:
        raise ValueError(f"no run of {file} has {filters}")
    return runs


def _table(folder: Path, words: Sequence[str]) -> str:
    file, *rest = words
    given = dict(word.split("=", 1) for word in rest)
    rows, column = given.pop("rows").split(","), given.pop("columns", None)
    metrics = (given.pop("metrics", None) or given.pop("metric")).split(",")
    runs = _read(folder, file, given)
    across = _across(runs, column, metrics)
    lines, seeds = [], {}
    for values in runs[rows].drop_duplicates().itertuples(index=False):
        title = [str(value) for value in values]
        part = runs[(runs[rows] == list(values)).all(axis=1)]
        cells = [(part if column is None else part[part[column] == value], metric) for value, metric, _ in across]
        lines.append([*map(_bold, title), *(cell(*each) for each in cells)])
        counts = {
            heading: len(chosen[metric].dropna()) for (chosen, metric), (*_, heading) in zip(cells, across, strict=True)
        }
        seeds[" ".join(title)] = {heading: count for heading, count in counts.items() if count}
    headings = [*(HEADINGS.get(name, name) for name in rows), *(heading for *_, heading in across)]
    return f"{_markdown(headings, lines)}\n\n{_seeds(seeds)}"


def _across(runs: pd.DataFrame, column: str | None, metrics: list[str]) -> list[tuple[object, str, str]]:
    """Value of the column, metric and heading of every column of numbers."""
    if column is None:
        return [(None, metric, find_metric(metric).title) for metric in metrics]
    (metric,) = metrics
    name = HEADINGS.get(column, column)
    values = sorted(runs[runs[metric].notna() | (runs["status"] == "undefined")][column].unique())
    return [(value, metric, f"{name} = {value}") for value in values]


def _seeds(counts: dict[str, dict[str, int]]) -> str:
    """How many seeds the cells have: the usual number, and the rows or cells that have another."""
    every = [count for row in counts.values() for count in row.values()]
    usual = max(set(every), key=every.count)
    others: dict[tuple[int, str], list[str]] = {}
    for title, row in counts.items():
        differs = {heading: count for heading, count in row.items() if count != usual}
        if len(differs) == len(row) and len(set(row.values())) == 1:
            differs = {"": next(iter(row.values()))}
        for heading, count in differs.items():
            others.setdefault((count, f" at {heading}" if heading else ""), []).append(title)
    said = [f"; {count}{place}: {', '.join(titles)}" for (count, place), titles in others.items()]
    return f"Seeds: {usual}{''.join(said)}."


def _summary(folder: Path, words: Sequence[str]) -> str:
    """Every method on every set, at the smallest batch size at which it is defined, and at one that all have."""
    given = dict(word.split("=", 1) for word in words)
    metric, at = given.pop("metric"), int(given.pop("at"))
    sets = _sets(folder, given)
    methods = dict.fromkeys(method for runs in sets.values() for method in runs["method"])
    lines = []
    for method in methods:
        line = [_bold(method)]
        for runs in sets.values():
            own = runs[runs["method"] == method]
            undefined = set(own[own["status"] == "undefined"]["batch_size"])
            smallest = min(set(runs["batch_size"]) - undefined)
            each = [cell(own[own["batch_size"] == size], metric) for size in (smallest, at)]
            line += [each[0] if own.empty else f"{each[0]} (B = {smallest})", each[1]]
        lines.append(line)
    headings = ["method", *(heading for title in sets for heading in (f"{title}: smallest B", f"B = {at}"))]
    return _markdown(headings, lines)


def _compare(folder: Path, words: Sequence[str]) -> str:
    """One setting against all others: differences in points, their intervals, and the seeds behind them."""
    file, *rest = words
    given = dict(word.split("=", 1) for word in rest)
    by, to, metrics = (given.pop(name).split(",") for name in ("rows", "to", "metrics"))
    runs = _read(folder, file, given)
    runs = runs[runs["status"] == "done"]
    settings = {tuple(map(str, key)): part for key, part in runs.groupby(by, sort=False)}
    reference = settings.pop(tuple(to))
    lines = []
    for key, part in settings.items():
        found = [paired_difference(reference, part, metric) for metric in metrics]
        cells = [_points(one) for one in found]
        needed = ["–" if one.needed is None else str(one.needed) for one in found]
        lines.append([*key, *cells, str(found[0].seeds), " / ".join(needed)])
    titles = [f"{find_metric(metric).title}, difference" for metric in metrics]
    return _markdown([*(HEADINGS.get(name, name) for name in by), *titles, "seeds", "seeds needed"], lines)


def _standings(folder: Path, words: Sequence[str]) -> str:
    """Every setting of several sets: what it reaches, by how much the reference is ahead, and its GPU time."""
    given = dict(word.split("=", 1) for word in words)
    reference, metrics = _reference(given), given.pop("metrics").split(",")
    times = relative_times(json.loads((folder / given.pop("times")).read_text())["rows"], reference)
    lines = []
    for one in standings(_sets(folder, given), reference, metrics):
        method, size = one.setting
        line = [one.data, _bold(method), str(size)]
        for metric in metrics:
            line += [cell(one.runs, metric), _points(one.ahead[metric]) if one.ahead else "–"]
        time = times.get((PAPER_ENCODER[int(one.runs["dims"].iloc[0])], one.setting))
        lines.append([*line, "–" if time is None else f"{time:.2f}", str(one.runs["seed"].nunique())])
    titles = [name for metric in metrics for name in (find_metric(metric).title, "difference")]
    return _markdown(["set", "method", HEADINGS["batch_size"], *titles, "GPU time", "seeds"], lines)


def _sets(folder: Path, given: dict[str, str]) -> dict[str, pd.DataFrame]:
    """Runs by the title of their set, from files that may be followed by what their runs are chosen by."""
    found = {}
    for title, words in given.items():
        file, *filters = shlex.split(words)
        found[title] = _read(folder, file, dict(word.split("=", 1) for word in filters))
    return found


def _reference(given: dict[str, str]) -> Setting:
    """The method and batch size that all others are compared with."""
    method, _, size = given.pop("to").rpartition(",")
    return method, int(size)


def _points(difference: PairedDifference) -> str:
    """A difference in points with its interval; bold where the interval leaves zero out."""
    text = f"{100 * difference.value:+.1f} ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
    return f"**{text}**" if difference.sure else text


_KINDS = {"table": _table, "summary": _summary, "compare": _compare, "standings": _standings}


def _figure(folder: Path, words: Sequence[str], out: Path) -> str:
    """The metric of every method against the batch size, a panel per set; or three metrics of one set."""
    from icone.paper.accuracy_figures import per_dataset_figure, three_metrics_figure

    name, *rest = words
    given = dict(word.split("=", 1) for word in rest)
    if "to" in given:
        reference, metrics = _reference(given), given.pop("metrics").split(",")
        figure = standings_figure(standings(_sets(folder, given), reference, metrics), metrics, reference)
        shown = " and ".join(find_metric(metric).title for metric in metrics)
        alternative = f"{shown}: differences of {reference[0]} at B = {reference[1]} to all others, with intervals"
        return _saved(figure, out, name, folder, alternative)
    metric = given.pop("metric", None)
    runs = pd.concat([_read(folder, file, {}).assign(dataset=title) for title, file in given.items()])
    figure = three_metrics_figure(runs) if metric is None else per_dataset_figure(runs, metric)
    shown = "Linear probe, kNN-5 and RankMe" if metric is None else find_metric(metric).title
    return _saved(figure, out, name, folder, f"{shown} against the batch size")


def _saved(figure: Figure, out: Path, name: str, folder: Path, alternative: str) -> str:
    """Write a figure, and return the Markdown that shows it."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / name, dpi=150)
    return f"![{alternative}]({folder.name}/{name})"


def _bold(title: str) -> str:
    return f"**{title}**" if title in ("IConE", "default recipe") else title


def _markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = [f"| {' | '.join(headings)} |", f"| {' | '.join('---' for _ in headings)} |"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])
