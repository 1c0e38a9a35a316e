"""SIGTERM and Ctrl-C at any moment of a command end with a sentence: what is kept, and how to go on."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import icone
from icone.cli import main
from icone.finetuning import fit
from icone.process import sigterm_interrupts
from icone.run import Run

STOPS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    settings: dict[str, Any] = {"features": 8, "epochs": 1, "probe_every": 0, "console": Console(file=io.StringIO())}
    return icone.pretrain("synthetic:gaussians@x60", out=tmp_path / "points", **settings)


@pytest.fixture
def stopped_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sends this process a signal when a function is called for the `time`-th time."""

    def arrange(name: str, which: signal.Signals, time: int = 1) -> None:
        place, _, attribute = name.rpartition(".")
        owner = fit._Loop if place == "loop" else __import__(place, fromlist=[attribute])
        function, calls = getattr(owner, attribute), 0

        def watched(*args: Any, **settings: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == time:
                os.kill(os.getpid(), which)
            return function(*args, **settings)

        monkeypatch.setattr(owner, attribute, watched)

    return arrange


@pytest.mark.parametrize("which", STOPS)
@pytest.mark.parametrize("where", ["icone.api.tuning.run_probes", "icone.api.tuning.Classifier", "loop._step"])
def test_fine_tuning_before_its_first_epoch(
    where: str, which: signal.Signals, run: Run, stopped_in: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", str(run.folder), "--device", "cpu", "--epochs", "2", "--no-scratch"]
    stopped_in(where, which)
    assert main(words) == 130
    out = run.folder.with_name("points-finetuned")
    said = capsys.readouterr().err
    assert "interrupted; no epoch is finished" in said
    assert f"Go on with: icone {' '.join(words)} --resume\n" in said
    assert not (out / "classifier.safetensors").exists()
    assert main([*words, "--resume"]) == 0
    assert (out / "classifier.safetensors").is_file()


@pytest.mark.parametrize("which", STOPS)
def test_fine_tuning_in_the_second_network_and_before_anything(
    which: signal.Signals, run: Run, stopped_in: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", str(run.folder), "--device", "cpu", "--epochs", "1"]
    stopped_in("icone.api.finetune.read_evaluation_data", which)
    assert main(words) == 130
    assert f"interrupted. Begin again with: icone {' '.join(words)}\n" in capsys.readouterr().err
    stopped_in("icone.api.tuning.untrained_encoder", which)
    assert main(words) == 130
    assert "points-finetuned keeps all epochs that are finished. Go on with: icone" in capsys.readouterr().err


def test_a_wish_in_the_last_epoch_counts(
    run: Run, stopped_in: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was forgotten: the next network began."""
    stopped_in("loop._validation", signal.SIGTERM, time=2)
    assert main(["finetune", str(run.folder), "--device", "cpu", "--epochs", "2"]) == 130
    assert "interrupted after 2 epochs; the state is saved. Go on with: icone" in capsys.readouterr().err
    assert not (run.folder.with_name("points-finetuned") / "classifier.safetensors").exists()


@pytest.mark.parametrize("where", ["icone.api.tuning.extract_with_progress", "loop._step"])
def test_shares_of_labels(
    where: str, run: Run, stopped_in: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(run.folder), "--device", "cpu", "--geometry-instances", "0", "--label-fractions", "0.5"]
    words += ["--finetune-epochs", "1", "--finetune-draws", "2"]
    stopped_in(where, signal.SIGTERM)
    assert main(words) == 130
    said = "interrupted: none of 3 networks is fine-tuned yet. Go on with: "
    assert said + " ".join(["icone", *words]) + "\n" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]])
def test_pretraining_before_its_first_step(
    seeds: list[str], tmp_path: Path, stopped_in: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", "synthetic:gaussians@x9", "--epochs", "1", "--out", str(tmp_path / "run"), *seeds]
    stopped_in("icone.api.pretrain.build_parts", signal.SIGTERM)
    assert main(words) == 130
    assert f"interrupted. Begin again with: icone {' '.join(words)}\n" in capsys.readouterr().err
    stopped_in("icone.api.pretrain.fit", signal.SIGTERM)
    assert main(words) == 130
    said = capsys.readouterr().err
    assert f"the last saved state is in {tmp_path / 'run'}" in said
    assert said.endswith(f"Go on with: icone {' '.join(words)} --resume\n")
    assert main([*words, "--resume"]) == 0


def test_handlers_of_sigterm_come_back_and_ignored_ones_stay() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with sigterm_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    entered = []

    def elsewhere() -> None:
        with sigterm_interrupts():
            entered.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert entered == [True]
