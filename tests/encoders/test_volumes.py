"""Encoders of MONAI and nnU-Net: the maps of their own networks, their names, and the step contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from icone.encoders import build_encoder
from icone.encoders.feature_map import feature_map
from icone.encoders.pretrained import put_weights
from icone.encoders.regions import layer_depths
from icone.encoders.volumes import resenc_plan
from icone.errors import InputError, optional
from icone.methods import Setting, build_method
from icone.nn import convert_batch_norm

SMALL = {
    "monai:SwinUNETR": (32, 0.25),
    "monai:SegResNet": (16, 0.25),
    "monai:ViT": (32, 0.125),
    "monai:DenseNet121": (32, 0.125),
    "monai:MedNeXtB": (16, 1.0),
    "nnunet:ResEncL": (16, 0.125),
}
NAMES = pytest.mark.parametrize("name", SMALL)
OWN = {"nf_resnet10_3d": (16, 0.125)}
"""Needs no other package."""


def build(name: str, features: int | None = None) -> nn.Module:
    if name not in OWN:
        pytest.importorskip("dynamic_network_architectures" if name.startswith("nnunet") else "monai")
    size, width = (SMALL | OWN)[name]
    torch.manual_seed(0)
    return build_encoder(name, spatial_dims=3, in_channels=1, size=size, width=width, features=features)


def whole_network(name: str) -> tuple[nn.Module, str]:
    """The network of the library with the same settings, and the layer whose output is the encoder's map."""
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(1)
    settings: dict[str, Any] = {"in_channels": 1, "out_channels": 2}
    if name == "monai:SwinUNETR":
        return nets.SwinUNETR(feature_size=12, **settings), "swinViT"
    if name == "monai:SegResNet":
        return nets.SegResNet(init_filters=8, blocks_down=(1, 2, 2, 4), **settings), "down_layers.3"
    if name == "monai:ViT":
        return nets.ViT(1, (32,) * 3, 16, hidden_size=96, mlp_dim=384, num_heads=1), "norm"
    if name == "monai:DenseNet121":
        return nets.DenseNet121(3, init_features=8, growth_rate=4, **settings), "class_layers.relu"
    if name.startswith("monai:MedNeXt"):
        return getattr(nets, name.removeprefix("monai:"))(**settings), "bottleneck"
    unets = pytest.importorskip("dynamic_network_architectures.architectures.unet")
    plan = resenc_plan((16,) * 3, 0.125)
    return unets.ResidualEncoderUNet(1, num_classes=2, n_conv_per_stage_decoder=1, **plan), "encoder"


@NAMES
@torch.no_grad()
def test_weights_of_the_whole_network_give_its_feature_map(name: str) -> None:
    encoder = build(name).eval()
    network, layer = whole_network(name)
    network.eval()
    found = put_weights(encoder, network.state_dict(), origin="the whole network", in_channels=1)
    assert found.share == 1
    assert not found.adapted
    reached: list[Any] = []
    network.get_submodule(layer).register_forward_hook(lambda _, __, output: reached.append(output))
    size = SMALL[name][0]
    x = torch.randn(2, 1, size, size, size)
    if name == "monai:SwinUNETR":  # the whole network refuses so small a volume
        reached.append(network.swinViT(x, True))  # type: ignore[operator]
    else:
        network(x)
    expected = reached[0][-1] if isinstance(reached[0], list | tuple) else reached[0]
    if name == "monai:ViT":
        expected = expected.transpose(1, 2).reshape(2, 96, 2, 2, 2)
    torch.testing.assert_close(feature_map(encoder, x), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoder(x), expected.mean((2, 3, 4)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL | OWN)
def test_the_step_contract_holds(name: str, no_host_traffic: type[TorchDispatchMode]) -> None:
    encoder = convert_batch_norm(build(name, features=6), 1)
    method = build_method("icone", encoder, Setting(num_instances=3, batch_size=1), ["hidden=8", "out=4"])
    size = (SMALL | OWN)[name][0]
    views = torch.randn(1, 2, 1, size, size, size)
    index, label, progress = torch.tensor([1]), torch.tensor([-1]), torch.tensor(0.5)
    method(views, index, label, progress)  # buffers that are made once may be made here
    with no_host_traffic():
        loss: Tensor = method(views, index, label, progress)["loss"]
        loss.backward()
    assert loss.isfinite()
    unused = "cross_attn"  # MONAI's blocks have it, and a plain ViT does not call it
    reached = {name: p.grad for name, p in encoder.named_parameters() if unused not in name}
    assert [name for name, gradient in reached.items() if gradient is None or not gradient.isfinite().all()] == []


@NAMES
def test_depths_and_features(name: str) -> None:
    encoder = build(name, features=6)
    assert encoder.num_features == 6
    depths = layer_depths(encoder)
    assert depths.keys() == set(encoder.parameters())
    projection: Any = encoder.projection
    assert depths[projection.weight] == max(depths.values())
    assert depths[next(iter(encoder.parameters()))] in (0, max(depths.values()))
    assert min(depths.values()) == 0


def test_resenc_is_planned_as_nnunet_does() -> None:
    assert resenc_plan((128, 128, 128), 1.0)["strides"] == [[1, 1, 1]] + [[2, 2, 2]] * 5
    plan = resenc_plan((16, 64, 64), 1.0)
    assert plan["strides"] == [[1, 1, 1], [2, 2, 2], [2, 2, 2], [1, 2, 2], [1, 2, 2]]
    assert plan["features_per_stage"] == [32, 64, 128, 256, 320]


def test_sizes_and_widths_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="multiples of 32, got 48×48×48: size=64"):
        build_encoder("monai:SwinUNETR", spatial_dims=3, in_channels=1, size=48)
    pytest.importorskip("monai")
    with pytest.raises(InputError, match="needs a multiple of 12"):
        build_encoder("monai:SwinUNETR", spatial_dims=3, in_channels=1, size=32, width=0.125)
    with pytest.raises(InputError, match="did you mean monai:SegResNet"):
        build_encoder("monai:SegResnet", spatial_dims=3, in_channels=1, size=32)


def test_what_monai_misses_is_named() -> None:
    """MONAI raises an error of its own for what it imports late."""
    message = "monai:ViT needs the package einops: pip install 'icone\\[monai\\]'"
    with pytest.raises(InputError, match=message), optional("monai", "monai:ViT"):
        raise ImportError("from einops.layers.torch import Rearrange (No module named 'einops').")
    with pytest.raises(ImportError, match="half"), optional("monai", "monai:ViT"):
        raise ImportError("a package is there by half")
