"""What `--encoder auto` is for volumes, where it is decided, and that runs keep what they began with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import icone
from icone.api.pretrain import pretrain_many
from icone.config import PretrainConfig
from icone.encoders.nf_resnet3d import NFVolumeResNet
from icone.encoders.resnet3d import VolumeResNet
from icone.errors import InputError
from icone.paper.execute import ExecutionSettings, execute_one
from icone.paper.spec import RunSpec
from icone.recipe import VOLUME_ENCODER
from icone.run import Run

SMALL: dict[str, Any] = {"width": 0.125, "epochs": 1, "probe_every": 0, "device": "cpu"}
VOLUMES = "synthetic:shapes@16x6"


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
