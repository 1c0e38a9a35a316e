"""`sigreg` against numerical integrals of the printed statistic, closed forms, and autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.integrate import trapezoid
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity import sigreg

FloatArray = npt.NDArray[np.float64]


def random_table(n: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(n + d)
    table = torch.rand(n, d, generator=generator, dtype=torch.float64) ** 2 * 0.02 + 0.3
    return table.to(dtype).requires_grad_()


def statistic(z: FloatArray, knots: int, radius: float) -> float:
    """N ∫ |φ̂ − φ|² φ dt over [−R, R], with complex exponentials and both halves of the axis."""
    t = np.linspace(-radius, radius, 2 * knots - 1)
    empirical = np.exp(1j * np.outer(t, z)).mean(axis=1)
    normal = np.exp(-(t**2) / 2)
    return float(len(z) * trapezoid(np.abs(empirical - normal) ** 2 * normal, t))


def standardised(table: Tensor) -> FloatArray:
    x = table.detach().numpy()
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def unit_directions(d: int, number: int) -> FloatArray:
    """What `sigreg` draws from the default generator after the same seed."""
    random = torch.randn(d, number, dtype=torch.float64).numpy()
    return np.asarray(random / np.linalg.norm(random, axis=0))


@pytest.mark.parametrize(("knots", "radius"), [(17, 3.0), (5, 1.0), (2, 2.0)])
def test_value_is_the_mean_of_the_printed_integral_on_the_same_grid(knots: int, radius: float) -> None:
    table = random_table(30, 4)
    torch.manual_seed(1)
    loss = sigreg(table, directions=6, knots=knots, radius=radius)
    torch.manual_seed(1)
    projections = standardised(table) @ unit_directions(4, 6)
    expected = np.mean([statistic(z, knots, radius) for z in projections.T])
    assert loss.item() == pytest.approx(float(expected), rel=1e-10)


def test_seventeen_knots_are_close_to_the_true_integral() -> None:
    table = random_table(200, 3)
    torch.manual_seed(2)
    loss = sigreg(table, directions=8)
    torch.manual_seed(2)
    fine = np.mean([statistic(z, 2_001, 3.0) for z in (standardised(table) @ unit_directions(3, 8)).T])
    assert loss.item() == pytest.approx(float(fine), rel=0.01)


def test_two_points_on_a_line_have_a_closed_form() -> None:
    """In one dimension the standardised table is ±1 and the direction ±1, so φ̂(t) = cos t."""
    table = torch.tensor([[3.0], [5.0], [3.0], [5.0]], dtype=torch.float64)
    t = torch.linspace(0, 3, 17, dtype=torch.float64)
    normal = torch.exp(-t.square() / 2)
    expected = 4 * 2 * torch.trapezoid((t.cos() - normal).square() * normal, t)
    assert sigreg(table).item() == pytest.approx(expected.item(), rel=1e-12)


def test_a_constant_table_has_the_characteristic_function_of_a_point() -> None:
    t = torch.linspace(0, 3, 17, dtype=torch.float64)
    normal = torch.exp(-t.square() / 2)
    expected = 10 * 2 * torch.trapezoid((1 - normal).square() * normal, t)
    assert sigreg(torch.full((10, 3), 0.25, dtype=torch.float64)).item() == pytest.approx(expected.item())


def test_gradcheck_through_the_standardisation() -> None:
    def loss(table: Tensor) -> Tensor:
        torch.manual_seed(0)
        return sigreg(table, directions=3, knots=5)

    assert torch.autograd.gradcheck(loss, (random_table(7, 3),))


def test_scale_and_offset_of_a_dimension_do_not_matter() -> None:
    table = random_table(50, 3).detach()
    torch.manual_seed(0)
    plain = sigreg(table)
    torch.manual_seed(0)
    moved = sigreg(table * torch.tensor([100.0, 0.1, 3.0]) + torch.tensor([5.0, 0.0, -1.0]))
    assert moved.item() == pytest.approx(plain.item(), rel=1e-9)


def test_directions_are_drawn_anew_from_the_default_generator() -> None:
    table = random_table(50, 6)
    torch.manual_seed(0)
    first, second = sigreg(table, directions=4).item(), sigreg(table, directions=4).item()
    torch.manual_seed(0)
    assert sigreg(table, directions=4).item() == first
    assert first != second


def test_directions_cover_the_sphere_evenly() -> None:
    """Points along both axes of the plane: the mean over directions is an integral over angles."""
    table = torch.cat([torch.eye(2), -torch.eye(2)]).double()  # standardised: ±√2 along each axis
    angles = np.linspace(0, 2 * math.pi, 4001)[:-1]
    points = math.sqrt(2) * table.numpy()
    expected = np.mean([statistic(points @ np.array([math.cos(a), math.sin(a)]), 17, 3.0) for a in angles])
    torch.manual_seed(0)
    assert sigreg(table, directions=20_000).item() == pytest.approx(float(expected), rel=0.02)


def test_float32_agrees_with_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    directions = torch.randn(16, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(torch, "randn", lambda *shape, device, dtype: directions.to(dtype))
    exact, single = random_table(500, 16), random_table(500, 16, dtype=torch.float32)
    losses = sigreg(exact, directions=8), sigreg(single, directions=8)
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-4)
    gradients = torch.autograd.grad(losses[0], exact)[0], torch.autograd.grad(losses[1], single)[0]
    assert (gradients[1] - gradients[0]).norm() / gradients[0].norm() < 1e-4


def test_descent_turns_two_clusters_into_a_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(200, 2, generator=generator) * 0.1
    table[:100] += 1
    table.requires_grad_()
    torch.manual_seed(0)
    before = sigreg(table).item()
    optimizer = torch.optim.Adam([table], lr=0.02)
    for _ in range(150):
        (table.grad,) = torch.autograd.grad(sigreg(table, directions=16), table)
        optimizer.step()
    assert sigreg(table).item() < 0.1 * before


def test_a_second_derivative_raises() -> None:
    table = random_table(5, 3)
    (gradient,) = torch.autograd.grad(sigreg(table), table, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(gradient.square().sum(), table)


@pytest.mark.parametrize("wrong", [{"directions": 0}, {"knots": 1}, {"radius": 0.0}])
def test_impossible_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at least 1 direction, 2 knots and a positive radius"):
        sigreg(torch.ones(3, 2), **wrong)
