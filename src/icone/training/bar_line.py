"""Lines of a live display that fit any terminal: one with a bar, and details below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.style import Style

GAP = "  "
LONGEST_BAR = 40
SHORTEST_BAR = 4


@dataclass(frozen=True)
class BarLine:
    """One line: a name, a bar, and texts, the most important first.

    The bar takes the room that is left. In a narrow terminal it goes first, then texts from the right, and at last the
    end of the name: the first text is always whole.
    """

    name: str
    texts: Sequence[str]
    done: float
    total: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        texts = [cut(text, width) for text in self.texts if text]
        name = cut(self.name, width - cell_len("".join(f" {text}" for text in texts[:1])))
        gap = GAP if cell_len(GAP.join([name, *texts])) <= width else " "
        while texts and cell_len(gap.join([name, *texts])) > width:
            texts.pop()
        room = min(width - cell_len(gap.join([name, "", *texts])), LONGEST_BAR)
        yield Segment(name)
        if room >= SHORTEST_BAR:
            yield Segment(gap)
            bar = ProgressBar(self.total, self.done, width=room)
            yield from console.render(bar, options.update(width=room))
        yield Segment("".join(gap + text for text in texts))
        yield Segment.line()


@dataclass(frozen=True)
class Details:
    """Texts one after another, on as many lines as they need; none is broken, and one longer than a line is cut."""

    texts: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width):
            yield Segment(line, Style(dim=True))
            yield Segment.line()

    def lines(self, width: int) -> list[str]:
        """
        >>> Details(["step 3/200", "diversity 0.001", "RankMe 41.3/149"]).lines(28)
        ['step 3/200  diversity 0.001', 'RankMe 41.3/149']
        """
        lines: list[str] = []
        for text in (cut(text, width) for text in self.texts if text):
            longer = GAP.join([*lines[-1:], text])
            if lines and cell_len(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(text)
        return lines


def cut(text: str, width: int) -> str:
    """A text that fits, its end replaced by an ellipsis where it is too long.

    >>> cut("a long name", 8), cut("short", 8)
    ('a long …', 'short')
    """
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…" if width > 0 else ""
