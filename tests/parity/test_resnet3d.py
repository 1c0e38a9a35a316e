"""Our 3D residual networks against MONAI's class: weights from the same seed, features and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from icone.encoders.resnet3d import VolumeResNet

monai = pytest.importorskip("monai.networks.nets.resnet", reason="needs the extra icone[parity]")


@pytest.mark.parametrize(
    ("name", "block", "depths", "width"),
    [
        ("resnet10_3d", "basic", [1, 1, 1, 1], 0.25),
        ("resnet18_3d", "basic", [2, 2, 2, 2], 0.125),
        ("resnet34_3d", "basic", [3, 4, 6, 3], 0.125),
        ("resnet50_3d", "bottleneck", [3, 4, 6, 3], 0.125),
    ],
)
def test_the_same_seed_gives_monai_s_network(name: str, block: str, depths: list[int], width: float) -> None:
    torch.manual_seed(3)
    ours: Any = VolumeResNet(name, in_channels=2, features=24, width=width)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    theirs = monai.ResNet(
        block,
        depths,
        monai.get_inplanes(),
        n_input_channels=2,
        conv1_t_size=7,
        conv1_t_stride=2,
        widen_factor=width,
        num_classes=24,
        bias_downsample=False,
    )
    assert torch.equal(after, torch.get_rng_state())
    weights, expected = ours.state_dict(), theirs.state_dict()
    assert list(weights) == list(expected)
    assert [type(m) for m in ours.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] == [
        type(m) for m in theirs.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
    ]
    for key, value in expected.items():
        assert torch.equal(weights[key], value), key
    ours.double(), theirs.double()
    x = torch.randn(2, 2, 32, 40, 33, dtype=torch.float64)
    features = [network(x) for network in (ours, theirs)]
    torch.testing.assert_close(features[0], features[1])
    for out in features:
        out.sin().sum().backward()
    for (key, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, msg=key)
