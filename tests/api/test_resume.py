"""Runs survive: kill -9, Ctrl-C, changed folders, losses that explode. Bit for bit."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from icone.api.pretrain import pretrain
from icone.cli import main
from icone.errors import InputError, InterruptedRun, TrainingError
from icone.run import Run
from icone.tensor_files import read_tensors
from icone.training.checkpoint import load_state
from icone.training.progress import PlainDisplay
from icone.training.step import TrainStep

POINTS: dict[str, Any] = {"source": "synthetic:gaussians", "subset": 50, "epochs": 4, "features": 8, "seed": 3}


def quiet() -> Console:
    return Console(file=io.StringIO())


def outcome(run: Run) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """All weights, moments and random states as bytes, and the history without the clocks."""
    tensors = load_state(run).tensors
    encoder, _ = read_tensors(run.encoder_file)
    named = {**tensors, **{f"encoder/{name}": t for name, t in encoder.items()}}
    clocks = ("seconds", "instances_per_second", "probe_seconds", "waiting")
    history = [{k: v for k, v in row.items() if k not in clocks} for row in run.history]
    return {name: t.numpy().tobytes() for name, t in named.items()}, history


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain(**POINTS, out=tmp_path_factory.mktemp("runs") / "undisturbed", console=quiet())


def test_same_seed_same_bits_and_another_seed_others(undisturbed: Run, tmp_path: Path) -> None:
    torch.manual_seed(12345)  # what the caller did with the global generator must not matter
    torch.rand(7)
    before = torch.get_rng_state()
    again = pretrain(**POINTS, out=tmp_path / "again", console=quiet())
    assert torch.equal(torch.get_rng_state(), before)  # nor is it disturbed
    assert outcome(again) == outcome(undisturbed)
    other = pretrain(**(POINTS | {"seed": 4}), out=tmp_path / "other", console=quiet())
    assert outcome(other)[0] != outcome(undisturbed)[0]


def kill_and_resume(arguments: list[str], folder: Path, kills: int, longest: float, rng: random.Random) -> int:
    """Start the command over and over, killing it at random instants; returns how often it was killed."""
    context = multiprocessing.get_context("forkserver")
    # AdamW's first step imports dynamo, which takes longer than the whole run.
    context.set_forkserver_preload(["icone.api.pretrain", "icone.data.sources.synthetic", "torch._dynamo"])
    killed = 0
    while not Run(folder).exists() or not Run(folder).finished:
        resume = ["--resume"] if Run(folder).exists() else []
        process = context.Process(target=main, args=([*arguments, "--out", str(folder), *resume],))
        process.start()
        process.join(rng.uniform(0, longest) if killed < kills else 300)
        if process.is_alive():
            assert killed < kills, "the run hangs"
            process.kill()
            process.join()
            killed += 1
        else:
            assert Run(folder).finished, "the command gave up"
    return killed


COMMAND = ["pretrain", "synthetic:gaussians", "--subset", "50", "--epochs", "4", "--features", "8", "--seed", "3"]


def test_kill_9_at_random_instants_changes_nothing(tmp_path: Path) -> None:
    command = [*COMMAND, "--checkpoint-seconds", "0.02"]
    command[command.index("--epochs") + 1] = "20"  # long enough to be hit many times
    kill_and_resume(command, tmp_path / "undisturbed", kills=0, longest=0, rng=random.Random(0))
    killed = kill_and_resume(command, tmp_path / "killed", kills=2, longest=0.6, rng=random.Random(1))
    assert killed >= 1  # fewer would mean that the run was over before it was hit
    assert outcome(Run(tmp_path / "killed")) == outcome(Run(tmp_path / "undisturbed"))


@pytest.mark.slow
def test_kill_9_at_a_hundred_random_instants(tmp_path: Path) -> None:
    command = [
        "pretrain", "synthetic:shapes@24x24", "--encoder", "resnet10_3d", "--width", "0.125", "--norm", "group",
        "--epochs", "100", "--checkpoint-seconds", "0.1",
    ]  # fmt: skip
    kill_and_resume(command, tmp_path / "undisturbed", kills=0, longest=0, rng=random.Random(0))
    killed = kill_and_resume(command, tmp_path / "killed", kills=100, longest=1.0, rng=random.Random(1))
    print(f"\nsurvived {killed} kills")
    assert killed >= 50
    assert outcome(Run(tmp_path / "killed")) == outcome(Run(tmp_path / "undisturbed"))


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_saves_and_resume_goes_on(
    which: signal.Signals, undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    step = TrainStep.__call__

    def interrupted(self: Any, batches: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 77:
            os.kill(os.getpid(), which)
        step(self, batches)

    monkeypatch.setattr(TrainStep, "__call__", interrupted)
    with pytest.raises(InterruptedRun, match="after step 77 of 200"):
        pretrain(**POINTS, out=tmp_path / "run", console=quiet())
    assert not issubclass(InterruptedRun, Exception)  # a sweep of somebody's own that catches errors stops too
    run = Run(tmp_path / "run")
    assert load_state(run).step == 77
    assert not run.finished
    pretrain(**POINTS, out=run.folder, resume=True, console=quiet())
    assert outcome(run) == outcome(undisturbed)
    assert signal.getsignal(which) is not None


def test_ctrl_c_on_the_command_line_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = TrainStep.__call__

    def interrupted(self: Any, batches: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        step(self, batches)

    monkeypatch.setattr(TrainStep, "__call__", interrupted)
    assert main([*COMMAND, "--out", str(tmp_path / "run")]) == 130
    assert f"--out {tmp_path}/run --resume" in capsys.readouterr().err


def test_a_state_is_saved_after_an_epoch_where_that_is_cheap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Run
) -> None:
    def killed(self: Any, row: Any) -> None:
        raise KeyboardInterrupt  # nothing is saved on the way out

    monkeypatch.setattr(PlainDisplay, "end_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        pretrain(**POINTS, out=tmp_path / "run", console=quiet())
    console = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(PlainDisplay, "end_epoch", lambda self, row: killed(self, row) if row["epoch"] else None)
    monkeypatch.setattr("icone.training.loop.CHEAP_SAVING", 1e9)
    with pytest.raises(KeyboardInterrupt):
        pretrain(**POINTS, out=tmp_path / "run", resume=True, console=console)
    assert "no state was saved yet" in console.file.getvalue()  # type: ignore[attr-defined]
    assert load_state(Run(tmp_path / "run")).step == 50
    monkeypatch.undo()
    resumed = pretrain(**POINTS, out=tmp_path / "run", resume=True, console=quiet())
    assert outcome(resumed) == outcome(undisturbed)
    names = [name for name in undisturbed.history[0] if name in load_state(resumed).terms]
    assert load_state(resumed).terms == names  # in the order of the method, not of the file


def test_more_epochs_are_refused_with_the_way(undisturbed: Run) -> None:
    with pytest.raises(InputError, match=r"epochs: 4 -> 5.*schedule .* ends with the epochs.*extend=True.*weights="):
        pretrain(**(POINTS | {"epochs": 5}), out=undisturbed.folder, resume=True, console=quiet())


def test_other_epochs_of_an_unfinished_run_are_refused_with_the_way_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TrainStep.__call__

    def interrupted(self: Any, batches: Any) -> None:
        if int(self.count) == 120:
            os.kill(os.getpid(), signal.SIGINT)
        step(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "__call__", interrupted)
        with pytest.raises(InterruptedRun):
            pretrain(**POINTS, out=tmp_path / "run", console=quiet())
    for epochs, way in ((2, "trains on for 2 epochs more"), (3, "trains on to 3 epochs in all")):
        with pytest.raises(InputError, match=f"extend=True instead of resume=True {way}") as refusal:
            pretrain(**(POINTS | {"epochs": epochs}), out=tmp_path / "run", resume=True, console=quiet())
        assert "weights=" not in str(refusal.value)  # it has no encoder yet
    with pytest.raises(InputError, match="recipe") as refusal:
        pretrain(**(POINTS | {"epochs": 3, "recipe": "paper"}), out=tmp_path / "run", resume=True, console=quiet())
    assert "extend=" not in str(refusal.value)  # which another network refuses
    run = pretrain(**(POINTS | {"epochs": 3}), out=tmp_path / "run", extend=True, console=quiet())
    assert run.finished
    assert [row["epoch"] for row in run.history] == [0, 1, 2]


def test_another_source_is_named_before_the_settings_that_differ(undisturbed: Run) -> None:
    other = POINTS | {"source": "synthetic:gaussians@x20", "epochs": 5}
    words = rf"\(source: {POINTS['source']} -> synthetic:gaussians@x20; epochs: 4 -> 5\)"
    with pytest.raises(InputError, match=words) as refusal:
        pretrain(**other, out=undisturbed.folder, resume=True, console=quiet())
    assert "extend=" not in str(refusal.value)


def test_resuming_a_finished_run_changes_nothing(undisturbed: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(undisturbed.folder, copy)
    pretrain(**POINTS, out=copy, resume=True, console=quiet())
    assert outcome(Run(copy)) == outcome(undisturbed)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lr": 0.5}, r"another configuration \(lr: 0.0001 -> 0.5\): .* add adjust=True"),
        ({"views": 3}, r"another configuration \(views: 2 -> 3\): resume with the same settings, or"),
        ({"views": 3, "adjust": True}, r"another configuration \(views: 2 -> 3\)"),
    ],
)
def test_another_configuration_is_refused_by_name(undisturbed: Run, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        pretrain(**POINTS, **more, out=undisturbed.folder, resume=True, console=quiet())


def test_a_run_is_not_overwritten(undisturbed: Run) -> None:
    with pytest.raises(InputError, match="already holds a run"):
        pretrain(**POINTS, out=undisturbed.folder, console=quiet())
    for source in ("no/such/folder", "no/such/file.h5:/images"):  # the slip is told, and not the folder of a run
        with pytest.raises(InputError, match=f"there is no {source.partition(':')[0]}"):
            pretrain(**POINTS | {"source": source}, out=undisturbed.folder, console=quiet())
    with pytest.raises(InputError, match="holds no run; leave resume=True out to begin one"):
        pretrain(**POINTS, out=undisturbed.folder / "elsewhere", resume=True, console=quiet())
    with pytest.raises(InputError, match="one of the two"):
        pretrain(**POINTS, out=undisturbed.folder, resume=True, extend=True, console=quiet())


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"not finite at step \d+ \(epoch 0\): loss nan.*lr="):
        pretrain(**POINTS, recipe="paper", lr=1e30, out=tmp_path / "run", console=quiet(), checkpoint_seconds=0.001)
    state = load_state(Run(tmp_path / "run"))
    assert all(t.isfinite().all() for t in state.tensors.values() if t.is_floating_point())
    assert main([*COMMAND, "--recipe", "paper", "--lr", "1e30", "--out", str(tmp_path / "other")]) == 3


def save_image(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 255, (16, 16), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(4):
        save_image(folder / f"{i}.png", i)
    return folder


TINY: dict[str, Any] = {
    "recipe": "paper", "size": 32, "encoder": "resnet10t", "batch_size": 2, "epochs": 1, "features": 8,
}  # fmt: skip


def test_a_changed_folder_is_refused_in_detail_and_extended_on_demand(folder: Path, tmp_path: Path) -> None:
    run = pretrain(folder, **TINY, out=tmp_path / "run", console=quiet())
    table = load_state(run).part("method")["objective.anchors.weight"]
    moments = load_state(run).part("optimizer")["objective.anchors.weight/exp_avg"]
    save_image(folder / "1b.png", 10)  # gained, between known ones
    (folder / "0.png").unlink()  # lost
    (folder / "3.png").rename(folder / "three.png")
    save_image(folder / "2.png", 20)  # changed
    words = r"gained 1: 1b\.png; lost 1: 0\.png; renamed 1: 3\.png -> three\.png; changed content 1: 2\.png"
    with pytest.raises(InputError, match=words):
        pretrain(folder, **TINY, out=run.folder, resume=True, console=quiet())
    assert load_state(run).ids == ["0.png", "1.png", "2.png", "3.png"]

    frozen = TINY | {"lr": 1e-30, "weight_decay": 0.0}  # so that the rows can be told
    pretrain(folder, **frozen, out=run.folder, extend=True, console=quiet())
    state = load_state(run)
    assert state.ids == ["1.png", "1b.png", "2.png", "three.png"] == run.instances["ids"]
    extended = state.part("method")["objective.anchors.weight"]
    torch.testing.assert_close(extended[[0, 2, 3]], table[[1, 2, 3]])
    assert not torch.isclose(extended[1], table).all(dim=1).any()
    assert 0.005 < extended[1].std() < 0.05  # a fresh anchor
    assert moments.abs().max() > 0
    pretrain(folder, **frozen, out=run.folder, resume=True, console=quiet())  # the folder is now the run's own


def test_weights_that_are_not_finite_are_named_before_anything_is_measured_on_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TrainStep.__call__

    def exploding(self: Any, batches: Any) -> None:
        step(self, batches)
        if int(self.count) == 2:  # the end of the first epoch; its loss was finite
            next(self.method.encoder.parameters()).data.fill_(float("nan"))

    monkeypatch.setattr(TrainStep, "__call__", exploding)
    with pytest.raises(TrainingError, match=r"weights are not finite after step 2.*adjust=True"):
        pretrain(folder, **TINY, probe_every=1, out=tmp_path / "run", console=quiet())


def test_extending_an_unfinished_run_keeps_its_schedule(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TINY | {"epochs": 3}
    step = TrainStep.__call__

    def interrupted(self: Any, batches: Any) -> None:
        if int(self.count) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        step(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "__call__", interrupted)
        with pytest.raises(InterruptedRun):
            pretrain(folder, **settings, out=tmp_path / "run", console=quiet())
    for i, name in enumerate(("new.png", "newer.png")):  # one alone would be too few for BatchNorm, and make no step
        save_image(folder / name, 30 + i)
    run = pretrain(folder, **settings, out=tmp_path / "run", extend=True, console=quiet())
    assert [row["epoch"] for row in run.history] == [0, 1, 2]
    assert load_state(run).step == 9  # three epochs of three steps, the first taken over


def test_time_is_not_spent_on_saving_too_often(tmp_path: Path) -> None:
    began = time.time()
    run = pretrain(**POINTS, out=tmp_path / "run", console=quiet())
    assert run.state_file.stat().st_mtime >= began
    assert {p.name for p in run.folder.iterdir()} == {
        ".lock", "config.json", "config.toml", "encoder.safetensors", "history.jsonl", "instances.json", "state",
    }  # fmt: skip


def test_the_cache_changes_no_bit_of_a_run(undisturbed: Run, tmp_path: Path) -> None:
    settings: dict[str, dict[str, Any]] = {
        "off": {"cache": "off"},
        "cold": {"cache": tmp_path / "cache"},
        "warm": {"cache": tmp_path / "cache"},
        "mapped": {"cache": tmp_path / "cache", "memory_gb": 0.0},
    }
    for name, more in settings.items():
        run = pretrain(**POINTS, **more, out=tmp_path / name, console=quiet())
        assert outcome(run) == outcome(undisturbed), name
