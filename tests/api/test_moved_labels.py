"""A table of labels that was moved: an interrupted run goes on with it where it gives the samples the same labels."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icone.api.pretrain import pretrain
from icone.cli import main
from icone.errors import InputError, InterruptedRun
from icone.run import Run
from icone.training.checkpoint import load_state
from icone.training.step import TrainStep

SETTINGS: dict[str, Any] = {"encoder": "test_vit", "size": 32, "epochs": 2, "batch_size": 4, "cache": "off"}
WORDS = ["--encoder", "test_vit", "--size", "32", "--epochs", "2", "--batch-size", "4", "--cache", "off"]


def table(values: Callable[[int], str], column: str = "label") -> str:
    return f"id,{column}\n" + "".join(f"{i}.npy,{values(i)}\n" for i in range(12))


def classes(i: int) -> str:
    return "ab"[i % 2]


@pytest.fixture
def interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Writes data with a table of labels in it, and interrupts a training on it; the current folder is that of both."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("bc").mkdir()
    for i in range(12):
        np.save(Path("bc") / f"{i}.npy", rng.integers(0, 255, (32, 32)).astype(np.uint8))

    def make(text: str, **more: Any) -> Run:
        (Path("bc") / "labels.csv").write_text(text)
        step, calls = TrainStep.__call__, 0

        def interrupted(self: Any, batches: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 4:
                os.kill(os.getpid(), signal.SIGINT)
            step(self, batches)

        with monkeypatch.context() as patched:
            patched.setattr(TrainStep, "__call__", interrupted)
            with pytest.raises(InterruptedRun):
                pretrain("bc", labels="bc/labels.csv", out="run", **SETTINGS, **more)
        assert load_state(Run("run")).step == 4
        return Run("run")

    return make


def test_a_run_goes_on_after_its_data_has_moved_with_the_table_inside(
    interrupt: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = interrupt(table(classes))
    shutil.move("bc", "bc2")
    again = ["pretrain", "bc2", *WORDS, "--out", "run", "--resume"]
    assert main(again) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "labels: bc/labels.csv -> None" in said
    assert "--labels bc2/labels.csv" in said  # where it lies now
    shutil.move("bc2/labels.csv", "elsewhere.csv")
    assert main(again) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "is no longer at bc/labels.csv: say where it lies now with --labels NEWTABLE.csv" in said
    assert main([*again, "--labels", "elsewhere.csv"]) == 0, capsys.readouterr().err
    assert "no digest of its labels" not in capsys.readouterr().out
    assert run.finished
    assert run.config.labels == Path("elsewhere.csv")
    assert len(run.history) == 2


def test_a_moved_table_with_other_labels_is_refused(interrupt: Callable[[str], Run]) -> None:
    interrupt(table(classes))
    Path("other.csv").write_text(table(lambda i: "" if i == 3 else classes(i)))
    with pytest.raises(InputError, match=r"bc/labels\.csv, .*1 of 12 samples has .* 3\.npy \(b -> no label\)"):
        pretrain("bc", labels="other.csv", out="run", resume=True, **SETTINGS)
    Path("more.csv").write_text(table(lambda i: f"{classes(i)},p{i}", "label,patient"))
    with pytest.raises(InputError, match=r"the labels of more\.csv are other labels or groups"):
        pretrain("bc", labels="more.csv", out="run", resume=True, **SETTINGS)


def test_labels_that_are_learned_stay_as_they_are(interrupt: Callable[..., Run]) -> None:
    """A table may be corrected while a run without labels goes on, but not while one is taught them."""
    run = interrupt(table(classes), method="cross_entropy")
    before = Path("bc/labels.csv").read_text()
    Path("bc/labels.csv").write_text(table(lambda i: "a" if i == 3 else classes(i)))
    again: dict[str, Any] = {"labels": "bc/labels.csv", "out": "run", "resume": True, **SETTINGS}
    with pytest.raises(InputError, match=r"1 of 12 samples has another label, such as 3\.npy \(b -> a\)"):
        pretrain("bc", method="cross_entropy", **again)
    Path("bc/labels.csv").write_text(before)
    assert pretrain("bc", method="cross_entropy", **again).finished
    assert run.finished


def test_a_table_may_be_corrected_for_the_probes(interrupt: Callable[..., Run]) -> None:
    interrupt(table(classes))
    Path("bc/labels.csv").write_text(table(lambda i: "a" if i == 3 else classes(i)))
    assert pretrain("bc", labels="bc/labels.csv", out="run", resume=True, **SETTINGS).finished


def test_numbers_are_compared_too(interrupt: Callable[[str], Run]) -> None:
    interrupt(table(lambda i: str(i / 7)))
    Path("other.csv").write_text(table(lambda i: str(i / 9)))
    with pytest.raises(InputError, match="other labels or groups"):
        pretrain("bc", labels="other.csv", out="run", resume=True, **SETTINGS)
    shutil.copy("bc/labels.csv", "same.csv")
    assert pretrain("bc", labels="same.csv", out="run", resume=True, **SETTINGS).finished


def test_a_run_without_a_digest_of_its_labels_is_compared_by_classes(
    interrupt: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = interrupt(table(classes))
    record = run.instances
    del record["labels_digest"]
    (run.folder / "instances.json").write_text(json.dumps(record))
    Path("other.csv").write_text(table(lambda i: classes(i + 1)))
    with pytest.raises(InputError, match="12 of 12 samples have other labels"):
        pretrain("bc", labels="other.csv", out="run", resume=True, **SETTINGS)
    shutil.copy("bc/labels.csv", "same.csv")
    assert pretrain("bc", labels="same.csv", out="run", resume=True, **SETTINGS).finished
    assert "compared by their classes alone" in " ".join(capsys.readouterr().out.split())


def test_seeds_that_are_trained_again_take_the_moved_table(
    interrupt: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(table(classes))
    seeds = [*WORDS, "--seeds", "2", "--out", "many"]
    assert main(["pretrain", "bc", *seeds, "--labels", "bc/labels.csv"]) == 0
    shutil.copy("bc/labels.csv", "same.csv")
    assert main(["pretrain", "bc", *seeds, "--labels", "same.csv", "--resume"]) == 0, capsys.readouterr().err
    Path("other.csv").write_text(table(lambda i: classes(i + 1)))
    assert main(["pretrain", "bc", *seeds, "--labels", "other.csv", "--resume"]) == 2
    assert "12 of 12 samples have other labels" in " ".join(capsys.readouterr().err.split())
