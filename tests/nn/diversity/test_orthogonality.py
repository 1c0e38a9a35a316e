"""`orthogonality` against the printed double sum and autograd, in float64, and its bounds on memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from icone.errors import InputError
from icone.nn.diversity import orthogonality


def printed(table: Tensor, divisor: float | None = None, labels: Sequence[int] | None = None) -> Tensor:
    """The printed sum, one pair at a time; by default over the number of pairs that count."""
    rows = [row / row.norm() for row in table]
    n = len(rows)
    counted = [(i, j) for i in range(n) for j in range(n) if i != j and (labels is None or labels[i] != labels[j])]
    total = sum((torch.relu(rows[i] @ rows[j]) ** 2 for i, j in counted), start=table.new_zeros(()))
    return total / (len(counted) if divisor is None else divisor)


def random_table(n: int, d: int, scale: float = 0.02, dtype: torch.dtype = torch.float64) -> Tensor:
    table = torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64) * scale
    return table.to(dtype).requires_grad_()


@pytest.mark.parametrize("block", [1, 3, 4, 11, 12, 100])
def test_value_and_gradient_are_those_of_the_printed_sum(block: int) -> None:
    table = random_table(12, 4)
    loss, expected = orthogonality(table, block=block), printed(table)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, table), torch.autograd.grad(expected, table))


@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.parametrize("normalisation", ["pair", "anchor"])
def test_with_labels_only_pairs_of_different_classes_repel(
    block: int, normalisation: Literal["pair", "anchor"]
) -> None:
    table = random_table(10, 3)
    labels = [0, 2, 2, 0, 1, 0, 2, 2, -1, 0]
    loss = orthogonality(table, labels=torch.tensor(labels), normalisation=normalisation, block=block)
    expected = printed(table, divisor=10 if normalisation == "anchor" else None, labels=labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, table), torch.autograd.grad(expected, table))


def test_equal_labels_leave_nothing_to_repel_and_distinct_ones_change_nothing() -> None:
    table = random_table(6, 3)
    assert orthogonality(table, labels=torch.zeros(6, dtype=torch.long)).item() == 0
    torch.testing.assert_close(orthogonality(table, labels=torch.arange(6)), orthogonality(table))


def test_labels_may_be_a_column_of_a_larger_array() -> None:
    table, columns = random_table(6, 3), torch.tensor([[0, 9], [1, 9], [0, 9], [1, 9], [2, 9], [2, 9]])
    torch.testing.assert_close(
        orthogonality(table, labels=columns[:, 0]), orthogonality(table, labels=columns[:, 0].clone())
    )


def test_identical_anchors_give_exactly_one_so_the_diagonal_is_out_and_both_triangles_count() -> None:
    """All cosines are 1: a diagonal counted in, a division by N² or one triangle alone would miss 1."""
    table = torch.ones(7, 3, dtype=torch.float64)
    assert orthogonality(table, block=2).item() == pytest.approx(1, abs=1e-12)
    assert orthogonality(table, normalisation="anchor", block=2).item() == pytest.approx(6, abs=1e-12)


def test_orthogonal_and_opposite_anchors_give_zero() -> None:
    assert orthogonality(torch.cat([torch.eye(4), -torch.eye(4)])).item() == 0


def test_a_known_angle() -> None:
    table = torch.tensor([[1.0, 0.0], [math.cos(1.0), math.sin(1.0)]], dtype=torch.float64)
    assert orthogonality(table).item() == pytest.approx(math.cos(1.0) ** 2)


def test_length_of_anchors_does_not_matter_and_gradients_are_tangential() -> None:
    table = random_table(9, 4)
    lengths = torch.linspace(0.1, 50, 9, dtype=torch.float64)[:, None]
    torch.testing.assert_close(orthogonality(table * lengths), orthogonality(table))
    (gradient,) = torch.autograd.grad(orthogonality(table), table)
    torch.testing.assert_close((gradient * table).sum(dim=1), torch.zeros(9, dtype=torch.float64))


def test_every_anchor_is_pushed_not_only_those_of_a_batch() -> None:
    table = random_table(50, 4)
    (gradient,) = torch.autograd.grad(orthogonality(table, block=16), table)
    assert bool((gradient.abs().sum(dim=1) > 0).all())


def test_gradcheck_through_the_normalisation() -> None:
    table = random_table(8, 5, scale=1.0)
    cosines = torch.nn.functional.normalize(table.detach(), dim=1)
    assert (cosines @ cosines.T).abs().min() > 1e-4  # away from the kink of the hinge's derivative
    assert torch.autograd.gradcheck(lambda t: orthogonality(t, block=3), (table,))
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
    assert torch.autograd.gradcheck(lambda t: 3 * orthogonality(t, labels=labels, block=3), (table,))


def test_float32_gradient_agrees_with_float64_autograd() -> None:
    table = random_table(600, 64, dtype=torch.float32)
    (gradient,) = torch.autograd.grad(orthogonality(table, block=128), table)
    exact_table = table.detach().double().requires_grad_()
    unit = torch.nn.functional.normalize(exact_table, dim=1)
    off_diagonal = ~torch.eye(600, dtype=torch.bool)
    (exact,) = torch.autograd.grad((unit @ unit.T)[off_diagonal].relu().square().mean(), exact_table)
    assert (gradient - exact).norm() / exact.norm() < 1e-6


def test_one_anchor_has_nothing_to_repel() -> None:
    table = random_table(1, 4)
    loss = orthogonality(table)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, table)[0].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tables_are_computed_in_float32(dtype: torch.dtype) -> None:
    table = random_table(20, 6, scale=1.0, dtype=torch.float32).detach().to(dtype).requires_grad_()
    same = table.detach().float().requires_grad_()
    loss, expected = orthogonality(table), orthogonality(same)
    torch.testing.assert_close(loss, expected)
    gradient, exact = torch.autograd.grad(loss, table)[0], torch.autograd.grad(expected, same)[0]
    assert gradient.dtype is dtype
    torch.testing.assert_close(gradient, exact.to(dtype))


def test_autocast_does_not_reach_the_products() -> None:
    table = random_table(40, 16, dtype=torch.float32)
    plain = orthogonality(table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = orthogonality(table)
    assert inside.dtype is torch.float32
    assert inside.item() == plain.item()


def test_without_gradient_the_value_is_the_same() -> None:
    table = random_table(30, 8)
    with torch.no_grad():
        value = orthogonality(table, block=7)
    assert not value.requires_grad
    assert value.item() == orthogonality(table, block=7).item()


def test_a_second_derivative_raises() -> None:
    table = random_table(5, 3)
    (gradient,) = torch.autograd.grad(orthogonality(table), table, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(gradient.square().sum(), table)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any operation returned."""

    numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.numel = max(self.numel, *sizes, 0)
        return result


@pytest.mark.parametrize("labelled", [False, True])
def test_no_tensor_is_larger_than_a_block_of_rows(labelled: bool) -> None:
    n, d, block = 400, 8, 16
    table = random_table(n, d, dtype=torch.float32)
    labels = torch.arange(n) % 5 if labelled else None
    with LargestTensor() as largest:
        torch.autograd.grad(orthogonality(table, labels=labels, block=block), table)
    assert largest.numel == n * block  # and n·d is smaller


def test_descent_spreads_anchors() -> None:
    """Ten anchors in a narrow cone of 16 dimensions end with no positive cosine left."""
    generator = torch.Generator().manual_seed(0)
    table = (torch.ones(10, 16) + 0.1 * torch.randn(10, 16, generator=generator)).requires_grad_()
    optimizer = torch.optim.Adam([table], lr=0.05)
    for _ in range(300):
        (table.grad,) = torch.autograd.grad(orthogonality(table), table)
        optimizer.step()
    unit = torch.nn.functional.normalize(table.detach(), dim=1)
    assert (unit @ unit.T).fill_diagonal_(0).max() < 0.05


def test_bad_arguments_are_named() -> None:
    table = random_table(4, 2)
    with pytest.raises(InputError, match=r"shape \(N, d\), got \(4,\)"):
        orthogonality(torch.ones(4))
    with pytest.raises(InputError, match=r"got \(0, 2\)"):
        orthogonality(torch.ones(0, 2))
    with pytest.raises(InputError, match=r"shape \(4,\), got \(3,\)"):
        orthogonality(table, labels=torch.zeros(3))
    with pytest.raises(InputError, match="at least 1 row, got 0"):
        orthogonality(table, block=0)
    with pytest.raises(InputError, match="'pair' or 'anchor', got 'row'"):
        orthogonality(table, normalisation="row")  # type: ignore[arg-type]
