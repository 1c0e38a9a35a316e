"""Every format: written, read back and compared with the run, for images and for volumes."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

import icone
from icone.api.export import EXPORTS
from icone.encoders.volumes import resenc_plan
from icone.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (4, 3, 40, 32), dtype=np.uint8)
VOLUMES = RNG.normal(size=(3, 1, 20, 16, 16)).astype(np.float32)
QUICK: dict[str, Any] = {"epochs": 1, "probe_every": 0, "cache": "off", "device": "cpu"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, icone.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        2: icone.pretrain(IMAGES, encoder="test_vit", size=32, out=folder / "images", **QUICK),
        3: icone.pretrain(VOLUMES, encoder="resnet10_3d", width=0.125, size=16, out=folder / "volumes", **QUICK),
    }


def samples(dims: int) -> np.ndarray:
    return IMAGES if dims == 2 else VOLUMES


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("kind", ["timm", "torch", "onnx", "hub", "monai"])
def test_what_is_read_back_gives_the_same_features(
    kind: Any, dims: int, runs: dict[int, icone.Run], tmp_path: Path
) -> None:
    target = tmp_path / f"export{EXPORTS[kind].suffix or ''}"
    if (kind, dims) == ("timm", 3):
        with pytest.raises(InputError, match="is for encoders of timm"):
            icone.export(runs[dims], kind, target)
        assert not target.exists()
        return
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    assert icone.export(runs[dims], kind, target) == target
    expected = icone.load_encoder(runs[dims])(samples(dims))
    found = icone.from_export(target)(samples(dims))
    tolerance = 1e-4 if kind == "onnx" else 1e-5
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@torch.no_grad()
def test_timm_and_its_transform_load_the_folder(runs: dict[int, icone.Run], tmp_path: Path) -> None:
    icone.export(runs[2], "timm", tmp_path / "folder")
    network = timm.create_model(f"local-dir:{tmp_path / 'folder'}", pretrained=True).eval()
    frozen = icone.load_encoder(runs[2])
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(network(frozen.views.plain(x)), frozen.encoder(frozen.views.plain(x)))
    data: Any = timm.data
    about = data.resolve_model_data_config(network)
    assert tuple(about["input_size"]) == (3, 32, 32)
    mean = torch.tensor(about["mean"])[:, None, None]
    std = torch.tensor(about["std"])[:, None, None]
    torch.testing.assert_close((x - mean) / std, frozen.views.plain(x))


def test_a_program_takes_any_batch_without_icone(runs: dict[int, icone.Run], tmp_path: Path) -> None:
    icone.export(runs[3], "torch", tmp_path / "encoder.pt2")
    program = torch.export.load(tmp_path / "encoder.pt2").module()
    frozen = icone.load_encoder(runs[3])
    for batch in (1, 5):
        x = torch.rand(batch, 1, 16, 16, 16)
        torch.testing.assert_close(program(x), frozen.encoder(x), atol=1e-5, rtol=1e-5)


def test_monai_checks_and_loads_the_bundle(runs: dict[int, icone.Run], tmp_path: Path) -> None:
    bundle = pytest.importorskip("monai.bundle")
    for dims, run in runs.items():
        folder = tmp_path / str(dims)
        icone.export(run, "monai", folder)
        files = {"meta_file": f"{folder}/configs/metadata.json", "config_file": f"{folder}/configs/inference.json"}
        bundle.verify_net_in_out("network_def", **files, device="cpu")
        parser = bundle.ConfigParser()
        parser.read_config(files["config_file"])
        parser["bundle_root"], parser["device"] = str(folder), "cpu"
        parser.get_parsed_content("initialize")
        network = parser.get_parsed_content("network").eval()
        frozen = icone.load_encoder(run)
        x = torch.randn(2, *frozen.preparation.to_json()["size"])[:, None].expand(
            -1, 3 if dims == 2 else 1, *[-1] * dims
        )
        with torch.no_grad():
            torch.testing.assert_close(network(x), frozen.encoder(x), atol=1e-4, rtol=1e-4)


def test_the_metadata_say_what_the_specification_of_bundles_asks_for(
    runs: dict[int, icone.Run], tmp_path: Path
) -> None:
    """The fields that https://docs.monai.io/en/stable/mb_specification.html lists; the schema needs a network."""
    icone.export(runs[2], "monai", tmp_path / "bundle")
    found = json.loads((tmp_path / "bundle" / "configs" / "metadata.json").read_text())
    wanted = {
        "schema", "version", "changelog", "monai_version", "pytorch_version", "numpy_version", "name", "task",
        "required_packages_version", "description", "authors", "copyright", "network_data_format",
    }  # fmt: skip
    assert wanted <= found.keys()
    for part in (found["network_data_format"]["inputs"]["image"], found["network_data_format"]["outputs"]["pred"]):
        kinds = {"type": str, "format": str, "num_channels": int, "spatial_shape": list, "dtype": str}
        assert all(isinstance(part[name], kind) for name, kind in kinds.items())


def test_the_model_card_says_data_recipe_metrics_licence_and_citation(
    runs: dict[int, icone.Run], tmp_path: Path
) -> None:
    icone.export(runs[3], "hub", tmp_path / "hub", licence="cc-by-4.0")
    assert {path.name for path in (tmp_path / "hub").iterdir()} == {"README.md", "config.json", "model.safetensors"}
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith('---\nlicense: "cc-by-4.0"\nlibrary_name: icone\n')
    for part in (
        "## Data",
        "3 training samples",
        "## Training",
        "## Metrics",
        "Not measured",
        "## Citation",
        "@misc",
    ):
        assert part in card
    network = icone.pretrain(
        VOLUMES,
        encoder="resnet10_3d",
        width=0.125,
        size=16,
        weights=str(tmp_path / "hub"),
        out=tmp_path / "run",
        **QUICK,
    )
    assert network.record["weights"]["share"] == 1


def test_the_model_card_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for i, image in enumerate(IMAGES):
        Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / "data" / f"{i}.png")
    (tmp_path / "labels.csv").write_text("file,label\n0.png,a\n1.png,b\n")
    settings: dict[str, Any] = {"encoder": "test_resnet", "size": 32, "labels": tmp_path / "labels.csv", **QUICK}
    first = icone.pretrain(tmp_path / "data", out=tmp_path / "first", **settings)
    run = icone.pretrain(tmp_path / "data", weights=str(first.folder), out=tmp_path / "second", **settings)
    icone.export(run, "hub", tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert str(tmp_path) not in card
    assert "import timm\n" in card
    assert "Started from the run first;" in card
    assert "icone pretrain data " in card
    assert "--weights first" in card
    assert "--labels labels.csv" in card


def test_an_encoder_of_your_own_is_exported_too(tmp_path: Path) -> None:
    own = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    run = icone.pretrain(IMAGES, encoder=own, size=32, out=tmp_path / "run", **QUICK)
    icone.export(run, "hub", tmp_path / "hub", encoder=own)
    with pytest.raises(InputError, match="Python object"):
        icone.from_export(tmp_path / "hub")
    expected = icone.load_encoder(run, encoder=own)(IMAGES)
    torch.testing.assert_close(icone.from_export(tmp_path / "hub", encoder=own)(IMAGES), expected)
    with pytest.raises(InputError, match="names its network"):
        icone.export(run, "monai", tmp_path / "bundle", encoder=own)


def test_nnunet_finds_every_tensor_of_its_network(tmp_path: Path) -> None:
    unets = pytest.importorskip("dynamic_network_architectures.architectures.unet")
    run = icone.pretrain(VOLUMES, encoder="nnunet:ResEncL", width=0.125, size=16, out=tmp_path / "run", **QUICK)
    icone.export(run, "nnunet", tmp_path / "weights.pth")
    saved = torch.load(tmp_path / "weights.pth", weights_only=True)["network_weights"]
    plan = resenc_plan((16, 16, 16), 0.125)
    unet = unets.ResidualEncoderUNet(
        1, num_classes=5, n_conv_per_stage_decoder=[1] * (plan["n_stages"] - 1), deep_supervision=True, **plan
    )
    for name, tensor in unet.state_dict().items():  # what nnU-Net asserts before it loads
        if ".seg_layers." not in name:
            assert saved[name].shape == tensor.shape, name
    unet.load_state_dict({name: t for name, t in saved.items() if ".seg_layers." not in name}, strict=False)
    frozen = icone.load_encoder(run)
    x = torch.rand(1, 1, 16, 16, 16)
    torch.testing.assert_close(unet.encoder(x)[-1].mean((2, 3, 4)), frozen.encoder(x))
    torch.testing.assert_close(icone.from_export(tmp_path / "weights.pth")(VOLUMES), frozen(VOLUMES))


def test_an_encoder_goes_into_its_segmentation_network_whole_or_not_at_all(
    runs: dict[int, icone.Run], tmp_path: Path
) -> None:
    nets = pytest.importorskip("monai.networks.nets")
    run = icone.pretrain(VOLUMES, encoder="monai:SegResNet", width=0.25, size=16, out=tmp_path / "run", **QUICK)
    unet = nets.SegResNet(in_channels=1, out_channels=3, init_filters=8, blocks_down=(1, 2, 2, 4))
    frozen = icone.load_encoder(run)
    assert icone.load_unet(unet, run) == len(frozen.encoder.state_dict())
    x = torch.rand(1, 1, 16, 16, 16)
    torch.testing.assert_close(unet.encode(x)[0], frozen.encoder.forward_features(x))  # type: ignore[operator]
    other = nets.SegResNet(in_channels=1, out_channels=3, init_filters=16, blocks_down=(1, 2, 2, 4))
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(InputError, match="does not fit into SegResNet"):
        icone.load_unet(other, run)
    assert all(torch.equal(before[name], tensor) for name, tensor in other.state_dict().items())
    with pytest.raises(InputError, match=r"encoder of nnU-Net.*load_unet"):
        icone.export(runs[3], "nnunet", tmp_path / "weights.pth")


@pytest.mark.parametrize("kind", ["torch", "onnx"])
@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_a_fine_tuned_network_answers_as_predict_does(
    kind: Any, task: Any, runs: dict[int, icone.Run], tmp_path: Path
) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    images = RNG.integers(0, 255, (40, 3, 32, 32), dtype=np.uint8)
    several = ["a|b", "b", "a", "|"] * 10
    labels = {"classification": ["a", "b"] * 20, "multilabel": several, "regression": np.arange(40.0) * 3}
    tuned = icone.finetune(
        runs[2], images, labels=labels[task], task=task, epochs=1, val_fraction=0, test_fraction=0.5, scratch=False,
        lr=0.1, device="cpu", out=tmp_path / "tuned",
    )  # fmt: skip
    target = icone.export(icone.Run(tmp_path / "tuned"), kind)
    assert target == tmp_path / "tuned" / f"classifier-{kind}{EXPORTS[kind].suffix}"
    answers = tuned(images).numpy().reshape(len(images), -1)
    np.testing.assert_allclose(icone.from_export(target)(images).numpy(), answers, rtol=1e-4, atol=1e-4)
    said = json.loads(Path(f"{target}.json").read_text())["output"]
    names = [] if task == "regression" else ["a", "b"]
    kind_of_answer = "probabilities" if names else "numbers"
    assert said == {
        "kind": kind_of_answer, "axes": f"N, {kind_of_answer}", "shape": ["N", len(names) or 1], "task": task,
        "names": names,
    }  # fmt: skip
    with pytest.raises(InputError, match='exported as torch or onnx, got format="hub"'):
        icone.export(tuned, "hub", tmp_path / "hub")


def test_what_a_program_without_icone_has_to_do_is_said(runs: dict[int, icone.Run], tmp_path: Path) -> None:
    """Following the sentences gives the features of the run."""
    program = torch.export.load(icone.export(runs[3], "torch", tmp_path / "encoder.pt2")).module()
    said = json.loads((tmp_path / "encoder.pt2.json").read_text())["preparation_steps"]
    assert said[1] == "x = clip((x - low) / (high - low), 0, 1)"
    assert said[2].startswith("resample until the sample in millimetres fits into 16 x 16 x 16, edges rounded")
    assert said[3].endswith("(torch: interpolate with antialias=True)")
    assert said[4:] == ["pad with 0 to 16 x 16 x 16, centred; of an odd number of pixels one more is padded after"]
    found = re.fullmatch(r"low, high = \[(.*)\], \[(.*)\], for each channel", said[0])
    assert found is not None
    low, high = map(float, found.groups())
    x = np.clip((VOLUMES[:, :, 2:18] - low) / (high - low), 0, 1)  # of the size already: nothing to resample or pad
    expected = icone.load_encoder(runs[3])(VOLUMES[:, :, 2:18])
    torch.testing.assert_close(program(torch.from_numpy(x)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dims", [2, 3])
def test_the_axes_are_said_in_words(dims: int, runs: dict[int, icone.Run], tmp_path: Path) -> None:
    target = icone.export(runs[dims], "torch", tmp_path / "encoder.pt2")
    said = json.loads(Path(f"{target}.json").read_text())
    expected = {2: ("N, C, H, W", ["N", 3, 32, 32]), 3: ("N, C, D, H, W", ["N", 1, 16, 16, 16])}
    assert (said["input"]["axes"], said["input"]["shape"]) == expected[dims]
    assert list(said["input"]["meaning"]) == said["input"]["axes"].split(", ")
    assert said["input"]["meaning"]["C"] == {2: "red, green, blue", 3: "the only channel"}[dims]
    assert {2: "rows of an image", 3: "rows of DICOM"}[dims] in said["input"]["meaning"]["H"]
    features = icone.load_encoder(runs[dims]).num_features
    assert said["output"] == {"kind": "features", "axes": "N, features", "shape": ["N", features]}
    assert "num_features" not in said
    assert "is_rgb" not in said["preparation"]


@pytest.mark.parametrize("kind", ["torch", "hub"])
def test_exports_of_the_first_version_are_read(kind: Any, runs: dict[int, icone.Run], tmp_path: Path) -> None:
    target = icone.export(runs[2], kind, tmp_path / f"export{EXPORTS[kind].suffix or ''}")
    file = Path(f"{target}.json") if kind == "torch" else target / "config.json"
    content = json.loads(file.read_text())
    said = content if kind == "torch" else content["icone"]
    features = said.pop("output")["shape"][1]
    said |= {"version": 1, "num_features": features, "output": {"kind": "features"}, "input": "samples in [0, 1]"}
    said["preparation"]["is_rgb"] = True
    file.write_text(json.dumps(content))
    frozen = icone.from_export(target)
    torch.testing.assert_close(frozen(IMAGES), icone.load_encoder(runs[2])(IMAGES), atol=1e-5, rtol=1e-5)
    assert frozen.num_features == features
    said["version"] = 3
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="has the version 3 of descriptions: a newer icone reads it"):
        icone.from_export(target)


def test_what_cannot_be_is_refused(runs: dict[int, icone.Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.onnx"):
        icone.export(runs[2], "onnx", tmp_path / "encoder")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="there already"):
        icone.export(runs[2], "timm", tmp_path / "full")
    with pytest.raises(InputError, match="no export of icone"):
        icone.from_export(tmp_path / "full")
    with pytest.raises(InputError, match="format must be one of"):
        icone.export(runs[2], "tensorflow", tmp_path / "x")  # type: ignore[arg-type]
    icone.export(runs[2], "torch", tmp_path / "encoder.pt2")
    frozen = icone.from_export(tmp_path / "encoder.pt2")
    with pytest.raises(InputError, match="cannot be trained"):
        frozen.train()
    assert importlib.import_module("icone.api.export").export is icone.export
