"""BatchNorm statistics of untrained networks: the averages that training would find, and nothing else touched."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from icone.encoders.calibration import calibrate_batch_norm, calibration_rows, kept_statistics
from icone.nn import convert_batch_norm

BATCHES = [3 * torch.randn(12, 2, 8, 8, generator=torch.Generator().manual_seed(i)) + 5 for i in range(4)]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3),
        nn.Flatten(), nn.Linear(48, 5), nn.BatchNorm1d(5),
    )  # fmt: skip


def statistics(net: nn.Module) -> list[Tensor]:
    return [t.clone() for name, t in net.named_buffers() if name.endswith(("running_mean", "running_var"))]


def test_the_statistics_are_those_of_training_with_a_cumulative_average() -> None:
    ours, reference = network(), network()
    for module in reference.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None  # PyTorch's own cumulative average
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for batch in BATCHES:
        reference.train()(batch)
    calibrate_batch_norm(ours, BATCHES, ours)
    for mine, theirs in zip(statistics(ours), statistics(reference), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_every_kind_of_batch_norm_gets_the_same_statistics(batch_size: int) -> None:
    plain, averaged = network(), network()
    convert_batch_norm(averaged, batch_size, gradient_rows=32)
    assert type(averaged[1]) is not type(plain[1])
    for net in (plain, averaged):
        calibrate_batch_norm(net, BATCHES, net)
    for mine, theirs in zip(statistics(averaged), statistics(plain), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_nothing_but_running_statistics_is_touched_and_they_come_back_bit_for_bit() -> None:
    net = network()
    convert_batch_norm(net, 1)
    net.train()
    before = copy.deepcopy(net)
    state = torch.get_rng_state()
    with kept_statistics(net):
        calibrate_batch_norm(net, BATCHES, net)
        assert not torch.equal(statistics(net)[0], statistics(before)[0])
    for (name, mine), (_, theirs) in zip(net.named_buffers(), before.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), name
    assert net.training
    assert all(module.training for module in net.modules())
    assert not any(module._forward_pre_hooks for module in net.modules())
    assert torch.equal(torch.get_rng_state(), state)  # no dropout was drawn


def test_a_network_without_batch_norm_is_not_even_called() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.BatchNorm1d(3, track_running_stats=False))

    def encode(batch: Tensor) -> None:
        raise AssertionError("called")

    calibrate_batch_norm(net, BATCHES, encode)


def test_rows_are_drawn_once_and_never_alone() -> None:
    rows = calibration_rows(1000)
    assert [len(r) for r in rows] == [16] * 16
    assert len(torch.cat(rows).unique()) == 256
    assert all(torch.equal(a, b) for a, b in zip(rows, calibration_rows(1000), strict=True))
    assert [len(r) for r in calibration_rows(2)] == [2]
