"""What `icone.*` returns as dictionaries, shown as the command line shows it: in a terminal and in a notebook."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from icone.errors import printable
from icone.terminal import Terminal, say
from icone.wording import in_user_terms

Part = Table | str | tuple[str, str]
"""A table, a sentence, or a word with what is said about it."""
WORD = 9
"""Letters of the longest such word: what is said begins behind them."""
CELL = "text-align: {}; vertical-align: top"
"""Of every cell: notebooks put text to the right."""


class Readable(dict[str, Any]):
    """A dictionary that is shown as tables and sentences, the same that the command line prints.

    In all else it is a dictionary: `result["verdict"]`, `json.dumps(result)`, and `dict(result)`, which is shown as
    Python shows dictionaries. One in which something was deleted that the tables need is shown in this way too.

    >>> Readable({"samples": 3}, lambda found: [f"{found['samples']} samples"])
    3 samples
    """

    def __init__(self, content: Mapping[str, Any], parts: Callable[[dict[str, Any]], Iterable[Part]]) -> None:
        super().__init__(content)
        self._parts = parts

    def __repr__(self) -> str:
        parts = self._found()
        return super().__repr__() if parts is None else as_text(parts)

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None: the text."""
        parts = self._found()
        return None if parts is None else as_html(parts)

    def _found(self) -> list[Part] | None:
        try:
            return list(self._parts(self))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # changed by its owner
            return None


def show(console: Console, parts: Iterable[Part]) -> None:
    """Print tables, and sentences that only the terminal itself breaks into lines."""
    for part in parts:
        if isinstance(part, Table):
            console.print(part)
        else:
            say(console, part if isinstance(part, str) else f"{part[0]:<{WORD}} {part[1]}")


def as_text(parts: Iterable[Part]) -> str:
    """The same as text, as wide as the terminal, or 80 columns where there is none."""
    file = io.StringIO()
    show(Terminal(file=file, force_terminal=False, color_system=None), parts)
    return file.getvalue().rstrip("\n")


def as_html(parts: Iterable[Part]) -> str:
    """The same as HTML; all text in it is escaped, and words that follow each other are the rows of a table.

    >>> as_html(["<b>", "two"])
    '<p>&lt;b&gt;</p><p>two</p>'
    """
    shown = []
    for is_word, some in groupby(parts, lambda part: isinstance(part, tuple)):
        if is_word:
            shown.append(html_table(part for part in some if isinstance(part, tuple)))
        else:
            shown += [_of_table(part) if isinstance(part, Table) else f"<p>{_safe(str(part))}</p>" for part in some]
    return "".join(shown)


def html_table(rows: Iterable[Sequence[str]], headings: Sequence[str] = (), right: Sequence[bool] = ()) -> str:
    """A table as HTML, with the first cell of a row as its heading; `right` says which columns stand to the right."""

    def row(tags: Iterable[str], texts: Sequence[str]) -> str:
        cells = []
        for column, (tag, text) in enumerate(zip(tags, texts, strict=True)):
            style = CELL.format("right" if column < len(right) and right[column] else "left")
            whole = "; white-space: nowrap" if tag == "th" else ""
            cells.append(f'<{tag} style="{style}{whole}">{_safe(text)}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{row(['th'] * len(headings), headings)}</thead>" if headings else ""
    return f"<table>{head}{''.join(row(['th', *['td'] * (len(texts) - 1)], texts) for texts in rows)}</table>"


def _of_table(table: Table) -> str:
    title = f"<p>{_safe(str(table.title))}</p>" if table.title else ""
    rows = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    right = [column.justify == "right" for column in table.columns]
    return title + html_table(rows, [str(column.header) for column in table.columns], right)


def _safe(text: str) -> str:
    return escape(printable(in_user_terms(text)))
