"""`icone paper` as people call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from icone.cli import main
from icone.experiments.store import Store

Out = pytest.CaptureFixture[str]


def test_list_and_show(told: Store, tmp_path: Path, capsys: Out) -> None:
    place = ["--store", str(told.folder)]
    assert main(["paper", "list", "--smoke", *place]) == 0
    assert "batch-size-3d" in capsys.readouterr().out
    assert main(["paper", "show", "knn-3d", "--out", str(tmp_path), *place]) == 0
    assert "diff." in capsys.readouterr().out
    assert (tmp_path / "knn-3d" / "knn-3d.csv").read_text().startswith("row,batch_size,k,paper,ours,difference")
    assert main(["paper", "show", "knn-3d", "--seeds", "9", "--out", str(tmp_path), "--smoke", *place]) == 0
    assert "*" in capsys.readouterr().out  # two seeds of nine


def test_run_redoes_nothing(told: Store, capsys: Out) -> None:
    assert main(["paper", "run", "batch-size-2d", "views", "--smoke", "--store", str(told.folder)]) == 0
    assert "0 runs executed; in all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run"], "name at least one experiment"),
        (["run", "batchsize"], "did you mean"),
        (["run", "natural-images"], "needs --datasets FOLDER"),
        (["run", "views", "--workers", "0"], "--workers must be at least 1"),
        (["run", "views", "--seeds", "0"], "--seeds must be at least 1"),
        (["show", "views"], "there is no store"),
    ],
)
def test_errors_are_sentences(words: list[str], sentence: str, tmp_path: Path, capsys: Out) -> None:
    assert main(["paper", *words, "--store", str(tmp_path / "store")]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_set_that_cannot_be_used_is_named_before_the_first_run(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "breastmnist.npz").write_bytes(b"not what it says")
    words = ["paper", "run", "views", "--datasets", "breastmnist@28", "--data-root", str(tmp_path)]
    assert main([*words, "--store", str(tmp_path / "store")]) == 2
    assert "not the official file" in " ".join(capsys.readouterr().err.split())
    assert not list((tmp_path / "store" / "outcomes").iterdir())
