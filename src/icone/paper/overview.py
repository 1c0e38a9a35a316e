"""`icone paper report`: one offline page with every table and figure, the paper beside ours; or the same as Markdown.

The page is plain HTML without scripts, and forbids itself to load anything. All text is escaped.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from icone.errors import InputError
from icone.files import replacing
from icone.paper.experiments import find_experiments
from icone.paper.experiments.base import Experiment, Scene
from icone.paper.frames import collect
from icone.paper.options import Options
from icone.paper.results import read_results
from icone.paper.show import remembered_options, setting_line
from icone.paper.store import Store
from icone.paper.tables import PaperTable
from icone.report.figures import STYLE
from icone.terminal import counted

NAMED = 6
"""Missing cells of a table that are named; the others are counted."""
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>IConE: the paper and ours</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-variant-numeric: tabular-nums }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left }
.scroll { overflow-x: auto } .paper { opacity: .7 } .missing { color: #b3541e }
img { max-width: 100%; background: #fff }
.bold { font-weight: 700 } .underline { text-decoration: underline } nav a { margin-right: .8rem }
</style></head><body>
"""


@dataclass(frozen=True)
class Section:
    """What is said about one experiment."""

    experiment: Experiment
    sentence: str
    """Whether it is the paper's setting, or why there is nothing to show."""
    tables: list[PaperTable] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    counts: str = ""


def sections(names: Sequence[str], options: Options, store: Store) -> Iterator[Section]:
    """The named experiments as they stand in a store."""
    table = store.results() if store.outcomes.is_dir() else read_results(store.results_file)
    for experiment in find_experiments(names):
        chosen = remembered_options(experiment, options, store)
        try:
            results = collect(experiment.cells(chosen), table)
        except InputError as error:
            yield Section(experiment, f"not run: {error}")
            continue
        runs = results.runs
        if experiment.runs and (runs.empty or (runs["status"] == "missing").all()):
            yield Section(experiment, f"not run: icone paper run {experiment.name}")
            continue
        shown = experiment.present(Scene(experiment.name, results, store, chosen))
        sentence = setting_line(experiment, chosen) if experiment.runs and experiment.labels else ""
        yield Section(experiment, sentence, shown.tables, shown.figures, _counts(runs))


def _counts(runs: pd.DataFrame) -> str:
    if runs.empty:
        return ""
    found = runs["status"].value_counts()
    return f"{counted(len(runs), 'run')}: " + ", ".join(f"{number} {status}" for status, number in found.items())


def missing_cells(table: PaperTable) -> list[str]:
    """The cells of a table that have no number of ours though they could, in words."""
    if "status" not in table.values:
        return []
    absent = table.values[(table.values["status"] == "missing") & table.values["ours"].isna()]
    return [
        f"{row['row']} at " + ", ".join(f"{key.replace('_', ' ')} {row[key]}" for key in table.keys)
        for row in absent.to_dict("records")
    ]


def write_report(names: Sequence[str], options: Options, store: Store, out: Path) -> Path:
    """Write the page, or where `out` ends in .md the same tables as Markdown."""
    markdown = out.suffix.lower() == ".md"
    found = list(sections(names, options, store))
    text = _markdown(found) if markdown else _page(found, store)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return out


def _page(found: Sequence[Section], store: Store) -> str:
    links = " ".join(f'<a href="#{_text(s.experiment.name)}">{_text(s.experiment.name)}</a>' for s in found)
    body = "".join(map(_section, found))
    intro = f"<h1>The paper and ours</h1><p>Store: {_text(store.folder)}. Ours ± standard deviation over seeds.</p>"
    return f"{HEAD}{intro}<nav>{links}</nav>{body}</body></html>\n"


def _section(section: Section) -> str:
    name = _text(section.experiment.name)
    parts = [f'<section id="{name}"><h2>{name}: {_text(section.experiment.reproduces)}</h2>']
    css = ' class="missing"' if section.sentence.startswith("not run") else ""
    parts += [f"<p{css}>{_text(section.sentence)}</p>"] if section.sentence else []
    parts += [f"<p>{_text(section.counts)}</p>"] if section.counts else []
    parts += [_table(table) for table in section.tables]
    parts += [
        f'<figure><img alt="{_text(title)}" src="data:image/png;base64,{_png(figure)}">'
        f"<figcaption>{_text(title)}</figcaption></figure>"
        for title, figure in section.figures.items()
    ]
    return "".join(parts) + "</section>\n"


def _table(table: PaperTable) -> str:
    headings = "".join(f"<th>{_text(heading)}</th>" for heading in table.headings())
    rows = []
    for title, kind, cells in table.lines():
        marked = "".join(f'<td class="{mark}">{_text(text)}</td>' for text, mark in cells)
        rows.append(f'<tr class="{kind}"><td>{_text(title)}</td><td>{kind}</td>{marked}</tr>')
    caption = f"<h3>{_text(table.title)} ({_text(table.source)})</h3>"
    grid = f'<div class="scroll"><table><tr><th></th><th></th>{headings}</tr>{"".join(rows)}</table></div>'
    notes = "".join(f"<p>{_text(note)}</p>" for note in table.notes)
    return caption + grid + notes + _missing(table)


def _missing(table: PaperTable) -> str:
    return f'<p class="missing">{_text(said)}</p>' if (said := missing_line(table)) else ""


def missing_line(table: PaperTable) -> str:
    """One sentence about the cells that are missing; empty where none is."""
    cells = missing_cells(table)
    more = f" and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
    return f"missing: {'; '.join(cells[:NAMED])}{more}" if cells else ""


def _png(figure: Figure) -> str:
    buffer = io.BytesIO()
    with plt.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=110)
    return base64.b64encode(buffer.getvalue()).decode()


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _markdown(found: Sequence[Section]) -> str:
    parts = ["# The paper and ours\n\nMade by `icone paper report`. Ours ± standard deviation over seeds.\n"]
    for section in found:
        parts.append(f"## {section.experiment.name}: {section.experiment.reproduces}\n")
        parts += [f"{line}\n" for line in (section.sentence, section.counts) if line]
        for table in section.tables:
            headings = table.headings()
            lines = [f"| | | {' | '.join(headings)} |", "| --- " * (len(headings) + 2) + "|"]
            for title, kind, cells in table.lines():
                values = [f"**{text}**" if mark == "bold" and text else text for text, mark in cells]
                lines.append(f"| {title} | {kind} | {' | '.join(values)} |")
            notes = [*table.notes, missing_line(table)]
            parts += [f"### {table.title} ({table.source})\n", "\n".join(lines) + "\n", *(f"{n}\n" for n in notes if n)]
    return "\n".join(parts)
