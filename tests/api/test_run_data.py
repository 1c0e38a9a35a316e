"""Data that was moved after training: the verbs find it by `--data`, and notice where it is not the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icone
from icone.cli import main


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, Path]:
    """A run, and the folder that its data, with the labels in it, was moved to."""
    rng, old = np.random.default_rng(0), tmp_path / "old"
    old.mkdir()
    for i in range(8):
        np.save(old / f"{i}.npy", rng.integers(0, 255, (16, 16)).astype(np.uint8))
    (old / "labels.csv").write_text("id,label\n" + "".join(f"{i}.npy,{'ab'[i % 2]}\n" for i in range(8)))
    settings: dict[str, Any] = {
        "encoder": "test_vit",
        "size": 32,
        "epochs": 1,
        "batch_size": 2,
        "probe_every": 0,
        "cache": "off",
    }
    icone.pretrain(old, labels=old / "labels.csv", out=tmp_path / "run", **settings)
    shutil.move(old, tmp_path / "new")
    return tmp_path / "run", tmp_path / "new"


def test_every_verb_names_the_missing_path_and_takes_the_new_one(
    moved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, new = moved
    verbs = [
        ["embed", str(run), "--out", str(tmp_path / "e.csv")],
        ["inspect", str(run), "--duplicates"],
        ["evaluate", str(run), "--geometry-instances", "0"],
        ["report", str(run), "--projections", "pca", "--out", str(tmp_path / "r.html")],
    ]
    for words in verbs:
        assert main(words) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"is no longer at {tmp_path / 'old'}" in said
        assert "--data NEWPATH" in said
        assert main([*words, "--data", str(new)]) == 0, capsys.readouterr().err
        said = capsys.readouterr().out
        assert "another content" not in said
        assert "are not in" not in said
    assert "label" in (tmp_path / "e.csv").read_text().partition("\n")[0]  # the table of labels has moved too


def test_other_data_is_noticed(moved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, new = moved
    words = ["embed", str(run), "--out", str(tmp_path / "e.csv"), "--data"]
    assert main([*words, str(tmp_path)]) == 2  # one folder too high
    assert "holds none of the 8 samples" in " ".join(capsys.readouterr().err.split())
    (new / "3.npy").unlink()
    np.save(new / "5.npy", 255 - np.load(new / "5.npy"))
    assert main([*words, str(new)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 sample of the run is not in" in said
    assert "such as 3.npy" in said
    assert "1 sample has another content" in said
    assert "such as 5.npy" in said


def test_a_table_that_is_gone_is_asked_for_by_its_flag(
    moved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, new = moved
    words = ["evaluate", str(run), "--geometry-instances", "0", "--data"]
    shutil.move(new / "labels.csv", tmp_path / "table.csv")
    assert main([*words, str(new)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"is no longer at {tmp_path / 'old' / 'labels.csv'}: say where" in said
    assert "--labels NEWTABLE.csv" in said
    assert main([*words, str(tmp_path)]) == 2  # one folder too high, which no table helps
    said = " ".join(capsys.readouterr().err.split())
    assert "holds none of the 8 samples" in said
    assert "--labels" not in said
    assert main([*words, str(new), "--labels", str(tmp_path / "tabel.csv")]) == 2
    assert "did you mean" in " ".join(capsys.readouterr().err.split())
    assert main([*words, str(new), "--labels", str(tmp_path / "table.csv")]) == 0, capsys.readouterr().err


def test_the_part_of_official_splits_that_is_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`icone predict` and `icone embed` of a file with splits gave the rows of train alone, without a word."""
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    labels = np.arange(40) % 2
    source, run, out = tmp_path / "points.npz", tmp_path / "run", tmp_path / "tuned"
    np.savez(
        source, train_images=points[:30], test_images=points[30:], train_labels=labels[:30], test_labels=labels[30:]
    )
    icone.pretrain(source, features=4, epochs=1, probe_every=0, cache="off", out=run)
    icone.finetune(run, epochs=1, scratch=False, device="cpu", out=out)
    for words in (["embed", str(run)], ["predict", str(out)]):
        capsys.readouterr()
        assert main([*words, str(source), "--out", str(tmp_path / "table.csv"), "--device", "cpu"]) == 0
        assert "points.npz has official splits: train is read, test not" in capsys.readouterr().out
