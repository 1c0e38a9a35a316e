"""Weights of others in our encoders: compared with what timm and MONAI make of the same file."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from icone.encoders import build_encoder
from icone.encoders.pretrained import adapt_channels, adapt_positions, put_weights
from icone.encoders.regions import layer_depths
from icone.errors import InputError


@pytest.mark.parametrize(("name", "size", "channels"), [("test_vit", 64, 1), ("test_resnet", 64, 5)])
@torch.no_grad()
def test_other_sizes_and_channels_are_those_of_timm(name: str, size: int, channels: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained = timm.create_model(name, num_classes=10)
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    settings: dict[str, Any] = {"img_size": size} if name == "test_vit" else {}
    overlay = {"file": str(tmp_path / "weights.pth"), "num_classes": 10}
    theirs = timm.create_model(
        name, pretrained=True, pretrained_cfg_overlay=overlay, in_chans=channels, num_classes=0, **settings
    ).eval()
    torch.manual_seed(1)
    ours = build_encoder(name, spatial_dims=2, in_channels=channels, size=size).eval()
    found = put_weights(ours, {"state_dict": trained.state_dict()}, origin="a file", in_channels=channels)
    x = torch.randn(2, channels, size, size)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-4)
    assert len(found.adapted) == (2 if name == "test_vit" else 1)
    assert not found.new
    assert found.share == 1
    assert {unused.partition(".")[0] for unused in found.unused} <= {"head", "fc"}


@torch.no_grad()
def test_weights_of_medicalnet_have_our_names() -> None:
    """Its files hold MONAI's network without the last layer, below `state_dict` and `module.`."""
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(0)
    settings: dict[str, Any] = {"n_input_channels": 1, "shortcut_type": "B", "bias_downsample": False}
    theirs = nets.resnet10(spatial_dims=3, conv1_t_stride=2, feed_forward=False, widen_factor=0.125, **settings).eval()
    content = {"epoch": 3, "state_dict": {f"module.{name}": t for name, t in theirs.state_dict().items()}}
    ours: Any = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=32, width=0.125).eval()
    found = put_weights(ours, content, origin="MedicalNet", in_channels=1)
    assert set(found.new) == {"fc.weight", "fc.bias"}
    x = torch.randn(1, 1, 32, 32, 32)
    torch.testing.assert_close(ours.forward_features(x).mean((2, 3, 4)), theirs(x), atol=1e-5, rtol=1e-4)


def test_the_sum_over_equal_channels_stays() -> None:
    weight = torch.randn(4, 3, 7, 7)
    gray = torch.randn(1, 1, 16, 16)
    for channels in (1, 2, 3, 4, 7):
        adapted = adapt_channels(weight[:, :1].expand(-1, 3, -1, -1), channels)
        seen = F.conv2d(gray.expand(-1, channels, -1, -1), adapted)
        torch.testing.assert_close(seen, 3 * F.conv2d(gray, weight[:, :1]), atol=1e-4, rtol=1e-4)


def test_position_embeddings_of_volumes_are_resampled_on_their_grid() -> None:
    grid = torch.linspace(0, 1, 4)
    plane = grid[:, None, None] + torch.zeros(4, 4, 4)  # rises along the first axis
    embedding = torch.cat([torch.full((1, 1, 1), 9.0), plane.reshape(1, 64, 1)], 1)
    found = adapt_positions(embedding, prefix=1, grid=(8, 2, 4))
    assert found is not None
    assert found[0, 0, 0] == 9
    expected = F.interpolate(grid[None, None], size=8, mode="linear")[0, 0]
    torch.testing.assert_close(found[0, 1:, 0].reshape(8, 2, 4), expected[:, None, None].expand(8, 2, 4))
    assert adapt_positions(torch.zeros(1, 60, 1), prefix=0, grid=(2, 2, 2)) is None


def test_a_teacher_is_taken_before_its_student_and_other_shapes_are_left() -> None:
    network: Any = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    student, teacher = ({"0.weight": torch.full((4, 3), v), "1.weight": torch.ones(5, 4)} for v in (1.0, 2.0))
    before = network[1].weight.clone()
    found = put_weights(network, {"student": {"net": student}, "teacher": {"net": teacher}}, origin="x", in_channels=3)
    assert (network[0].weight == 2).all()
    assert torch.equal(network[1].weight, before)
    assert found.new["1.weight"] == "5×4 in the weights, 2×4 in the encoder"
    assert found.share == pytest.approx(12 / 26)
    facts = found.facts()
    assert "46% of the encoder" in facts["weights loaded"]


def test_what_does_not_fit_at_all_is_refused() -> None:
    with pytest.raises(InputError, match=r"nothing in x fits.*names are some.thing, and.*weight, bias"):
        put_weights(nn.Linear(2, 2), {"some": {"thing": torch.ones(2)}}, origin="x", in_channels=2)
    with pytest.raises(InputError, match="weight is not finite"):
        put_weights(nn.Linear(2, 2), {"weight": torch.full((2, 2), torch.nan)}, origin="x", in_channels=2)


def test_a_few_numbers_that_fit_by_chance_are_refused() -> None:
    """The counters and biases of a network of another width have the shapes of ours."""
    narrow, wide = (
        build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=16, width=w) for w in (0.125, 0.25)
    )
    before = {name: tensor.clone() for name, tensor in wide.state_dict().items()}
    with pytest.raises(InputError, match=r"only 0\.\d% of the encoder fits x \(conv1\.weight: 8×1×.*width="):
        put_weights(wide, narrow.state_dict(), origin="x", in_channels=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in wide.state_dict().items())


@pytest.mark.parametrize("release", ["model_swinvit", "ssl_pretrained_weights", "whole network"])
def test_released_weights_of_swinunetr_find_their_places(release: str) -> None:
    """The names are those that MONAI's `SwinUNETR.load_from` and `filter_swinunetr` turn into its own."""
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(0)
    network = nets.SwinUNETR(in_channels=1, out_channels=2, feature_size=12)
    part = network.swinViT.state_dict()
    content: dict[str, Any] = network.state_dict()
    if release == "model_swinvit":
        named = {f"module.{name.replace('mlp.linear', 'mlp.fc')}": tensor for name, tensor in part.items()}
        content = {"state_dict": named | {"module.rotation_head.weight": torch.ones(4, 4)}}
    elif release == "ssl_pretrained_weights":
        named = {re.sub(r"^(layers\d)\.0\.", r"\1.0.0.", name): tensor for name, tensor in part.items()}
        content = {"model": {f"encoder.{name}": tensor for name, tensor in named.items()}}
    torch.manual_seed(1)
    ours = build_encoder("monai:SwinUNETR", spatial_dims=3, in_channels=1, size=32, width=0.25)
    found = put_weights(ours, content, origin="x", in_channels=1)
    assert not found.new
    assert found.share == 1
    assert all(torch.equal(tensor, part[name.removeprefix("swinViT.")]) for name, tensor in ours.state_dict().items())


def test_the_table_names_what_is_not_used_in_whole_lines() -> None:
    content = {"weight": torch.ones(2, 2), "a_head_with_a_rather_long_name.weight": torch.ones(3)}
    found = put_weights(nn.Linear(2, 2), content, origin="[somewhere].pth", in_channels=2)
    console = Console(file=io.StringIO(), width=80)
    console.print(found.table())
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "weights from [somewhere].pth: 67% of the encoder\n" in printed
    assert "bias: not among the weights\n" in printed
    assert "not used of the weights: a_head_with_a_rather_long_name.weight\n" in printed


@pytest.mark.parametrize(("name", "dims"), [("test_vit", 2), ("test_resnet", 2), ("resnet10_3d", 3)])
def test_depths_rise_from_the_input(name: str, dims: int) -> None:
    network = build_encoder(name, spatial_dims=dims, in_channels=1, size=32, width=0.125)
    depths = layer_depths(network)
    assert depths.keys() == set(network.parameters())
    in_order = [depths[p] for p in network.parameters()]
    if name != "test_vit":  # its class token and positions come first, its norm last
        assert in_order == sorted(in_order)
    assert in_order[0] == 0
    assert len(set(in_order)) == max(in_order) + 1 > 2
    assert set(layer_depths(nn.Linear(2, 2)).values()) == {0}
