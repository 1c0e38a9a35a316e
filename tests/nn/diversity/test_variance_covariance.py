"""`variance_covariance` against numpy's covariance matrix, and known tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity import DIVERSITY, variance_covariance


def random_table(n: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    table = torch.randn(n, d, generator=torch.Generator().manual_seed(n + d), dtype=torch.float64) * 0.02
    return table.to(dtype).requires_grad_()


def printed(table: Tensor) -> float:
    rows = table.detach().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    covariance = np.cov(rows, rowvar=False)  # unbiased
    d = covariance.shape[0]
    variance = sum(max(0.0, 1 - np.sqrt(covariance[j, j] + 1e-4)) for j in range(d))
    return float(variance + sum(covariance[i, j] ** 2 for i in range(d) for j in range(d) if i != j))


@pytest.mark.parametrize(("n", "d"), [(2, 2), (3, 8), (40, 5), (200, 16)])
def test_value_is_the_printed_equation(n: int, d: int) -> None:
    table = random_table(n, d)
    assert variance_covariance(table).item() == pytest.approx(printed(table), rel=1e-12)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(variance_covariance, (random_table(9, 4),))


def test_collapsed_table_pays_the_full_hinge_and_its_gradient_is_finite() -> None:
    table = torch.ones(10, 6, requires_grad=True)
    loss = variance_covariance(table)
    assert loss.item() == pytest.approx(6 * (1 - 0.01), rel=1e-6)
    assert torch.autograd.grad(loss, table)[0].isfinite().all()


def test_covariance_is_paid_for_both_orders_of_a_pair() -> None:
    """Unit rows on one diagonal line: variance and covariance are all equal, to c."""
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    table = signs[:, None] * torch.ones(4, 2, dtype=torch.float64)
    c = 0.5 * 4 / 3
    assert variance_covariance(table).item() == pytest.approx(2 * (1 - np.sqrt(c + 1e-4)) + 2 * c**2)


@pytest.mark.parametrize("function", DIVERSITY.values(), ids=DIVERSITY)
def test_one_anchor_gives_a_finite_value_and_gradient(function: Callable[..., Tensor]) -> None:
    table = random_table(1, 4)
    loss = function(table)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, table)[0].isfinite().all()


@pytest.mark.parametrize("function", DIVERSITY.values(), ids=DIVERSITY)
def test_float32_inside_autocast_and_for_half_precision_tables(function: Callable[..., Tensor]) -> None:
    table = random_table(64, 16, dtype=torch.float32)
    torch.manual_seed(0)
    plain = function(table)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = function(table)
    assert inside.dtype is torch.float32
    assert inside.item() == plain.item()
    assert function(table.detach().half()).dtype is torch.float32


@pytest.mark.parametrize("function", DIVERSITY.values(), ids=DIVERSITY)
def test_only_a_matrix_is_a_table(function: Callable[..., Tensor]) -> None:
    with pytest.raises(InputError, match=r"shape \(N, d\), got \(2, 3, 4\)"):
        function(torch.ones(2, 3, 4))
