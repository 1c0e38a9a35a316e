"""The step: schedule, decay, accumulation, clipping, and figures without host synchronisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from icone.config import PretrainConfig
from icone.data import Batch
from icone.encoders import build_encoder
from icone.methods import Method, Setting, build_method
from icone.recipe import adamw_settings
from icone.training.step import Meter, TrainStep
from icone.views import Views

CPU = torch.device("cpu")


class Copies(Views):
    """Views that change nothing, so that steps can be compared."""

    def augment(self, images: Tensor) -> Tensor:
        return images

    def plain(self, images: Tensor) -> Tensor:
        return images


def make_step(options: tuple[str, ...] = (), total: int = 10, method: str = "icone", **settings: Any) -> TrainStep:
    torch.manual_seed(0)
    encoder = build_encoder(in_channels=3, spatial_dims=0, features=4)
    setting = Setting(num_instances=8, labels=torch.arange(8) % 2, num_classes=2)
    built = build_method(method, encoder, setting, options)
    return TrainStep(built, Copies(), PretrainConfig(**{"source": "none", "recipe": "paper", **settings}), total, CPU)


def batch(*index: int) -> Batch:
    images = torch.arange(24.0).reshape(8, 3).sin()
    chosen = torch.tensor(index)
    return Batch(images[chosen], chosen, chosen % 2)


def weights(method: Method) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in method.named_parameters()}


def test_learning_rate_follows_a_cosine_to_zero() -> None:
    step = make_step(lr=0.5, total=4)
    seen = []
    for _ in range(4):
        step([batch(0)])
        seen.append(step.optimizer.param_groups[0]["lr"].item())
    assert seen == pytest.approx([0.25 * (1 + math.cos(math.pi * i / 4)) for i in range(4)])


def test_an_epoch_is_the_same_at_any_batch_size() -> None:
    """Noise adds up as lr²·steps, and moments forget after as many instances; gradients that are summed count too."""
    one = adamw_settings(1e-3, 1)
    for batch_size, accumulate in ((4, 1), (64, 1), (8, 4)):
        other = adamw_settings(1e-3, batch_size * accumulate)
        size = batch_size * accumulate
        assert other.lr**2 / size == pytest.approx(one.lr**2)
        assert [(1 - beta) / size for beta in other.betas] == pytest.approx([1 - beta for beta in one.betas])
        assert other.eps**2 * size == pytest.approx(one.eps**2)
    assert adamw_settings(1e-4, 1024).betas[0] == 0  # nothing is left to forget
    step = make_step(lr=0.5, batch_size=4, recipe="icone")
    step([batch(0, 1, 2, 3)])
    group = step.optimizer.param_groups[0]
    assert (group["lr"].item(), group["betas"]) == (0.25, (0.975, 0.99975))


def test_adam_divides_an_anchor_s_gradient_by_no_less_than_it_usually_has() -> None:
    """So that an anchor whose instance was not seen yet hardly moves; in the paper's recipe it makes a whole step."""
    for recipe in ("icone", "paper"):
        step = make_step(("diversity_weight=0.001",), lr=0.01, weight_decay=0.0, recipe=recipe, batch_size=16)
        before = step.method.get_parameter("objective.anchors.weight").detach().clone()
        step([batch(1, 2)])
        moved = (step.method.get_parameter("objective.anchors.weight") - before).abs().max(dim=1).values
        unseen = moved[[0, 3, 4, 5, 6, 7]]
        assert (unseen < 0.5 * moved[[1, 2]].min()).all() if recipe == "icone" else (unseen > 0.0099).all()


def test_first_update_is_adamw_s() -> None:
    """After one step Adam moves every weight by lr·sign(gradient); decay shrinks it by lr·decay first."""
    step = make_step(lr=0.01, weight_decay=0.1)
    before = weights(step.method)
    step([batch(1, 2)])
    for name, p in step.method.named_parameters():
        assert p.grad is not None
        moved = p.grad.abs() > 1e-4  # where Adam's epsilon does not matter
        expected = before[name] * (1 - 0.01 * 0.1) - 0.01 * p.grad.sign()
        torch.testing.assert_close(p.detach()[moved], expected[moved], rtol=1e-3, atol=1e-4)


def test_anchors_can_be_spared_from_decay() -> None:
    """Without any gradient only decay moves a parameter."""
    silent = ("view_weight=0", "anchor_weight=0", "diversity_weight=0")
    for option, spared in (("decay_anchors=yes", False), ("decay_anchors=no", True)):
        step = make_step((*silent, option), lr=0.1, weight_decay=0.5)
        before = weights(step.method)["objective.anchors.weight"]
        step([batch(0)])
        after = weights(step.method)["objective.anchors.weight"]
        torch.testing.assert_close(after, before if spared else before * (1 - 0.05))


# Methods whose loss is a mean over instances; without BatchNorm, and with tables that a test can afford.
OF_INSTANCES = {
    "icone": ("out=0",),
    "moco": ("queue_size=16", "momentum=0.5"),
    "byol": ("hidden=8", "out=4", "head_norm=layer", "momentum=0.5"),
    "dino": ("hidden=8", "bottleneck=4", "outputs=8", "momentum=0.5", "centre_momentum=0.5"),
    "diet": (),
    "cross_entropy": (),
    "icone_class": (),
    "icone_instance": (),
}


@pytest.mark.parametrize("method", OF_INSTANCES)
def test_accumulated_batches_are_one_large_batch(method: str) -> None:
    """Every instance weighs the same, and moving copies, queues and centres move once per step."""
    whole, parts = (make_step(OF_INSTANCES[method], method=method, lr=1e-3, clip_gradient=1e3) for _ in range(2))
    for first, second in (((0, 1), (2,)), ((3,), (4, 5)), ((6, 7), (0,))):
        whole([batch(*first, *second)])
        parts([batch(*first), batch(*second)])
        found, expected = (step.method.state_dict() for step in (parts, whole))
        torch.testing.assert_close(found, expected)
        assert whole.meter.means() == pytest.approx(parts.meter.means())


def test_clipping_limits_the_gradient_norm() -> None:
    step = make_step(clip_gradient=1e-3)
    step([batch(0, 1)])
    norm = torch.stack([p.grad.norm() for p in step.method.parameters() if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


def test_a_step_reads_nothing_back(no_host_traffic: type[TorchDispatchMode]) -> None:
    step = make_step()
    step([batch(0)])
    following = [batch(1)]
    with no_host_traffic():
        step(following)


@pytest.mark.parametrize(
    "offence",
    [
        lambda: torch.ones(()).item(),
        lambda: torch.tensor([1.0]),
        lambda: torch.ones(2).nonzero(),
        lambda: torch.ones(2)[torch.tensor([True, False])],
        lambda: torch.ones(2).unique(),
    ],
)
def test_the_guard_sees_host_traffic(no_host_traffic: type[TorchDispatchMode], offence: Callable[[], object]) -> None:
    with pytest.raises(AssertionError), no_host_traffic():
        offence()


def test_the_first_bad_step_and_its_terms_are_kept() -> None:
    meter = Meter(CPU)
    for i, loss in enumerate([1.0, float("inf"), float("nan"), 2.0]):
        meter.add({"loss": torch.tensor(loss), "part": torch.tensor(float(i))}, 1, torch.tensor(i))
    assert int(meter.first_bad) == 1
    assert meter.bad()["part"] == 1.0


def test_means_weigh_a_short_batch_by_its_size() -> None:
    meter = Meter(CPU)
    meter.add({"loss": torch.tensor(1.0)}, 3, torch.tensor(0))
    meter.add({"loss": torch.tensor(5.0)}, 1, torch.tensor(1))
    assert meter.means() == {"loss": 2.0}
    copy = Meter(CPU)
    copy.load(meter.state())
    assert copy.means() == {"loss": 2.0}
    meter.reset()
    assert meter.means() == {"loss": 0.0}


def test_every_parameter_is_optimised_once() -> None:
    step = make_step(("decay_anchors=no",))
    held = [p for group in step.optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(step.method.parameters()))
    assert isinstance(step.method.encoder, nn.Module)
