"""The penalty on the size of activations: its gradient, however a step is cut into passes, and where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from icone.api.build import Given
from icone.api.training_parts import build_parts
from icone.config import PretrainConfig
from icone.data import load_data
from icone.encoders import build_encoder
from icone.methods import Setting, build_method
from icone.nn import ActivationPenalty, Recomputation, penalise_activations

WEIGHT = 0.3


def penalty(x: Tensor) -> Tensor:
    """As the docstring has it, by autograd."""
    return WEIGHT * x.flatten(1).square().mean(1).log().square().mean()


@pytest.mark.parametrize("shape", [(5, 7), (5, 3, 4), (5, 2, 3, 4, 2)])
def test_the_gradient_is_that_of_a_loss_with_the_penalty(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
    target = torch.randn(shape, dtype=torch.float64)
    (expected,) = torch.autograd.grad((x * target).sum() + penalty(x), x)
    layer = penalise_activations(ActivationPenalty(WEIGHT), rows=len(x))
    y = layer(x)
    torch.testing.assert_close(y, x)
    (y * target).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_passes_of_single_rows_add_up_to_the_gradient_of_all() -> None:
    torch.manual_seed(1)
    linear = nn.Linear(4, 3)
    network = nn.Sequential(linear, ActivationPenalty(WEIGHT))
    penalise_activations(network, rows=6)
    x = torch.randn(6, 4)
    gradients = []
    for passes in (x[None], x[:, None]):
        network.zero_grad()
        for part in passes:
            Recomputation(network, network)(part).square().sum().backward()
        assert linear.weight.grad is not None
        gradients.append(linear.weight.grad.clone())
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("rows", [None, 8])
def test_there_is_no_penalty_in_evaluation_nor_before_the_rows_of_a_step_are_known(rows: int | None) -> None:
    layer = ActivationPenalty(WEIGHT)
    if rows is not None:
        penalise_activations(layer, rows).eval()
    x = torch.full((2, 3), 9.0, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))


def test_a_row_that_has_no_part_in_the_loss_has_no_penalty() -> None:
    layer = penalise_activations(ActivationPenalty(WEIGHT), rows=2)
    x = torch.full((2, 3), 9.0, requires_grad=True)
    layer(x)[:1].sum().backward()
    assert x.grad is not None
    assert (x.grad[0] > 1).all()
    assert torch.equal(x.grad[1], torch.zeros(3))


def test_rows_of_zeros_have_a_finite_gradient() -> None:
    layer = penalise_activations(ActivationPenalty(WEIGHT), rows=1)
    x = torch.zeros(1, 3, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_keeps_the_type_of_the_activations(dtype: torch.dtype) -> None:
    layer = penalise_activations(ActivationPenalty(1.0), rows=2)
    x = torch.full((2, 3), 5.0, dtype=dtype, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert (x.grad > 1).all()


def test_activations_come_back_to_the_size_of_one_where_the_loss_leaves_their_size_alone() -> None:
    """A loss of directions: without a penalty the lengths stay where they are, or grow."""
    torch.manual_seed(2)
    x, target = torch.randn(32, 8), torch.randn(32, 16)

    def size_after(weight: float) -> float:
        torch.manual_seed(3)
        linear = nn.Linear(8, 16)
        network = nn.Sequential(linear, ActivationPenalty(weight))
        with torch.no_grad():
            linear.weight.mul_(100)
        penalise_activations(network, rows=len(x))
        optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
        for _ in range(600):
            optimizer.zero_grad()
            (1 - torch.cosine_similarity(network(x), target)).mean().backward()
            optimizer.step()
        return float(network(x).detach().square().mean())

    assert size_after(0.0) > 100
    assert size_after(0.1) == pytest.approx(1, abs=0.5)


def settings(**others: Any) -> PretrainConfig:
    tiny: dict[str, Any] = {"encoder": "nf_resnet10_3d", "width": 0.125, "features": 16, "size": 16, "probe_every": 0}
    return PretrainConfig(source="synthetic:shapes@16x12", batch_size=4, **tiny, **others)


@pytest.mark.parametrize(("others", "rows"), [({}, 8), ({"micro_batch": 1}, 8), ({"accumulate": 3, "views": 3}, 36)])
def test_a_run_tells_the_network_how_many_rows_a_step_has(others: dict[str, Any], rows: int) -> None:
    config = settings(**others)
    method = build_parts(config, load_data(config)).method
    assert [m.rows for m in method.encoder.modules() if isinstance(m, ActivationPenalty)] == [rows]


def test_a_method_that_is_built_already_is_told_too() -> None:
    config = settings()
    data = load_data(config)
    encoder = build_encoder("nf_resnet10_3d", in_channels=1, spatial_dims=3, size=16, width=0.125, features=16)
    setting = Setting(num_instances=len(data.train), batch_size=4)
    given = Given(method=build_method("simclr", encoder, setting, ["hidden=32"]))
    own = build_parts(config, data, given).method
    assert [m.rows for m in own.encoder.modules() if isinstance(m, ActivationPenalty)] == [8]
    assert [m.rows for m in encoder.modules() if isinstance(m, ActivationPenalty)] == [None]
