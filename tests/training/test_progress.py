"""What a person sees of a count of samples."""

from __future__ import annotations

import io
import itertools

import pytest

from icone.terminal import Terminal
from icone.training.progress import ProgressBar


def test_a_bar_counts_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 20.0)
    monkeypatch.setattr("icone.training.progress.time.monotonic", lambda: next(clock))
    texts = {}
    for is_terminal in (True, False):
        stream = io.StringIO()
        with ProgressBar(Terminal(file=stream, force_terminal=is_terminal, width=100)) as bar:
            for what in ("looking", "preparing"):
                for done in range(1, 5):
                    bar(what, done, 4)
        texts[is_terminal] = stream.getvalue()
    assert "━" in texts[True]
    assert texts[False] == (
        "looking: 3/4, 13 s left\npreparing: 3/4, 13 s left\n"  # at most one in 30 s, of a clock that ticks by 20
    )
