"""What reaches the terminal: text as it is, never as markup or control codes, and no error where nobody listens."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from icone.errors import printable
from icone.wording import in_user_terms


def printable_lines(text: str) -> str:
    r"""Text in which characters that a terminal would obey are escapes, line breaks and tabs aside.

    >>> printable_lines("a\x1b[2J.png\ntwo lines")
    'a\\x1b[2J.png\ntwo lines'
    """
    return text if text.isprintable() else re.sub(r"[^\n\t]+", lambda part: printable(part[0]), text)


class Terminal(Console):
    """A rich console for texts with names of files in them: `[/x]` is no markup, an escape sequence is not obeyed.

    Settings are called as the reader types them (`icone.wording`).

    In a notebook it writes plain text, which wraps. rich's HTML does not, and its live displays need ipywidgets.
    """

    def __init__(self, **settings: Any) -> None:
        plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "force_jupyter": False}
        if _is_notebook():  # the output of a cell calls itself a terminal, and cannot move a cursor
            plain["force_terminal"] = False
        super().__init__(**plain | settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Called by rich for every text: printed, in a table or in a title."""
        return super().render_str(printable_lines(in_user_terms(text)), **settings)


def in_notebook(console: Console) -> bool:
    """Whether what a console prints appears below a cell of a Jupyter notebook."""
    return _is_notebook() and console.file is sys.stdout


def _is_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def say(console: Console, text: str) -> None:
    """Print one sentence, which only the terminal itself breaks into lines."""
    console.print(in_user_terms(text), highlight=False, soft_wrap=True, markup=False)


class Output(io.TextIOBase):
    """A standard stream that a run survives: what cannot be written, to a closed pipe or a full disk, is dropped.

    `error` is the first refusal; a reader who had enough (`icone methods | head -1`) is none.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_broken = False
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def _try(self, write: Any) -> None:
        if self._is_broken:
            return
        try:
            write()
        except OSError as error:
            self._is_broken = True
            self.error = None if isinstance(error, BrokenPipeError) else error
            with contextlib.suppress(OSError, ValueError):  # what is still in the buffer goes nowhere, in silence
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextlib.contextmanager
def standard_streams() -> Iterator[Output]:
    """Make both standard streams safe to write to, within the block; gives that of the output."""
    for number in range(3):  # a closed one would be the number of the next file that is opened
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    output, errors = (Output(stream or open(os.devnull, "w")) for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with contextlib.redirect_stdout(cast(TextIO, output)), contextlib.redirect_stderr(cast(TextIO, errors)):
        try:
            yield output
        finally:
            output.flush()
            errors.flush()


def counted(number: int, word: str) -> str:
    """A number with its thing, in the singular or the plural.

    >>> counted(1, "epoch"), counted(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{number:,} {word}{either(number, '', 's')}"


def either(number: int, one: str, many: str) -> str:
    """The form of a word that goes with a number.

    >>> f"1 of 60 samples {either(1, 'lacks', 'lack')} a channel, 2 of 60 {either(2, 'lacks', 'lack')} one"
    '1 of 60 samples lacks a channel, 2 of 60 lack one'
    """
    return one if number == 1 else many
