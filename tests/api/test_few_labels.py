"""Networks fine-tuned with shares of the labels: those of `icone.finetune`, kept after an interruption, and shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import icone
from icone.api.few_labels import finetuned_table
from icone.cli import main
from icone.errors import InputError, InterruptedRun
from icone.finetuning import fit
from icone.report.content import run_content
from icone.run import FINISHED_SHARES, Run

LABELS = {f"{row:06d}": "abc"[int(np.random.default_rng(row).integers(3))] for row in range(60)}
"""Of chance, so that scores differ from one another."""
QUICK: dict[str, Any] = {"device": "cpu", "geometry_instances": 0, "label_fractions": (0.2,), "finetune_epochs": 2}


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    out = tmp_path / "points"
    return icone.pretrain("synthetic:gaussians@x60", features=8, epochs=2, probe_every=0, out=out, console=quiet())


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Filled with a word for every training; the one of number 3 is interrupted."""
    done: list[str] = []

    def counted(*args: Any, **settings: Any) -> Any:
        done.append("begun")
        if len(done) == 3:
            raise InterruptedRun("interrupted after 0 epochs")
        return fit.fit(*args, **settings)

    monkeypatch.setattr("icone.api.tuning.fit", counted)
    return done


def test_every_draw_is_a_fine_tuning(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame(LABELS.items(), columns=["id", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    words = ["evaluate", str(run.folder), "--device", "cpu", "--geometry-instances", "0", "--label-fractions", "0.2"]
    words += ["--labels", str(tmp_path / "labels.csv")]
    assert main([*words, "--finetune-draws", "2", "--finetune-epochs", "2", "--from-scratch"]) == 0
    printed = capsys.readouterr().out
    assert "6/6 from scratch with 48 labels, draw 1: balanced accuracy" in printed
    assert "with a share of the 48 labels, 2 draws" in printed
    assert run.result is not None
    table = finetuned_table(run.result)
    assert table is not None
    scores = ["fine-tuned, balanced accuracy (%)", "from scratch, balanced accuracy (%)"]
    assert [column.header for column in table.columns] == ["labels", *scores]
    assert list(table.columns[0].cells) == ["0.2 (10)", "1 (48)"]
    found = run.result["label_efficiency"]["fine_tuning"]
    assert (found["draws"], found["epochs"], found["metric"]) == (2, 2, "linear_probe")
    for share, draw in ((0.2, 0), (0.2, 1), (1.0, 0)):
        out = tmp_path / f"{share}-{draw}"
        alone = icone.finetune(
            run, labels=LABELS, fraction=share, seed=draw, epochs=2, out=out, device="cpu", console=quiet()
        ).result
        for network, points in found["points"].items():
            point = next(point for point in points if point["fraction"] == share)
            assert point["scores"][draw] == alone[network]["balanced_accuracy"]
            assert point["labels"] == alone["data"]["train"]
    assert len({score for points in found["points"].values() for point in points for score in point["scores"]}) >= 3
    few, every = found["points"]["fine_tuned"]
    assert few["interval"] is None  # two draws tell none
    assert few["mean"] == pytest.approx(np.mean(few["scores"]))
    assert every["interval"] is None
    assert not (run.folder / FINISHED_SHARES).exists()
    shown = run_content(run, name="run", projections=("pca",), thumbnails=False)["label_efficiency"]
    name = "Fine-tuning, balanced accuracy (%)"
    curves = {curve["encoder"]: curve["points"] for curve in shown["curves"] if curve["probe"] == name}
    assert curves.keys() == {"fine-tuned", "from scratch", "linear probe"}
    assert curves["fine-tuned"] == [few, every]
    assert "2 draws of labels (linear probe: 10)" in shown["notes"][name]


def test_an_interruption_costs_no_finished_network(
    run: Run, fits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(run.folder), "--device", "cpu", "--geometry-instances", "0", "--label-fractions", "0.2"]
    words += ["--finetune-epochs", "2", "--finetune-draws", "3"]
    assert main(words) == 130
    said = "2 of 4 networks are fine-tuned, and their scores are kept. Go on with: "
    assert said + " ".join(["icone", *words]) + "\n" in capsys.readouterr().err
    assert (run.folder / FINISHED_SHARES).is_file()
    found = icone.evaluate(run, finetune_draws=3, **QUICK, console=quiet())
    assert len(fits) == 5
    fits.clear()
    fits += ["earlier"] * 3
    anew = icone.evaluate(run, finetune_draws=3, **QUICK, console=quiet())
    assert len(fits) == 3 + 4
    assert anew["label_efficiency"] == found["label_efficiency"]


def test_kept_scores_are_those_of_the_same_labels(run: Run, fits: list[str]) -> None:
    with pytest.raises(InterruptedRun):
        icone.evaluate(run, finetune_draws=3, **QUICK, console=quiet())
    labels = {name: "ab"[label == "a"] for name, label in LABELS.items()}
    icone.evaluate(run, finetune_draws=3, labels=labels, **QUICK, console=quiet())
    assert len(fits) == 3 + 4


def test_settings_that_say_nothing_are_refused(run: Run) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"label_fractions": (), "finetune_epochs": None, "finetune_draws": 2}, "give label_fractions= too"),
        ({"from_scratch": True}, "from_scratch=True is about fine-tuning"),
        ({}, "finetune_epochs= is about fine-tuning"),
        ({"finetune_draws": -1}, "at least 0"),
    ]
    for settings, said in cases:
        with pytest.raises(InputError, match=said):
            icone.evaluate(run, **(QUICK | settings), console=quiet())


def test_a_draw_without_a_label_counts_as_chance(run: Run) -> None:
    """Ten of 48 samples may have none of a rare label: nothing is learned of it."""
    console = Console(file=io.StringIO(), width=200)
    labels = np.array([[row % 10 == 7, False] for row in range(60)], int)  # no sample has the second label
    result = icone.evaluate(run, labels=labels, finetune_draws=4, **QUICK, console=console)
    few, every = result["label_efficiency"]["fine_tuning"]["points"]["fine_tuned"]
    assert len(few["scores"]) == 4
    assert len(every["scores"]) == 1
    assert isinstance(console.file, io.StringIO)
    assert 1 <= console.file.getvalue().count("because no label is there and absent") <= few["scores"].count(0.5)
