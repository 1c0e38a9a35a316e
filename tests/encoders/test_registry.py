"""Encoders by name: shapes, channels, and sentences for what cannot work."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from icone.config import PretrainConfig
from icone.config_text import from_json, to_json
from icone.encoders import adopt_encoder, build_encoder, check_batch_norm, forward_flops, num_features
from icone.encoders.layers import PatchConv2d, SmallMapConv3d, StemConv3d, fold_stem, halving_maximum
from icone.errors import InputError
from icone.nn import convert_batch_norm


@pytest.mark.parametrize(
    ("arguments", "features"),
    [
        ({"spatial_dims": 2, "in_channels": 3, "size": 64}, 384),
        ({"spatial_dims": 2, "in_channels": 1, "size": (32, 48)}, 384),
        ({"name": "resnet10t", "spatial_dims": 2, "in_channels": 5, "size": 50}, 512),
        ({"name": "resnet10t", "spatial_dims": 2, "in_channels": 3, "size": 32, "features": 24}, 24),
        ({"spatial_dims": 3, "in_channels": 2, "size": (16, 24, 32), "width": 0.125}, 512),
        (
            {
                "name": "resnet10_3d",
                "spatial_dims": 3,
                "in_channels": 1,
                "size": 28,
                "width": 0.125,
                "features": 9,
            },
            9,
        ),
        ({"spatial_dims": 0, "in_channels": 2, "features": 2}, 2),
    ],
)
def test_encoder_maps_a_batch_to_features(arguments: dict[str, Any], features: int) -> None:
    encoder = build_encoder(**arguments)
    size, dims = arguments.get("size", ()), arguments["spatial_dims"]
    shape = (size,) * dims if isinstance(size, int) else size
    assert num_features(encoder) == features
    assert encoder(torch.randn(2, arguments["in_channels"], *shape)).shape == (2, features)
    assert encoder.training


@pytest.mark.parametrize(
    "name",
    ["mobilenetv3_small_050", "lcnet_035", "efficientvit_b0", "efficientvit_m0", "xcit_nano_12_p8_224", "pvt_v2_b0"],
)
def test_the_number_of_features_of_timm_s_networks_is_that_of_their_output(name: str) -> None:
    size = 224 if name == "efficientvit_m0" else 64  # older versions of timm build it for one size
    encoder = build_encoder(name, in_channels=1, spatial_dims=2, size=size)
    assert encoder(torch.randn(2, 1, size, size)).shape == (2, num_features(encoder))
    assert encoder.num_features == num_features(encoder)


@pytest.mark.parametrize(("spatial_dims", "size"), [(2, ()), (3, ()), (3, (16, 16))])
def test_a_size_of_other_dimensions_is_refused(spatial_dims: int, size: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"needs their size \(one edge, or a tuple of [23]\): got size="):
        build_encoder(in_channels=1, spatial_dims=spatial_dims, size=size)


def test_the_paper_s_networks() -> None:
    vit: Any = build_encoder(spatial_dims=2, in_channels=3, size=224)
    assert (len(vit.blocks), vit.blocks[0].attn.num_heads, vit.patch_embed.patch_size) == (12, 6, (16, 16))
    volumes: Any = build_encoder(spatial_dims=3, in_channels=1, size=64)
    assert volumes.conv1.stride == (2, 2, 2)
    reached: list[torch.Size] = []
    volumes.layer4.register_forward_hook(lambda _, __, output: reached.append(output.shape))
    with torch.no_grad():
        volumes.eval()(torch.zeros(1, 1, 64, 64, 64))
    assert reached == [torch.Size((1, 512, 2, 2, 2))]


@pytest.mark.parametrize(
    ("norm", "kind"), [("batch", nn.BatchNorm3d), ("group", nn.GroupNorm), ("instance", nn.InstanceNorm3d)]
)
def test_norm_of_volume_networks(norm: str, kind: type[nn.Module]) -> None:
    encoder = build_encoder(spatial_dims=3, in_channels=1, size=64, norm=norm, width=0.125)
    norms = [m for m in encoder.modules() if isinstance(m, (nn.modules.batchnorm._NormBase, nn.GroupNorm))]
    assert norms
    assert all(isinstance(m, kind) and len(list(m.parameters())) == 2 for m in norms)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"name": "vit_smal_patch16_224", "spatial_dims": 2, "size": 64},
            "did you mean vit_small_patch16_224",
        ),
        ({"spatial_dims": 2, "size": 40}, "multiple of the patch"),
        ({"name": "resnet18_3d", "spatial_dims": 2, "size": 64}, "not for 2D"),
        ({"name": "resnet18", "spatial_dims": 3, "size": 64}, "did you mean resnet18_3d"),
        ({"spatial_dims": 3, "size": 12}, "12×12×12 does not survive"),
        ({"spatial_dims": 3, "size": 32, "norm": "layer"}, "unknown norm"),
        ({"spatial_dims": 3, "size": 32, "width": 0.1}, "multiple of 1/8"),
        (
            {"name": "resnet10_3d", "spatial_dims": 3, "size": (16, 24, 32), "norm": "instance"},
            r"norm=.*has one voxel.*size= above 32, or norm=.group",
        ),
        ({"name": "resnet18", "spatial_dims": 0}, "unknown encoder for points"),
        ({"spatial_dims": 1}, "spatial_dims"),
    ],
)
def test_what_cannot_work_is_said(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_encoder(**{"in_channels": 1, **arguments})


def test_batch_norm_over_the_tokens_of_a_sample_sees_them_all() -> None:
    tokens = nn.Sequential(nn.Conv2d(1, 8, 4, 4), nn.Flatten(0), nn.Unflatten(0, (-1, 8)))  # (tokens, 8)
    encoder = nn.Sequential(tokens, nn.BatchNorm1d(8))
    assert check_batch_norm(encoder, (1, 8, 8), rows=1) == 1
    with pytest.raises(InputError, match="2 values per channel"):
        check_batch_norm(encoder, (1, 4, 8), rows=1)


def test_instance_norm_of_two_voxels_works() -> None:
    encoder = build_encoder(
        "resnet10_3d", in_channels=1, spatial_dims=3, size=(16, 16, 33), norm="instance", width=0.125
    )
    assert encoder(torch.randn(1, 1, 16, 16, 33)).isfinite().all()


class WithHelper(nn.Module):
    """A network with BatchNorm that returns the features of a helper too, if it is asked to, while it trains."""

    def __init__(self, result: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.result = result
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> Any:
        features = self.layers(x).mean((2, 3))
        random.random()
        return self.result(features) if self.training else features


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda features: (features, features), "a tuple"),
        (lambda features: {"features": features}, "a dict"),
        (lambda features: features[:, :4], r"\(2, 4\)"),
    ],
)
def test_a_network_that_returns_something_else_while_it_trains_is_refused(result: Any, words: str) -> None:
    with pytest.raises(InputError, match=rf"WithHelper returns {words} .*in training mode.*\(2, 8\)"):
        adopt_encoder(WithHelper(result), in_channels=1, size=(16, 16))


def test_to_look_at_training_mode_changes_nothing() -> None:
    network = WithHelper(lambda features: features)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    states = torch.get_rng_state(), random.getstate()
    adopted = adopt_encoder(network, in_channels=1, size=(16, 16))
    assert torch.equal(torch.get_rng_state(), states[0])
    for one in (network, adopted):
        assert all(torch.equal(tensor, before[name]) for name, tensor in one.state_dict().items())
        assert one.training


def test_batch_norm_over_two_values_is_refused() -> None:
    encoder = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=28, width=0.125)
    with pytest.raises(InputError, match=r"layer4.* 2 values per channel"):
        check_batch_norm(encoder, (1, 28, 28, 28), rows=2)
    check_batch_norm(encoder, (1, 28, 28, 28), rows=4)
    assert encoder.training
    grouped = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=28, width=0.125, norm="group")
    check_batch_norm(grouped, (1, 28, 28, 28), rows=2)


def test_layers_of_ours_have_the_gradients_of_the_usual_ones() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 8, 4, 4).double()
    patches = PatchConv2d.of(plain)
    x = torch.randn(2, 3, 8, 12, dtype=torch.float64, requires_grad=True)
    gradients = [torch.autograd.grad(c(x).sin().sum(), [x, *plain.parameters()]) for c in (patches, plain)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)
    stem = StemConv3d(1, 4).double()
    volume = torch.randn(1, 1, 9, 8, 8, dtype=torch.float64, requires_grad=True)
    results = [fold_stem(volume, stem.weight, 1), stem(volume)]
    torch.testing.assert_close(results[0], results[1])
    for ours, theirs in zip(*(torch.autograd.grad(y.sin().sum(), [volume, stem.weight]) for y in results), strict=True):
        torch.testing.assert_close(ours, theirs)
    pooled = [halving_maximum(volume.relu()), nn.functional.max_pool3d(volume.relu(), 3, 2, 1)]
    ours, theirs = (torch.autograd.grad(y.sin().sum(), volume)[0] for y in pooled)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("edge", "stride"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (5, 2), (3, 1)])
def test_convolutions_of_small_maps_are_those_of_the_library(edge: int, stride: int) -> None:
    torch.manual_seed(0)
    plain = nn.Conv3d(3, 5, 3, stride, 1, bias=False).double()
    ours = SmallMapConv3d(3, 5, stride).double()
    ours.weight = plain.weight
    x = torch.randn(2, 3, edge, edge, edge, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ours(x), plain(x))
    gradients = [torch.autograd.grad(conv(x).sin().sum(), [x, plain.weight]) for conv in (ours, plain)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("converted", [False, True])
def test_volumes_keep_one_layout_through_the_network(converted: bool) -> None:
    """Layouts that meet in one operation made it five times slower."""
    encoder = build_encoder("resnet18_3d", spatial_dims=3, in_channels=1, size=64, width=0.125)
    if converted:
        convert_batch_norm(encoder, 1)
    layouts = {}
    for name, module in encoder.named_modules():
        module.register_forward_hook(lambda _, __, result, name=name: layouts.update({name: result}))
    encoder(torch.randn(2, 1, 64, 64, 64))
    maps = {name: result for name, result in layouts.items() if result.dim() == 5}
    assert "layer4.1.conv2" in maps
    plain = [name for name, y in maps.items() if not y.is_contiguous(memory_format=torch.channels_last_3d)]
    assert plain == []


def test_the_pool_of_a_single_volume_shows_its_layout() -> None:
    """Convolutions look at strides, and that of a batch of one may be anything: they must find channels last."""
    x = torch.rand(1, 4, 8, 8, 8).to(memory_format=torch.channels_last_3d)
    assert halving_maximum(x).stride() == (4 * 4**3, 1, 4 * 4**2, 4 * 4, 4)


@pytest.mark.parametrize("name", ["resnet18.a1_in1k", "vit_small_patch16_224.augreg_in21k", "resnet10t.nonsense"])
def test_a_name_of_trained_weights_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"names trained weights.*write {name.partition('.')[0]}$"):
        build_encoder(name, spatial_dims=2, in_channels=3, size=32)


def test_a_run_stored_under_such_a_name_can_still_be_opened() -> None:
    plain = to_json(PretrainConfig(source="scans")) | {"encoder": "resnet18.a1_in1k"}
    assert from_json(plain).encoder == "resnet18"


def test_flops_are_two_for_every_weight_and_place_it_is_used() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(8 * 36, 5, bias=False))
    assert forward_flops(network, (3, 6, 6)) == 2 * (8 * 27 * 36 + 8 * 36 * 5)
    volumes = build_encoder("resnet18_3d", in_channels=1, spatial_dims=3, size=64)
    assert 1e9 < forward_flops(volumes, (1, 64, 64, 64)) < 1e11
    assert next(volumes.parameters()).device.type == "cpu"


def test_a_network_that_looks_at_values_has_no_flops() -> None:
    class Looking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1) if x.sum().item() > 0 else -x.flatten(1)

    assert forward_flops(Looking(), (4,)) == 0
