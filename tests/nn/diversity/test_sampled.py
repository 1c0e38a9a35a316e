"""The sampled orthogonality: unbiased in value and gradient."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity import affordable_orthogonality, orthogonality, sampled_orthogonality
from icone.nn.diversity.sampled import FEWEST_ROWS


def both(table: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.autograd.grad(loss, table)[0]


@pytest.mark.parametrize("normalisation", ["pair", "anchor"])
@pytest.mark.parametrize("block", [7, 1000])
def test_every_row_once_is_the_exact_term(
    normalisation: Literal["pair", "anchor"], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = torch.randn(40, 6, dtype=torch.float64).requires_grad_()
    monkeypatch.setattr(torch, "randint", lambda n, size, device: torch.randperm(n, device=device))
    estimate = sampled_orthogonality(table, normalisation=normalisation, rows=40, block=block)
    expected = orthogonality(table, normalisation=normalisation)
    for ours, exact in zip(both(table, estimate), both(table, expected), strict=True):
        torch.testing.assert_close(ours, exact)


def test_value_and_gradient_are_unbiased() -> None:
    """The mean of many estimates comes within four of its standard errors of the exact term, entry by entry."""
    torch.manual_seed(0)
    table = torch.randn(30, 4, dtype=torch.float64).requires_grad_()
    draws = [both(table, sampled_orthogonality(table, rows=8)) for _ in range(3000)]
    exact = both(table, orthogonality(table))
    for ours, expected in zip(zip(*draws, strict=True), exact, strict=True):
        stacked = torch.stack(ours)
        error = stacked.std(0) / len(stacked) ** 0.5
        assert ((stacked.mean(0) - expected).abs() <= 4.5 * error).all()


def test_a_drawn_row_is_pushed_no_harder_than_the_others() -> None:
    table = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    torch.manual_seed(1)
    drawn = torch.randint(2000, (20,))
    torch.manual_seed(1)
    lengths = both(table, sampled_orthogonality(table, rows=20))[1].norm(dim=1)
    assert lengths[drawn].mean() < 2 * lengths.mean()  # 13 times in the derivative of the drawn value


def test_bad_arguments_are_refused() -> None:
    for arguments in ({"rows": 0}, {"block": 0}, {"normalisation": "row"}):
        with pytest.raises(InputError):
            sampled_orthogonality(torch.randn(4, 2), **arguments)


def test_the_affordable_term_is_exact_as_long_as_it_fits_and_then_has_the_rows_that_fit() -> None:
    n, d = 2000, 16
    exact = affordable_orthogonality((n, d), 3 * n * n * d, normalisation="anchor")
    table = torch.randn(n, d)
    assert torch.equal(exact(table), orthogonality(table, normalisation="anchor"))
    sampled = affordable_orthogonality((n, d), 3 * n * n * d - 1, normalisation="anchor")
    assert sampled.func is sampled_orthogonality
    assert sampled.keywords == {"normalisation": "anchor", "rows": int(0.75 * n) - 1}
    slower = affordable_orthogonality((n, d), 3 * n * n * d - 1, sampled_share=0.1)
    assert slower.keywords["rows"] == int(0.075 * n) - 1
    assert affordable_orthogonality((n, d), 1.0).keywords["rows"] == FEWEST_ROWS
