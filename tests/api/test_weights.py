"""`--weights`: every place that weights can be in, a run that starts from them, and what is refused."""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import icone
from icone.api import weights
from icone.api.weights import find_weights, read_weights
from icone.config import ImageViews, PretrainConfig
from icone.data import Preparation
from icone.encoders import build_encoder
from icone.encoders.pretrained import put_weights
from icone.encoders.regions import layer_depths
from icone.errors import InputError
from icone.methods import Setting, build_method
from icone.recipe import CONTINUED_LR, LAYER_DECAY, WARMUP, adamw_settings
from icone.report.content import provenance
from icone.terminal import Terminal
from icone.training.optimizer import learning_rates, set_learning_rate
from icone.training.step import TrainStep
from icone.views import PlainViews
from icone.views.image import IMAGENET_MEAN, IMAGENET_STD, ImagePipeline

SETTINGS: dict[str, Any] = {"encoder": "test_resnet", "size": 32, "probe_every": 0, "cache": "off", "batch_size": 4}
IMAGES = np.random.default_rng(0).integers(0, 255, (8, 3, 32, 32), dtype=np.uint8)


def pretrain(out: Path, **settings: Any) -> tuple[icone.Run, str]:
    said = io.StringIO()
    run = icone.pretrain(IMAGES, out=out, console=Terminal(file=said, width=120), **{**SETTINGS, **settings})
    return run, said.getvalue()


def test_a_run_starts_from_another_and_goes_on_without_it(tmp_path: Path) -> None:
    first, _ = pretrain(tmp_path / "first", epochs=1)
    second, said = pretrain(tmp_path / "second", epochs=2, weights=str(first.folder))
    trained = load_file(first.encoder_file)
    begun = load_file(second.initial_file)
    assert all(torch.equal(begun[name], tensor) for name, tensor in trained.items() if "running" not in name)
    assert "weights from the run" in said
    assert "100% of the encoder" in said
    assert second.record["weights"]["loaded"]
    assert "100% of the encoder" in provenance(second)["facts"]["weights loaded"]
    shutil.rmtree(first.folder)
    resumed, said = pretrain(tmp_path / "second", epochs=2, weights=str(first.folder), resume=True)
    assert resumed.record["weights"] == second.record["weights"]
    assert icone.load_encoder(resumed)(IMAGES).shape == (8, 96)
    other, _ = pretrain(tmp_path / "third", epochs=1)
    assert other.record["weights"] is None


def test_weights_of_a_run_or_an_export_bring_their_network_with_them(tmp_path: Path) -> None:
    volumes = np.random.default_rng(1).random((6, 1, 16, 16, 16), dtype=np.float32)
    saved = tmp_path / "volumes.npy"
    np.save(saved, volumes)
    shape = {"encoder": "nf_resnet10_3d", "width": 0.125, "features": 24}
    settings: dict[str, Any] = {"size": 16, "probe_every": 0, "batch_size": 2}

    def train(name: str, **others: Any) -> icone.Run:
        return icone.pretrain(volumes, out=tmp_path / name, console=Terminal(quiet=True), **settings | others)

    first = train("first", epochs=1, **shape)
    taken_over = train("second", epochs=2, weights=str(first.folder))
    assert {name: getattr(taken_over.config, name) for name in shape} == shape
    assert taken_over.record["weights"]["share"] == 1
    assert icone.plan(volumes, weights=str(first.folder), console=Terminal(quiet=True), **settings)["fits"]
    hub = icone.export(first, "hub", tmp_path / "hub")
    bundle = icone.export(first, "monai", tmp_path / "bundle")
    for origin in (hub, bundle, first.encoder_file):
        from_export = train(f"from {origin.stem}", epochs=1, weights=str(origin))
        assert {name: getattr(from_export.config, name) for name in shape} == shape
        assert from_export.record["weights"]["share"] == 1
    with pytest.raises(InputError, match=r"only 0\.\d% of the encoder fits"):
        train("wider", epochs=1, weights=str(first.folder), encoder="nf_resnet10_3d")
    config = PretrainConfig(
        **vars(taken_over.config) | {"encoder": "auto", "width": 1.0, "features": None, "source": str(saved)}
    )
    (several,) = icone.pretrain_many([config], [tmp_path / "several"], console=Terminal(quiet=True))
    assert {name: getattr(several.config, name) for name in shape} == shape
    shutil.rmtree(first.folder)
    resumed = train("second", epochs=2, weights=str(first.folder), resume=True)
    assert resumed.config == taken_over.config


def test_a_note_asks_where_most_of_an_encoder_stays_random() -> None:
    own = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 6))
    content = {"0.weight": torch.zeros(4, 4), "0.bias": torch.zeros(4)}
    few = put_weights(own, content, origin="here", in_channels=1)
    assert few.notes == [
        "only 40% of the encoder is from these weights, the rest is random. Are they of another --encoder?"
    ]
    assert not put_weights(own, own.state_dict(), origin="here", in_channels=1).notes


def test_test_samples_that_the_weights_know_are_told(tmp_path: Path) -> None:
    first, _ = pretrain(tmp_path / "first", epochs=1)
    second, _ = pretrain(tmp_path / "second", epochs=1, weights=str(first.folder), test_fraction=0.25)
    settings: dict[str, Any] = {"weights": str(second.folder), "test_fraction": 0.25, "split_seed": 3}
    third, _ = pretrain(tmp_path / "third", epochs=1, **settings)
    shutil.rmtree(first.folder)
    third, _ = pretrain(tmp_path / "third", epochs=1, **settings, resume=True)
    for run in (second, third):
        result = icone.evaluate(run, labels=list("abababab"), device="cpu", geometry_instances=0, untrained=False)
        assert "but the run of weights= was trained on 2 of these 2 samples" in result["data"]["note"]
    alone, _ = pretrain(tmp_path / "alone", epochs=1, test_fraction=0.25)
    assert alone.instances["seen_by_weights"] == []


def test_the_rate_falls_towards_the_input_and_warms_up() -> None:
    encoder = build_encoder("test_vit", spatial_dims=2, in_channels=1, size=32)
    depths = layer_depths(encoder)
    method = build_method("icone", encoder, Setting(num_instances=4, batch_size=1), ["hidden=8"])
    config = PretrainConfig(source="x", weights="somewhere", batch_size=1)
    step = TrainStep(method, PlainViews(), config, total_steps=100, device=torch.device("cpu"))
    base = adamw_settings(config.lr, 1).lr
    for at in (0.0, 0.01, WARMUP, 0.5):
        set_learning_rate(learning_rates(step.optimizer), base, torch.tensor(at), step.warmup)
        whole = base * 0.5 * (1 + math.cos(math.pi * at)) * min(at / WARMUP, 1)
        rates = {p: g["lr"].item() for g in step.optimizer.param_groups for p in g["params"]}
        for p, rate in rates.items():
            deep = max(depths.values()) - depths.get(p, 0)
            scale = CONTINUED_LR * LAYER_DECAY**deep if p in depths else 1.0
            assert rate == pytest.approx(whole * scale, rel=1e-5, abs=1e-12)
    assert rates.keys() == {p for p in method.parameters() if p.requires_grad}
    assert step.optimizer.param_groups[0]["lr_scale"] == 1
    plain = TrainStep(method, PlainViews(), PretrainConfig(source="x"), 100, torch.device("cpu"))
    assert len({id(group["lr"]) for group in plain.optimizer.param_groups}) == 1
    paper = PretrainConfig(source="x", weights="y", recipe="paper", layer_decay=0.9)
    printed = TrainStep(method, PlainViews(), paper, 100, torch.device("cpu"))
    assert printed.warmup == 0
    assert {g["lr_scale"] for g in printed.optimizer.param_groups} != {1.0}


class Bomb:
    """A pickle that makes a file when it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


def test_a_pickle_with_code_is_refused_and_not_executed(tmp_path: Path) -> None:
    torch.save({"state_dict": Bomb(tmp_path / "boom")}, tmp_path / "bad.pth")
    with pytest.raises(InputError, match=r"more than tensors.*convert it once"):
        read_weights(tmp_path / "bad.pth")
    assert not (tmp_path / "boom").exists()
    (tmp_path / "noise.pth").write_bytes(b"no weights at all")
    (tmp_path / "text.pth").write_bytes(b"hello")
    (tmp_path / "noise.safetensors").write_bytes(b"no weights at all")
    torch.save([1, 2], tmp_path / "list.pt")
    for name, words in (
        ("noise.pth", "cannot read"),
        ("text.pth", "cannot read"),
        ("noise.safetensors", "cannot read"),
        ("list.pt", "holds a list"),
    ):
        with pytest.raises(InputError, match=words):
            read_weights(tmp_path / name)


@pytest.mark.parametrize("kind", ["a whole network", "weights and settings"])
def test_the_command_that_converts_a_pickle_works_as_it_is_printed(kind: str, tmp_path: Path) -> None:
    network = torch.nn.Linear(2, 2)
    path = tmp_path / "it's mine.pth"
    settings = {"model": network.state_dict(), "args": argparse.Namespace(lr=1)}
    torch.save(network if kind == "a whole network" else settings, path)
    with pytest.raises(InputError) as refused:
        read_weights(path)
    found = re.search(r"convert it once: (.*), and give (.*\.safetensors)", str(refused.value))
    assert found is not None
    interpreter, flag, code = shlex.split(found[1])
    assert (interpreter, flag) == ("python", "-c")
    exec(code, {})
    converted = read_weights(Path(found[2]))
    assert all(torch.equal(converted[name], tensor) for name, tensor in network.state_dict().items())


def test_files_and_folders(tmp_path: Path) -> None:
    tensors = {"fc.weight": torch.ones(2, 2)}
    save_file(tensors, tmp_path / "a.safetensors")
    torch.save({"model": tensors}, tmp_path / "b.pth")
    assert find_weights(str(tmp_path / "a.safetensors"), "auto").content.keys() == {"fc.weight"}
    assert find_weights(str(tmp_path / "b.pth"), "auto").content.keys() == {"model"}
    with pytest.raises(InputError, match="2 files with weights: give the file"):
        find_weights(str(tmp_path), "auto")
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "model.safetensors")
    assert find_weights(str(tmp_path), "auto").origin.endswith("model.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no run and has no file"):
        find_weights(str(tmp_path / "empty"), "auto")
    with pytest.raises(InputError, match="no such file or folder"):
        find_weights(str(tmp_path / "nowhere"), "auto")


@pytest.mark.parametrize(
    ("text", "encoder", "repository", "file"),
    [
        ("timm", "auto", "timm/vit_small_patch16_224.augreg_in21k_ft_in1k", "model.safetensors"),
        ("timm:a1_in1k", "resnet18", "timm/resnet18.a1_in1k", "model.safetensors"),
        ("hf-hub:someone/network@v2", "auto", "someone/network", "model.safetensors"),
        ("medicalnet", "resnet50_3d", "TencentMedicalNet/MedicalNet-Resnet50", "resnet_50_23dataset.pth"),
    ],
)
def test_the_hub_is_asked_for_the_right_file(
    text: str, encoder: str, repository: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(name: str, filename: str, revision: str | None, local_files_only: bool) -> str:
        asked.append((name, filename))
        assert revision == ("v2" if "@" in text else None)
        path = tmp_path / filename
        save_file({"a": torch.ones(1)}, path) if path.suffix == ".safetensors" else torch.save({}, path)
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr(weights, "_is_hub_reachable", lambda: True)
    find_weights(text, encoder)
    assert asked == [(repository, file), (repository, "config.json")]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("encoder", ["resnet10t", "vit_tiny_patch16_224", "convnext_atto"])
def test_weights_of_another_normalisation_compute_what_they_did(
    encoder: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timm's ViTs are normalised by 0.5, its ResNets as views are."""
    torch.manual_seed(0)
    released = build_encoder(encoder, in_channels=3, spatial_dims=2, size=32).eval()
    monkeypatch.setattr(weights, "_from_hub", lambda *_: weights.FoundWeights(released.state_dict(), "the Hub"))
    config = PretrainConfig(source="x", encoder=encoder, weights="timm")
    network = build_encoder(encoder, in_channels=channels, spatial_dims=2, size=32).eval()
    found = weights.start_from_weights(network, config, preparation(channels))
    is_vit = encoder.startswith("vit")
    assert bool(found.notes) == is_vit
    if is_vit:
        assert "the mean 0.5, 0.5, 0.5 and the standard deviation 0.5, 0.5, 0.5: the first layer" in found.notes[0]
        assert "about the weights" in found.facts()
    x = torch.rand(2, channels, 32, 32)
    seen = x.expand(-1, 3, -1, -1) if channels == 1 else x
    mean, std = ((0.5,) * 3, (0.5,) * 3) if is_vit else (IMAGENET_MEAN, IMAGENET_STD)
    if channels == 3 or (channels == 1 and is_vit):
        theirs = released((seen - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])
        ours = ImagePipeline(ImageViews(), channels=channels, size=(32, 32)).plain(x)
        torch.testing.assert_close(network(ours), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stated", [True, False])
def test_a_folder_of_timm_states_its_normalisation(stated: bool, tmp_path: Path) -> None:
    network = build_encoder("test_vit", in_channels=3, spatial_dims=2, size=32)
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    about = {"pretrained_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}} if stated else {"pretrained_cfg": {"std": 1}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    found = find_weights(str(tmp_path), "test_vit")
    assert found.normalisation == (((0.5,) * 3, (0.5,) * 3) if stated else None)


def test_a_first_layer_that_cannot_be_changed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build_encoder("resnet10t", in_channels=3, spatial_dims=2, size=32)
    content = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    other = weights.FoundWeights(content, "elsewhere", ((0.5,) * 3, (0.5,) * 3))
    monkeypatch.setattr(weights, "find_weights", lambda *_: other)
    config = PretrainConfig(source="x", encoder="resnet10t", weights="timm")
    found = weights.start_from_weights(network, config, preparation(3))
    assert "here these see 2.2 times the contrast" in found.notes[0]
    assert all(torch.equal(tensor, content[name]) for name, tensor in network.state_dict().items())


def preparation(channels: int) -> Preparation:
    return Preparation(
        spatial_dims=2, channels=channels, size=(32, 32), fit="stretch", spacing=None, dtype="uint8",
        low=(0.0,) * channels, high=(255.0,) * channels,
    )  # fmt: skip


def test_without_a_network_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(weights, "_is_hub_reachable", lambda: False)
    with pytest.raises(InputError, match=r"there is no network.*weights=.FILE"):
        find_weights("timm", "resnet18")


@pytest.mark.parametrize(
    ("text", "encoder", "words"),
    [
        ("timm", "resnet18_3d", "is for encoders of timm"),
        ("timm:nonsense", "resnet18", "no weights nonsense for resnet18; known are a1_in1k"),
        ("medicalnet", "resnet18", "weights=.medicalnet. is for resnet10_3d"),
    ],
)
def test_weights_of_another_kind_of_encoder_are_refused(text: str, encoder: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_weights(text, encoder)
