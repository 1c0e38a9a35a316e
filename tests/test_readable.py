"""What `icone.*` returns is a dictionary that shows itself as the command line shows it."""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

import icone
from icone.cli import main
from icone.readable import Readable, as_html, as_text
from icone.run import Run


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "points" / "seed-0"
    return icone.pretrain("synthetic:gaussians@x60", features=8, epochs=1, probe_every=0, out=out, console=quiet())


def samples(found: dict[str, Any]) -> list[str]:
    return [f"{found['samples']} samples"]


def test_it_is_a_dictionary_in_all_else() -> None:
    found = Readable({"samples": 3, "notes": ["a"]}, samples)
    assert repr(found) == str(found) == "3 samples"
    assert found == {"samples": 3, "notes": ["a"]}
    assert json.dumps(found) == '{"samples": 3, "notes": ["a"]}'
    for copied in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (copied, repr(copied)) == (found, "3 samples")
    assert repr(dict(found)) == "{'samples': 3, 'notes': ['a']}"


def test_one_whose_content_was_deleted_is_shown_as_python_does() -> None:
    found = Readable({"samples": 3, "notes": []}, samples)
    del found["samples"]
    assert repr(found) == "{'notes': []}"
    assert found._repr_html_() is None


def test_names_of_files_are_neither_html_nor_markup_nor_obeyed() -> None:
    table = Table("sample", title="<i>")
    table.add_row("<script>[/b]\x1b[2J")
    html, text = as_html([table, "<b>"]), as_text([table, "[red]"])
    assert "<script" not in html
    assert "<p>&lt;b&gt;</p>" in html
    assert "&lt;i&gt;" in html
    assert "\x1b" not in html + text
    assert "<script>[/b]\\x1b[2J" in text
    assert "[red]" in text


def words(text: str) -> str:
    """Without lines of tables and line breaks, which depend on the width."""
    return " ".join("".join(c if c not in "│┃━─┏┓┗┛┡┩┳┻╇┴└┘├┤┬╈" else " " for c in text).split())


Call = Callable[[Run, Path], Readable]
CALLS: dict[str, tuple[Call, list[str], str]] = {
    "evaluate": (lambda run, _: icone.evaluate(run, console=quiet()), ["evaluate", "RUN"], "kNN-5"),
    "evaluate_seeds": (
        lambda run, _: icone.evaluate_seeds(run.folder.parent, console=quiet()),
        ["evaluate", "SEEDS"],
        "seed-0: ",
    ),
    "find_duplicates": (
        lambda run, _: icone.find_duplicates(run, console=quiet()),
        ["inspect", "RUN", "--duplicates"],
        "among 60 samples",
    ),
    "finetune": (
        lambda run, out: icone.finetune(run, epochs=1, out=out, device="cpu", console=quiet()).result,
        ["finetune", "RUN", "--epochs", "1", "--device", "cpu", "--out", "OUT", "--resume"],
        "from scratch",
    ),
    "inspect": (
        lambda *_: icone.inspect("synthetic:gaussians@x60", features=8, console=quiet()),
        ["inspect", "synthetic:gaussians@x60", "--features", "8"],
        "samples 60 points",
    ),
}


@pytest.mark.parametrize("verb", CALLS)
def test_it_is_shown_as_the_command_line_prints_it(
    verb: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    call, command, said = CALLS[verb]
    found = call(run, tmp_path / "out")
    places = {"RUN": str(run.folder), "SEEDS": str(run.folder.parent), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in command]) == 0
    printed = words(capsys.readouterr().out)
    assert said in words(repr(found))
    lines = [words(line) for line in repr(found).splitlines() if not re.search(r"=|icone\.plan", line)]  # flags there
    assert [line for line in lines if line not in printed] == []
    assert said.split()[-1] in (found._repr_html_() or "")


def test_a_look_or_a_plan_is_told_once_by_the_value_that_shows_itself(capsys: pytest.CaptureFixture[str]) -> None:
    found = icone.inspect("synthetic:gaussians@x60", features=8)
    plan = icone.plan("synthetic:gaussians@x60", features=8, epochs=2, device="cpu")
    assert capsys.readouterr().out == ""
    assert "60 points" in repr(found)
    assert "icone.plan, with the same settings, says" in repr(found)
    assert "60 points" in (found._repr_html_() or "")
    assert "settings: batch_size=1" in repr(plan)
    assert "micro-batch" in (plan._repr_html_() or "")
    assert plan["fits"]


def test_the_command_line_prints_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "synthetic:gaussians@x60", "--features", "8", "--epochs", "2", "--device", "cpu"]) == 0
    printed = words(capsys.readouterr().out)
    assert "micro-batch" in printed
    assert "settings: --batch-size 1" in printed


def test_a_run_keeps_it(run: Run) -> None:
    found = icone.evaluate(run, console=quiet())
    assert repr(Run(run.folder).result) == repr(found)
    assert json.loads(run.result_file.read_text())["trained"] == found["trained"]
