"""Contrastive losses against loops that follow the published formulas word by word."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from icone.nn.losses import info_nce, nt_xent, sup_con

SHAPES = pytest.mark.parametrize(("batch", "views", "dim"), [(2, 2, 3), (5, 2, 8), (4, 3, 6), (1, 3, 4)])


def random(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def looped_sup_con(z: Tensor, label: list[int], temperature: float) -> float:
    rows = [(z[i, v], label[i]) for i in range(z.shape[0]) for v in range(z.shape[1])]
    losses = []
    for i, (row, own) in enumerate(rows):
        others = [(other, c) for k, (other, c) in enumerate(rows) if k != i]
        denominator = sum(math.exp(cosine(row, other) / temperature) for other, _ in others)
        of_positives = [
            math.log(math.exp(cosine(row, other) / temperature) / denominator) for other, c in others if c == own
        ]
        losses.append(-sum(of_positives) / len(of_positives) if of_positives else 0.0)
    return sum(losses) / len(losses)


@SHAPES
def test_sup_con_is_the_mean_over_positives_of_log_probabilities(batch: int, views: int, dim: int) -> None:
    z, label = random(batch, views, dim), [i // 2 for i in range(batch)]
    assert sup_con(z, torch.tensor(label), 0.3).item() == pytest.approx(looped_sup_con(z, label, 0.3))


def test_sup_con_is_not_the_logarithm_of_a_sum() -> None:
    z, label = random(4, 2, 6), torch.tensor([0, 0, 0, 1])
    rows = torch.nn.functional.normalize(z.flatten(0, 1), dim=1)
    classes = label.repeat_interleave(2)
    weight = torch.exp(rows @ rows.T / 0.1) * (1 - torch.eye(8, dtype=torch.float64))
    log_of_sum = -(((weight * (classes[:, None] == classes)).sum(1) / weight.sum(1)).log()).mean()
    assert sup_con(z, label).item() > log_of_sum.item() + 0.1


def test_a_row_without_positives_contributes_nothing() -> None:
    """Single views of three classes, one of them alone: the mean runs over all five rows, the lone one being 0."""
    z, label = random(5, 1, 4), [0, 0, 1, 1, 2]
    value = sup_con(z, torch.tensor(label), 0.5)
    assert value.item() == pytest.approx(looped_sup_con(z, label, 0.5))


@SHAPES
def test_nt_xent_has_the_other_views_as_positives(batch: int, views: int, dim: int) -> None:
    z = random(batch, views, dim)
    assert nt_xent(z, 0.5).item() == pytest.approx(looped_sup_con(z, list(range(batch)), 0.5))


@pytest.mark.parametrize("loss", [nt_xent, partial(sup_con, label=torch.tensor([3]))])
def test_one_instance_with_two_views_gives_exactly_nothing(loss: Callable[[Tensor], Tensor]) -> None:
    z = random(1, 2, 5).requires_grad_()
    value = loss(z)
    value.backward()
    assert value.item() == 0
    assert z.grad is not None
    assert z.grad.abs().max() == 0


def test_info_nce_is_a_cross_entropy_with_the_key_in_front() -> None:
    queries, keys, queue = random(3, 4), random(3, 4) + 1, torch.nn.functional.normalize(random(7, 4), dim=1)
    losses = []
    for q, k in zip(queries, keys, strict=True):
        own = math.exp(cosine(q, k) / 0.2)
        losses.append(-math.log(own / (own + sum(math.exp(cosine(q, n) / 0.2) for n in queue))))
    assert info_nce(queries, keys, queue, 0.2).item() == pytest.approx(sum(losses) / 3)
