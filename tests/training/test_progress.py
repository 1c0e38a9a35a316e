"""What a person sees of a count of samples."""

from __future__ import annotations

import io
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import icone
from icone.terminal import Terminal
from icone.training.bar_line import BarLine
from icone.training.loop import LONG_SECONDS
from icone.training.progress import PlainDisplay, ProgressBar, RichDisplay, choose_display


def test_a_bar_counts_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 7.0)
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
        "looking: 3/4, 5 s left\npreparing: 3/4, 5 s left\n"  # at most one in 10 s, of a clock that ticks by 7
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_comes_before_the_first_step_is_seen(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar on a terminal; in a log a line each, where a clock says that a batch took 11 seconds."""
    clock = itertools.count(0.0, 11.0)
    monkeypatch.setattr("icone.training.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=is_terminal, width=100, color_system=None)
    icone.pretrain(
        "synthetic:cells@32x40", encoder="test_resnet", size=32, epochs=1, out=tmp_path / "run", cache="off",
        console=console,
    )  # fmt: skip
    before = stream.getvalue().partition("command ")[0]
    for phase in ("measuring the untrained encoder", "embedding what the anchors start from"):
        assert phase in before
    assert ("building the encoder" in before) == is_terminal


def test_the_time_left_leaves_the_first_steps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("icone.training.progress.time.monotonic", lambda: now)
    stream = io.StringIO()
    display = PlainDisplay(Terminal(file=stream, width=200))
    display.start(0, 55, 10)
    now = 50.0  # the first step compiles
    display.refresh(1, 0, {"loss": 1.0}, 1.0)
    now = 59.0
    display.refresh(10, 0, {"loss": 1.0}, 1.0)
    display.end_epoch({"epoch": 0, "loss": 1.0, "instances_per_second": 1.0})
    assert stream.getvalue().splitlines()[-1].endswith("45 s left")


TERMS = {"loss": 4.17, "view_consistency": 0.5, "anchor_alignment": 0.3, "diversity": 0.001, "anchor_cosine": -0.015}
ROW = {
    "waiting": 0.12,
    "geometry": {"rankme": 41.0, "rank_limit": 149.0},
    "probe": {"live_linear": 0.7, "untrained_live_linear": 0.6},
}


def last_frame(width: int) -> list[str]:
    """The lines that stay on a terminal after some steps of a long run with many terms."""
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    display = RichDisplay(console)
    clock = itertools.count(0.0, 60.0)
    display.progress.get_time = lambda: next(clock)
    display.progress.live.auto_refresh = False  # the clock belongs to this thread
    display.start(10, 123_456, 1000)
    for done in (60_000, 60_010, 60_020):
        display.refresh(done, 499, TERMS, 123.4)
    display.end_epoch(ROW)
    display.close()
    lines = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "\n", stream.getvalue()).splitlines()
    return lines[max(i for i, line in enumerate(lines) if "loss 4.170" in line) :]


def test_the_first_line_holds_epoch_bar_loss_time_left_and_speed_in_80_columns() -> None:
    first, *details = [line for line in last_frame(80) if line]
    assert re.fullmatch(r"epoch 500/1000  ━{7}╸ *  loss 4\.170  \d+ h \d\d min left  123\.4 samples/s", first)
    assert all(len(line) <= 80 for line in (first, *details))
    said = "  ".join(details)
    for text in ("step 60,020/123,456", "view_consistency 0.500", "anchor_cosine -0.015", "waits for data 12%"):
        assert text in said
    assert "RankMe █ 41.0/149  linear probe 70.0 % (untrained 60.0)" in said


@pytest.mark.parametrize("width", [40, 24, 12])
def test_in_a_narrow_terminal_texts_go_whole_and_the_loss_stays(width: int) -> None:
    first, *details = [line for line in last_frame(width) if line]
    assert all(len(line) <= width for line in (first, *details))
    assert first.endswith("loss 4.170") or (width == 40 and first.endswith(" min left"))
    assert "loss 4.170" in first


@pytest.mark.parametrize("long", [60.0, 0.0])
def test_what_a_step_takes_is_told_where_the_rest_takes_long(
    long: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a second said that its last steps take a second; with any rest called long it says so once."""
    monkeypatch.setattr("icone.training.loop.TIMED_SECONDS", 0.0)
    monkeypatch.setattr("icone.training.loop.REFRESH_SECONDS", 0.0)
    if long != LONG_SECONDS:
        monkeypatch.setattr("icone.training.loop.LONG_SECONDS", long)
    stream = io.StringIO()
    console = Terminal(file=stream, width=200)
    icone.pretrain(
        "synthetic:gaussians@x40", features=4, epochs=2, probe_every=0, out=tmp_path / "run", console=console
    )
    assert stream.getvalue().count("note: a step takes ") == (long == 0)


def test_a_long_name_leaves_room_for_the_count() -> None:
    stream = io.StringIO()
    console = Terminal(file=stream, width=40, color_system=None)
    console.print(BarLine("digests of a folder with a very long name indeed", ["1,234/90,000", "3 min left"], 1, 9))
    assert re.fullmatch(r"digests of .*… 1,234/90,000\n", stream.getvalue())
    assert len(stream.getvalue()) == 41


def test_a_notebook_has_the_lines_of_a_terminal_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for IPython: what is shown first is replaced, and nothing else is printed."""
    shown: list[str] = []

    class Handle:
        def update(self, content: dict[str, str], raw: bool) -> None:
            shown[-1] = content["text/plain"]

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(content["text/plain"])
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)  # so says that of a notebook
    monkeypatch.setattr("sys.stdout", stream)
    with choose_display(Terminal()) as lines:
        lines.start(0, 40, 4)
        lines.refresh(10, 0, TERMS, 12.0)
        lines.end_epoch(ROW)
        lines.refresh(20, 1, TERMS, 12.0)
    assert len(shown) == 1
    first, second, *_ = shown[0].splitlines()
    assert first.startswith("epoch 2/4")
    assert "loss 4.170" in first
    assert "12.0 samples/s" in first
    assert second.startswith("step 20/40  view_consistency 0.500")
    assert not stream.getvalue()
    assert isinstance(choose_display(Terminal(file=io.StringIO())), PlainDisplay)  # a file in a notebook is a file
