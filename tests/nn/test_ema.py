"""Moving copies: all parameters at once, as a loop over them would move them, without waiting for the device."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from icone.encoders import build_encoder
from icone.nn.ema import ema_copy, ema_update

MOMENTA = pytest.mark.parametrize("momentum", [0.0, 0.99, 1.0, torch.tensor(0.996)], ids=str)


def network_and_copy() -> tuple[nn.Module, nn.Module]:
    """A network whose parameters have many shapes, and a copy that has fallen behind."""
    torch.manual_seed(0)
    leader = build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=16, width=0.125, features=16)
    follower = ema_copy(leader)
    with torch.no_grad():
        for parameter in leader.parameters():
            parameter.add_(torch.randn_like(parameter))
    return leader, follower


@MOMENTA
def test_follows_like_a_loop_over_the_parameters(momentum: float | Tensor) -> None:
    leader, follower = network_and_copy()
    expected = [
        momentum * slow.double() + (1 - momentum) * fast.double()
        for slow, fast in zip(follower.parameters(), leader.parameters(), strict=True)
    ]
    led = [fast.clone() for fast in leader.parameters()]
    ema_update(follower, leader, momentum)
    for moved, wanted in zip(follower.parameters(), expected, strict=True):
        torch.testing.assert_close(moved.double(), wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(list(leader.parameters()), led, rtol=0, atol=0)


def test_equal_networks_stay_equal_to_the_last_bit() -> None:
    leader, _ = network_and_copy()
    follower = ema_copy(leader)
    ema_update(follower, leader, torch.tensor(0.9))
    torch.testing.assert_close(list(follower.parameters()), list(leader.parameters()), rtol=0, atol=0)


def test_a_scheduled_momentum_is_never_read_back(no_host_traffic: type[TorchDispatchMode]) -> None:
    leader, follower = network_and_copy()
    momentum = torch.tensor(0.996)
    with no_host_traffic():
        ema_update(follower, leader, momentum)


def test_another_network_is_refused() -> None:
    leader, follower = network_and_copy()
    with pytest.raises(RuntimeError, match="same number"):
        ema_update(follower, nn.Sequential(leader, nn.Linear(1, 1)), 0.9)


def test_a_copy_shares_nothing_and_takes_no_gradient() -> None:
    leader, follower = network_and_copy()
    assert not {p.data_ptr() for p in leader.parameters()} & {p.data_ptr() for p in follower.parameters()}
    assert not any(p.requires_grad for p in follower.parameters())
