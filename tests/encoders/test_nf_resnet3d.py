"""Normalizer-free networks for volumes: their arithmetic, and that samples of a batch do not meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import icone
from icone.encoders import build_encoder, regions
from icone.encoders.nf_resnet3d import NFVolumeResNet, ScaledStdConv3d
from icone.errors import InputError

TINY: dict[str, Any] = {"in_channels": 1, "spatial_dims": 3, "size": 16, "width": 0.125}


@pytest.mark.parametrize("stride", [1, 2])
def test_weights_are_standardised_as_in_timm(stride: int) -> None:
    """The slice in the middle of a volume of three is timm's convolution of images with the slices as channels."""
    from timm.layers.std_conv import ScaledStdConv2d

    ours = ScaledStdConv3d(4, 6, 3, stride, gamma=1.7).double()
    theirs: Any = ScaledStdConv2d(12, 6, 3, stride, padding=1, bias=True, gamma=1.7, eps=1e-8).double()
    with torch.no_grad():
        ours.gain.uniform_(0.5, 2)
        ours.bias.normal_()  # type: ignore[union-attr]
        theirs.weight.copy_(ours.weight.flatten(1, 2))
        theirs.gain.copy_(ours.gain.view(-1, 1, 1, 1))
        theirs.bias.copy_(ours.bias)
    x = torch.randn(2, 4, 3, 9, 9, dtype=torch.float64)
    expected = theirs(x.flatten(1, 2))
    empty = torch.zeros_like(x[:, :, :1])
    found = ours(torch.cat([empty, x], 2))[:, :, 2 // stride]  # with a stride of 2 a kernel stands at even slices
    torch.testing.assert_close(found, expected)


def test_weights_are_standardised_alike_in_either_layout() -> None:
    """Channels last, as a GPU has them, and channels first, as a CPU has them: values and gradients."""
    first = ScaledStdConv3d(4, 6, 3).double()
    last = ScaledStdConv3d(4, 6, 3).double()
    last.load_state_dict(first.state_dict())
    last.to(memory_format=torch.channels_last_3d)
    assert first.weight.is_contiguous()
    assert not last.weight.is_contiguous()
    for conv in (first, last):
        (conv.standardised_weight() ** 3).sum().backward()
    torch.testing.assert_close(last.standardised_weight(), first.standardised_weight())
    for name in ("weight", "gain"):
        torch.testing.assert_close(getattr(last, name).grad, getattr(first, name).grad)


def test_a_convolution_keeps_the_variance_of_noise_whatever_its_weights_are() -> None:
    torch.manual_seed(0)
    conv = ScaledStdConv3d(32, 48, 3)
    with torch.no_grad():
        conv.weight.mul_(37).add_(5)
    inner = conv(torch.randn(8, 32, 12, 12, 12))[:, :, 1:-1, 1:-1, 1:-1]
    assert inner.var().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", ["nf_resnet10_3d", "nf_resnet18_3d", "nf_resnet34_3d", "nf_resnet50_3d"])
def test_a_sample_has_the_same_features_in_any_batch_in_training_and_in_evaluation(name: str) -> None:
    torch.manual_seed(1)
    network = build_encoder(name, **TINY, features=24).double()
    x = torch.rand(3, 1, 20, 17, 24, dtype=torch.float64)
    together = network(x)
    assert together.shape == (3, 24)
    assert network.num_features == 24
    torch.testing.assert_close(together, torch.cat([network(one[None]) for one in x]))
    torch.testing.assert_close(together, network.eval()(x))
    together.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_the_network_is_cut_into_the_same_parts_as_the_one_with_batchnorm() -> None:
    plain, free = (build_encoder(name, **TINY) for name in ("resnet18_3d", "nf_resnet18_3d"))
    assert [region.method for region in regions(free)] == [region.method for region in regions(plain)]
    assert isinstance(free, NFVolumeResNet)
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in free.modules())
    shape = (2, 1, 32, 32, 32)
    maps = [network.forward_features(torch.rand(shape)).shape for network in (plain, free)]  # type: ignore[operator]
    assert maps[0] == maps[1]


@pytest.mark.parametrize(
    ("settings", "said"), [({"size": 8}, "16 voxels or more"), ({"norm": "group"}, "no normalisation layers")]
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build_encoder("nf_resnet10_3d", **TINY | settings)


def test_micro_batches_of_one_have_the_losses_of_the_whole_batch(tmp_path: Path) -> None:
    """Up to rounding: nothing in the encoder depends on the other samples of a batch."""
    volumes = np.random.default_rng(0).random((6, 1, 16, 16, 16), dtype=np.float32)
    settings: dict[str, Any] = {
        "encoder": "nf_resnet10_3d", "width": 0.125, "features": 16, "size": 16, "epochs": 2, "batch_size": 3,
        "probe_every": 0, "options": {"hidden": 32, "out": 8, "start_at": "random"},
    }  # fmt: skip
    whole = icone.pretrain(volumes, **settings, out=tmp_path / "whole")
    parts = icone.pretrain(volumes, **settings, micro_batch=1, out=tmp_path / "parts")
    assert [row["loss"] for row in parts.history] == pytest.approx([row["loss"] for row in whole.history], rel=1e-4)
