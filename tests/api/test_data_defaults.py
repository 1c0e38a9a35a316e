"""Defaults that are decided when a run begins: what they are, where they are decided, and that runs keep them."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from sklearn.base import clone

import icone
from icone.api.data_defaults import with_data_defaults, with_default_warmup, with_defaults_of_before
from icone.api.pretrain import pretrain_many
from icone.cli import main
from icone.config import PretrainConfig
from icone.config_text import to_command
from icone.encoders import build_encoder
from icone.encoders.nf_resnet3d import NFVolumeResNet
from icone.encoders.resnet3d import VolumeResNet
from icone.errors import InputError
from icone.methods import IConE, Setting
from icone.paper import Grid, Options
from icone.paper.execute import ExecutionSettings, execute_one
from icone.paper.spec import RunSpec
from icone.recipe import VOLUME_ENCODER, WARMUP
from icone.run import Run
from icone.training.step import TrainStep
from icone.views import PlainViews

SMALL: dict[str, Any] = {"width": 0.125, "epochs": 1, "probe_every": 0, "device": "cpu"}
VOLUMES = "synthetic:shapes@16x6"
IMAGES: dict[str, Any] = {"encoder": "test_resnet", "epochs": 1, "probe_every": 0, "device": "cpu"}


def network(run: Run) -> Any:
    return icone.load_encoder(run, "cpu").encoder


def say_auto(run: Run) -> None:
    """Let the configuration of a run say auto, as one of before does."""
    file = run.folder / "config.json"
    record = json.loads(file.read_text())
    record["config"]["encoder"] = "auto"
    file.write_text(json.dumps(record))


def test_volumes_get_the_network_without_batchnorm_and_their_run_says_so(tmp_path: Path) -> None:
    run = icone.pretrain(VOLUMES, out=tmp_path / "run", **SMALL)
    assert run.config.encoder == VOLUME_ENCODER
    assert isinstance(network(run), NFVolumeResNet)


@pytest.mark.parametrize(
    "changes", [{"recipe": "paper", "norm": "group"}, {"norm": "group"}, {"encoder": "paper", "batch_size": 6}]
)
def test_the_paper_s_network_stays_where_it_is_asked_for(changes: dict[str, Any], tmp_path: Path) -> None:
    run = icone.pretrain(VOLUMES, out=tmp_path / "run", **SMALL, **changes)
    assert run.config.encoder == changes.get("encoder", "auto")
    assert isinstance(network(run), VolumeResNet)


def test_weights_keep_the_network_that_they_fit(tmp_path: Path) -> None:
    first = icone.pretrain(VOLUMES, out=tmp_path / "first", **SMALL)
    second = icone.pretrain(VOLUMES, out=tmp_path / "second", weights=str(first.folder), **SMALL | {"width": 1.0})
    assert (second.config.encoder, second.config.width) == (VOLUME_ENCODER, 0.125)
    alone = shutil.copy(first.encoder_file, tmp_path / "alone.safetensors")
    with pytest.raises(InputError, match="Choose the encoder="):  # a file by itself does not say what it is for
        icone.pretrain(VOLUMES, out=tmp_path / "file", weights=str(alone), batch_size=6, **SMALL)


def test_images_and_points_keep_theirs(tmp_path: Path) -> None:
    run = icone.pretrain("synthetic:gaussians", subset=20, out=tmp_path / "run", epochs=1, probe_every=0, device="cpu")
    assert run.config.encoder == "auto"
    assert icone.inspect("synthetic:cells@32x6")["encoder"] == "vit_small_patch16"


def test_plan_and_inspect_tell_it() -> None:
    assert icone.inspect(VOLUMES)["encoder"] == VOLUME_ENCODER
    assert icone.inspect(VOLUMES, recipe="paper", norm="group")["encoder"] == "resnet18_3d"
    assert icone.plan(VOLUMES, **SMALL)["fits"]


def test_a_run_goes_on_with_the_network_that_it_began_with(tmp_path: Path) -> None:
    settings = {**SMALL, "epochs": 2}
    run = icone.pretrain(VOLUMES, out=tmp_path / "run", **settings)
    again = icone.pretrain(VOLUMES, out=tmp_path / "run", resume=True, **settings)
    assert again.config == run.config
    longer = icone.pretrain(VOLUMES, out=tmp_path / "run", extend=True, **{**settings, "epochs": 3})
    assert longer.config.encoder == VOLUME_ENCODER
    with pytest.raises(InputError, match="encoder: nf_resnet18_3d -> paper"):
        icone.pretrain(VOLUMES, out=tmp_path / "run", resume=True, encoder="paper", **{**settings, "epochs": 3})


def test_a_run_of_before_keeps_the_paper_s_network(tmp_path: Path) -> None:
    """Its configuration says auto, which was the network with BatchNorm."""
    settings = {**SMALL, "batch_size": 6, "epochs": 2}
    run = icone.pretrain(VOLUMES, out=tmp_path / "run", encoder="paper", **settings)
    say_auto(run)
    assert isinstance(network(Run(run.folder)), VolumeResNet)
    icone.pretrain(VOLUMES, out=run.folder, resume=True, **settings)


def test_seeds_get_it_too_and_go_on_with_it(tmp_path: Path) -> None:
    configs = [PretrainConfig(source=VOLUMES, seed=seed, **SMALL) for seed in (0, 1)]
    outs = [tmp_path / "0", tmp_path / "1"]
    for _ in range(2):
        runs = pretrain_many(configs, outs, resume=True)
        assert [run.config.encoder for run in runs] == [VOLUME_ENCODER] * 2


def test_a_new_seed_gets_the_network_of_the_seeds_that_are_there(tmp_path: Path) -> None:
    """Those of before say auto, which was the network with BatchNorm: one more must not be another network."""
    settings = {**SMALL, "batch_size": 6}
    first = icone.pretrain(VOLUMES, out=tmp_path / "0", encoder="paper", seed=0, **settings)
    say_auto(first)
    configs = [PretrainConfig(source=VOLUMES, seed=seed, **settings) for seed in (0, 1)]
    runs = pretrain_many(configs, [tmp_path / "0", tmp_path / "1"], resume=True)
    assert [type(network(run)) for run in runs] == [VolumeResNet] * 2


def test_experiments_keep_the_paper_s_network(tmp_path: Path) -> None:
    config = PretrainConfig(source="synthetic:shapes@16x24", batch_size=8, width=0.125, epochs=1)
    setting = ExecutionSettings(device="cpu", keep_encoders=True)
    outcome = execute_one(RunSpec(config=config, geometry_instances=4), tmp_path, setting)
    assert outcome.status == "done", outcome.reason
    weights = next(tmp_path.rglob("*.safetensors"))
    assert "bn1.weight" in load_file(weights)


@pytest.mark.parametrize(
    ("source", "settings", "batch_size"),
    [
        ("synthetic:cells@32x20", IMAGES, 16),
        ("synthetic:cells@32x20", IMAGES | {"method": "simclr", "batch_size": None}, 16),
        ("synthetic:cells@32x20", IMAGES | {"test_fraction": 0.5}, 10),
        ("synthetic:cells@32x20", IMAGES | {"batch_size": 1}, 1),
        (VOLUMES, SMALL, 1),
    ],
)
def test_a_step_takes_sixteen_images_or_one_volume(
    source: str, settings: dict[str, Any], batch_size: int, tmp_path: Path
) -> None:
    run = icone.pretrain(source, out=tmp_path / "run", **settings)
    assert (run.config.batch_size, Run(run.folder).config.batch_size) == (batch_size, batch_size)
    assert icone.plan(source, **settings)["batch_size"] == batch_size


def test_a_run_goes_on_with_the_batch_size_that_it_began_with(tmp_path: Path) -> None:
    """Those of before had one image a step, and their configuration says so."""
    common = {**IMAGES, "source": "synthetic:cells@32x20", "out": tmp_path / "run"}
    icone.pretrain(**common, batch_size=1)
    assert icone.pretrain(**common, resume=True).config.batch_size == 1
    assert icone.pretrain(**common | {"epochs": 2}, extend=True).config.batch_size == 1
    with pytest.raises(InputError, match="batch_size: 1 -> 16"):
        icone.pretrain(**common | {"epochs": 2}, resume=True, batch_size=16)


def test_seeds_get_the_batch_size_of_the_data_or_of_the_seeds_that_are_there(tmp_path: Path) -> None:
    words = ["pretrain", "synthetic:cells@32x20", "--encoder", "test_resnet", "--epochs", "1", "--probe-every", "0"]
    words += ["--device", "cpu", "--seeds", "2"]
    assert main([*words, "--out", str(tmp_path / "new")]) == 0
    icone.pretrain("synthetic:cells@32x20", out=tmp_path / "old/seed-0", **IMAGES, batch_size=1)
    assert main([*words, "--out", str(tmp_path / "old"), "--resume"]) == 0
    found = {name: [Run(tmp_path / name / f"seed-{s}").config.batch_size for s in (0, 1)] for name in ("new", "old")}
    assert found == {"new": [16, 16], "old": [1, 1]}


def test_a_micro_batch_is_compared_with_the_batch_size_of_the_data(tmp_path: Path) -> None:
    run = icone.pretrain("synthetic:cells@32x20", out=tmp_path / "run", **IMAGES, micro_batch=4)
    assert (run.config.batch_size, run.config.micro_batch) == (16, 4)
    with pytest.raises(InputError, match="micro_batch=4 is larger than batch_size=1"):
        icone.pretrain(VOLUMES, out=tmp_path / "volumes", **SMALL, micro_batch=4)
    assert not (tmp_path / "volumes").exists()


def test_a_method_that_is_built_keeps_its_batch_size(tmp_path: Path) -> None:
    encoder = build_encoder("test_resnet", in_channels=3, spatial_dims=2, size=32)
    method = IConE(encoder, Setting(num_instances=20, batch_size=4), out=4, hidden=8)
    settings = {name: value for name, value in IMAGES.items() if name != "encoder"}
    run = icone.pretrain("synthetic:cells@32x20", method=method, out=tmp_path / "run", **settings)
    assert run.config.batch_size == 4


def test_a_run_is_extended_on_fewer_images_than_its_batch_had(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((18, 32, 32, 3), dtype=np.float32)
    for number, image in enumerate(images):
        (tmp_path / "data").mkdir(exist_ok=True)
        np.save(tmp_path / f"data/{number}.npy", image)
    common = {**IMAGES, "source": str(tmp_path / "data"), "axes": "YXC", "size": 32, "out": tmp_path / "run"}
    assert icone.pretrain(**common).config.batch_size == 16
    for number in range(6):
        (tmp_path / f"data/{number}.npy").unlink()
    text = io.StringIO()
    run = icone.pretrain(**common, extend=True, console=Console(file=text, width=300))
    assert (run.config.batch_size, run.finished) == (16, True)
    assert "note: 12 samples are left, and a step takes all of them" in text.getvalue()
    assert "--batch-size 12" in text.getvalue()  # of the command that trains anew
    with pytest.raises(InputError, match="batch_size must be 1 to 12"):
        icone.pretrain(**common, extend=True, batch_size=20)
    with pytest.raises(InputError, match="batch_size must be 1 to 12"):
        icone.pretrain(**common | {"out": tmp_path / "new"}, batch_size=16)


def test_a_run_goes_on_with_the_micro_batches_that_a_plan_chose(tmp_path: Path) -> None:
    common = {**IMAGES, "source": "synthetic:cells@32x20", "out": tmp_path / "run", "epochs": 2}
    run = icone.pretrain(**common, batch_size=16, micro_batch=4, checkpoint_activations="on")
    again = icone.pretrain(**common, resume=True)
    assert again.config == run.config


def test_memory_that_is_too_small_for_seeds_is_told_with_their_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_much(*_: Any) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("icone.api.pretrain.fit", too_much)
    words = ["pretrain", "synthetic:cells@32x20", "--encoder", "test_resnet", "--epochs", "1", "--device", "cpu"]
    assert main([*words, "--seeds", "2", "--out", str(tmp_path / "run")]) != 0
    assert "--micro-batch 8 (now 16 samples" in capsys.readouterr().err


def test_every_process_has_an_image_or_a_volume() -> None:
    class Two:
        size = 2

    config = PretrainConfig(source="scans", probe_every=0)
    sizes = [with_data_defaults(config, "by data", dims, 50, ranks=Two()).batch_size for dims in (0, 2, 3)]  # type: ignore[arg-type]
    assert sizes == [2, 16, 2]


def test_the_scikit_learn_class_has_it_too(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((20, 16, 16), dtype=np.float32)
    settings = {"probe_every": 0}
    embedder = clone(icone.Embedder(encoder="test_resnet", epochs=1, size=32, device="cpu", settings=settings))
    assert embedder.get_params()["batch_size"] is None
    assert embedder.fit(images).config_.batch_size == 16


def without_warmup(run: Run) -> None:
    """Let the configuration of a run say nothing of a warm-up, as one of before does."""
    file = run.folder / "config.json"
    record = json.loads(file.read_text())
    record["config"]["warmup"] = None
    file.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("settings", "warmup"),
    [({}, WARMUP), ({"warmup": 0.0}, 0.0), ({"warmup": 0.2}, 0.2), ({"recipe": "paper"}, None)],
)
def test_a_new_run_warms_up_and_says_so(settings: dict[str, Any], warmup: float | None, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"source": "synthetic:cells@32x40", "batch_size": 8, **IMAGES, **settings}
    run = icone.pretrain(**chosen, out=tmp_path / "run")
    (again,) = pretrain_many([PretrainConfig(**chosen)], [tmp_path / "many"])
    assert run.config.warmup == again.config.warmup == warmup


def test_the_first_steps_are_short_and_a_run_of_few_steps_has_no_warm_up() -> None:
    """40 steps of which two warm up: the second has half of the rate. Of 19 steps none would be left of it."""
    encoder = build_encoder("test_resnet", spatial_dims=2, in_channels=3, size=32)
    method = IConE(encoder, Setting(num_instances=4, batch_size=1), hidden=8)
    config = with_default_warmup(PretrainConfig(source="x"))

    def rates(steps: int) -> list[float]:
        step = TrainStep(method, PlainViews(), config, steps, torch.device("cpu"))
        found = []
        for count in range(3):
            step.count.fill_(count)
            step.schedule()
            found.append(step.optimizer.param_groups[0]["lr"].item() / step.lr)
        return found

    def cosine(progress: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * progress))

    assert rates(40) == pytest.approx([0, cosine(1 / 40) / 2, cosine(2 / 40)])
    assert rates(19) == pytest.approx([1, cosine(1 / 19), cosine(2 / 19)])


def test_a_run_of_before_goes_on_without_warm_up(tmp_path: Path) -> None:
    """Its configuration says nothing; so do those of the runs of a sweep that were stored before there was one."""
    source = "synthetic:cells@32x40"
    run = icone.pretrain(source, out=tmp_path / "run", **IMAGES, batch_size=4)
    now = run.config
    assert "--warmup" not in to_command(now)
    without_warmup(run)
    before = Run(run.folder).config
    assert with_defaults_of_before(PretrainConfig(source=source), before).warmup is None
    assert with_defaults_of_before(PretrainConfig(source=source), now).warmup == WARMUP
    command = to_command(before)
    assert command[command.index("--warmup") + 1] == "0.0"


def test_sweeps_train_what_their_keys_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(datasets=("synthetic:cells@32x40",), settings={"encoder": "test_resnet", "epochs": 1})
    (cell,) = grid(Options())
    (printed,) = grid(Options(recipe="paper"))
    assert (cell.spec.config.warmup, printed.spec.config.warmup) == (WARMUP, None)
    before = dataclasses.replace(cell.spec, config=dataclasses.replace(cell.spec.config, warmup=None))
    assert before.key != cell.spec.key
    trained: list[float | None] = []

    def train(**settings: Any) -> None:
        trained.append(settings["warmup"])
        raise InputError("enough")

    monkeypatch.setattr("icone.paper.execute.pretrain", train)
    for spec in (cell.spec, before, printed.spec):
        execute_one(spec, tmp_path / spec.key, ExecutionSettings())
    assert trained == [WARMUP, 0.0, None]
