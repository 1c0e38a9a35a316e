"""The note on an epoch that a handful of validation samples has chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import icone
from icone.cli import main
from icone.data.targets import Task
from icone.finetuning.kept_epoch import lucky_epoch
from icone.finetuning.label_code import LabelCode
from icone.terminal import Terminal

MANY, FEW = ["a"] * 30 + ["b"] * 20, ["a"] * 30 + ["b"] * 4


def rows(*accuracies: float) -> list[dict[str, Any]]:
    return [{"epoch": i, "val_loss": 1.0, "val_balanced_accuracy": value} for i, value in enumerate(accuracies)]


@pytest.mark.parametrize(
    ("task", "labels", "accuracies", "kept", "expected"),
    [
        ("classification", FEW, (0.9, 0.5, 0.6), 0, "chose epoch 1 of 3. It leads the last epoch by 30.0"),
        ("classification", FEW, (0.5, 0.6, 0.9), 2, ""),  # the last one: nothing was thrown away
        ("classification", MANY, (0.9, 0.5, 0.6), 0, ""),
        ("classification", MANY, (0.72, 0.6, 0.6, 0.7), 0, "class b is worth 2.5 points"),  # early, ahead by less
        ("classification", MANY, (0.6, 0.72, 0.6, 0.7), 1, ""),  # not early
        ("classification", MANY, (0.75, 0.6, 0.6, 0.7), 0, ""),  # ahead by two samples
        ("classification", ["a"] * 30 + ["b"], (0.9, 0.6), 0, "the only one of class b is worth 50.0 points"),
        ("regression", ["1.5"] * 20, (0, 0), 0, "few validation samples chose epoch 1 of 2: there are 20"),
        ("regression", ["1.5"] * 80, (0, 0), 0, ""),
        ("classification", [], (0, 0), 0, ""),
    ],
)  # fmt: skip
def test_what_is_said(task: Task, labels: list[str], accuracies: tuple[float, ...], kept: int, expected: str) -> None:
    said = lucky_epoch(task, labels, rows(*accuracies), kept)
    assert expected in said
    assert bool(said) == bool(expected)


@pytest.mark.parametrize(("fraction", "is_said"), [("0.2", True), ("0", False)])
def test_finetune_prints_the_note(
    fraction: str,
    is_said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The validation part gets worse from epoch to epoch, so that the first one is kept."""
    icone.pretrain(
        "synthetic:gaussians@x60", features=8, epochs=1, probe_every=0, out=tmp_path / "run", console=Terminal()
    )
    scores = iter((0.9, 0.6, 0.5))
    monkeypatch.setattr(LabelCode, "quality", lambda *_: {"val_loss": 1.0, "val_balanced_accuracy": next(scores)})
    words = ["--epochs", "3", "--no-scratch", "--val-fraction", fraction, "--device", "cpu"]
    assert main(["finetune", str(tmp_path / "run"), "--out", str(tmp_path / "out"), *words]) == 0
    said = capsys.readouterr().out
    assert ("note: fine-tuned: few validation samples chose epoch 1 of 3" in said) == is_said
    assert ("--val-fraction 0 trains all epochs with all labels" in said) == is_said
