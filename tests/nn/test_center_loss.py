"""The loss that keeps features near their mean direction."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from icone.encoders import build_encoder
from icone.methods import Setting, build_method
from icone.methods.icone import IConE
from icone.nn import CenterLoss
from icone.nn.center_loss import CENTER_SAMPLES
from icone.nn.losses import center_distance


def test_the_distance_is_half_the_variance_of_directions_around_the_center() -> None:
    torch.manual_seed(0)
    center = torch.randn(16, dtype=torch.float64)
    spread = 1e-3 * torch.randn(50, 2, 16, dtype=torch.float64)
    z = 3 * (center + spread)
    across = spread - (spread @ center)[..., None] * center / center.square().sum()
    expected = across.square().sum(-1).mean() / (2 * center.square().sum())
    torch.testing.assert_close(center_distance(z, center), expected, rtol=1e-2, atol=0)


def test_the_center_is_the_mean_of_the_first_passes_and_then_a_moving_average() -> None:
    torch.manual_seed(0)
    loss, passes = CenterLoss(features=4, batch_size=64), torch.randn(20, 64, 2, 4)
    first = CENTER_SAMPLES // 64
    for z in passes[:first]:
        loss(z)
    mean = passes[:first].mean((0, 1, 2))
    torch.testing.assert_close(loss.center, mean)
    for z in passes[first:]:
        loss(z)
        mean = torch.lerp(mean, z.mean((0, 1)), 1 / first)
    torch.testing.assert_close(loss.center, mean)
    torch.testing.assert_close(loss.passes, torch.tensor(20.0))


def test_the_center_is_a_constant_and_a_later_pass_does_not_disturb_an_earlier_one() -> None:
    torch.manual_seed(0)
    loss = CenterLoss(features=4, batch_size=1)
    one, other = torch.randn(1, 2, 4, requires_grad=True), torch.randn(1, 2, 4, requires_grad=True)
    distance = loss(one)
    center = loss.center.clone()
    (distance + loss(other)).backward()
    (expected,) = torch.autograd.grad(1 - F.cosine_similarity(one, center.expand_as(one), dim=-1).mean(), one)
    torch.testing.assert_close(one.grad, expected)


def test_evaluation_leaves_the_center_where_it_is() -> None:
    loss = CenterLoss(features=3, batch_size=1)
    loss(torch.ones(1, 2, 3))
    loss.eval()
    loss(-torch.ones(1, 2, 3))
    torch.testing.assert_close(loss.center, torch.ones(3))


def method_with(weight: float, seed: int = 0) -> IConE:
    torch.manual_seed(seed)
    encoder = build_encoder(in_channels=2, spatial_dims=0, features=8)
    method = build_method("icone", encoder, Setting(num_instances=6, batch_size=2), [f"center_weight={weight}"])
    assert isinstance(method, IConE)
    return method.train()


def test_icone_adds_it_by_its_weight_and_obeys_the_step_contract(no_host_traffic: type[TorchDispatchMode]) -> None:
    views, index, none = torch.randn(2, 2, 2), torch.tensor([3, 1]), torch.tensor([-1, -1])
    plain, method = method_with(0.0), method_with(0.5)
    without = plain(views, index, none, torch.zeros(()))
    progress = torch.zeros(())
    with no_host_traffic():
        terms = method(views, index, none, progress)
    features = method.encode(views)
    mean = features.mean((0, 1))
    torch.testing.assert_close(terms["center_distance"], center_distance(features, mean).detach())
    torch.testing.assert_close(terms["loss"], without["loss"] + 0.5 * terms["center_distance"])
    assert "center_distance" not in without
    assert [name for name in method.state_dict() if name not in plain.state_dict()] == [
        "center.center", "center.passes",
    ]  # fmt: skip


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_features_spread_less_where_the_loss_leaves_their_spread_alone(weight: float) -> None:
    """Directions of centred features decide the task alone: how far they lie from their mean is free."""
    torch.manual_seed(1)
    target = F.normalize(torch.randn(32, 1, 8), dim=-1)
    z = (3 * torch.randn(8) + torch.randn(32, 1, 8)).requires_grad_()
    loss, optimizer = CenterLoss(features=8, batch_size=32), torch.optim.Adam([z], lr=0.01)
    before = center_distance(z, z.detach().mean((0, 1))).item()
    for _ in range(300):
        optimizer.zero_grad()
        centred = z - z.mean(0, keepdim=True)
        task = (1 - F.cosine_similarity(centred, target, dim=-1)).mean()
        (task + weight * loss(z)).backward()
        optimizer.step()
    assert task.item() < 0.1
    after = center_distance(z, z.detach().mean((0, 1))).item()
    assert (after < before / 2) == (weight > 0)
