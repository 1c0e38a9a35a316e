"""Whoever gives a folder that is no run is told which runs there are, newest first, and the command to use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from icone.cli import main
from icone.errors import InputError
from icone.find_runs import FINETUNED, NoRun, no_run, runs_in
from icone.run import Run

Out = pytest.CaptureFixture[str]
BOTH = "Runs that are there, newest first: runs/b, runs/a"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes folders that look like runs, each newer than the one before, in a current folder of their own."""
    monkeypatch.chdir(tmp_path)
    count = 0

    def make(name: str, *, finetuned_from: str | None = None) -> Path:
        nonlocal count
        count += 1
        folder = Path(name)
        folder.mkdir(parents=True)
        content = {} if finetuned_from is None else {"kind": FINETUNED, "run": finetuned_from}
        (folder / "config.json").write_text(json.dumps(content))
        if finetuned_from is None:
            (folder / "instances.json").write_text("{}")
        os.utime(folder / "config.json", (count, count))
        return folder

    return make


def test_runs_are_found_newest_first_and_nothing_else(made: Callable[..., Path]) -> None:
    made("runs/b")
    made("runs/a/seed-0")
    made("runs/a-finetuned", finetuned_from="runs/a")
    export = made("runs/b/encoder-timm")
    (export / "instances.json").unlink()
    made("runs/c")
    Path("runs/data/deep/deeper").mkdir(parents=True)
    assert runs_in(Path("runs")) == [Path("runs/c"), Path("runs/a/seed-0"), Path("runs/b")]
    assert runs_in(Path("missing")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report", f"a report needs at least one run. {BOTH}. For example: icone report runs/b"),
        ("figures", f"{BOTH}. For example: icone figures runs/b"),
        ("evaluate", f"icone evaluate needs a RUN folder. {BOTH}. For example: icone evaluate runs/b"),
        ("predict", "icone predict needs a FOLDER of icone finetune, and there is none in runs/"),
        ("report runs", f"runs is not a run folder (it has no config.json). {BOTH}"),
        ("evaluate runs --device cpu", "For example: icone evaluate runs/b --device cpu"),
        ("embed runs/ new", "For example: icone embed runs/b new"),
        ("evaluate runs/aa", "there is no run runs/aa; did you mean runs/a? For example: icone evaluate runs/a"),
        ("evaluate a", "a is not a run folder (it has no config.json); did you mean runs/a? For example"),
        ("evaluate other/x", f"there is no run other/x. {BOTH}"),
        ("predict runs/a", "runs/a is a run that was not fine-tuned: train it with labels first, icone finetune"),
        ("predict runs", "runs is not a folder of icone finetune"),
    ],
)  # fmt: skip
def test_the_command_line_names_them(made: Callable[..., Path], words: str, said: str, capsys: Out) -> None:
    made("runs/a")
    made("runs/b")
    Path("a").mkdir()  # the data of the run
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_there_is_no_example_where_several_names_are_wrong(made: Callable[..., Path], capsys: Out) -> None:
    made("runs/b")
    assert main(["report", "runs/x-1", "runs/x-2"]) == 2
    said = capsys.readouterr().err
    assert "there is no run runs/x-1" in said
    assert "For example" not in said


def test_a_run_and_what_was_fine_tuned_from_it_are_told_apart(made: Callable[..., Path], capsys: Out) -> None:
    made("runs/a")
    made("runs/a-finetuned", finetuned_from="runs/a")
    made("runs/other-finetuned", finetuned_from="runs/other")
    assert main(["predict", "runs/a"]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "runs/a is the run before fine-tuning; did you mean runs/a-finetuned?" in said
    assert "For example: icone predict runs/a-finetuned" in said
    assert "other" not in said
    with pytest.raises(InputError, match="give the run it came from, runs/a,"):
        Run.open("runs/a-finetuned")


def test_at_most_ten_are_named(made: Callable[..., Path]) -> None:
    for number in range(12):
        made(f"runs/{number}")
    error = no_run(Path("runs"), "problem")
    assert isinstance(error, NoRun)
    assert error.instead == Path("runs/11")
    assert str(error).endswith("newest first: " + ", ".join(f"runs/{n}" for n in range(11, 1, -1)) + " and 2 more")
