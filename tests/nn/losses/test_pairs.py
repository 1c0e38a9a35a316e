"""Losses over pairs of views, against loops: SwAV, BYOL, DINO, VICReg, and the alignment to a class."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError
from icone.nn.losses import (
    bootstrap,
    class_alignment,
    covariance,
    invariance,
    moved_centre,
    self_distillation,
    sinkhorn,
    swapped_prediction,
    variance,
)

SHAPES = pytest.mark.parametrize(("batch", "views", "dim"), [(2, 2, 3), (6, 2, 5), (4, 3, 7), (5, 4, 2)])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ordered_pairs(views: int) -> list[tuple[int, int]]:
    return list(itertools.permutations(range(views), 2))


def test_sinkhorn_converges_to_even_use_of_the_prototypes() -> None:
    assigned = sinkhorn(random(12, 4), epsilon=0.5, iterations=300)
    torch.testing.assert_close(assigned.sum(dim=1), torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(assigned.sum(dim=0), torch.full((4,), 3.0, dtype=torch.float64))
    # It only rescales rows and columns of exp(scores/ε): ratios of ratios stay.
    raw = (random(12, 4) / 0.5).exp()
    torch.testing.assert_close(
        assigned[0, 0] * assigned[1, 1] / (assigned[0, 1] * assigned[1, 0]),
        raw[0, 0] * raw[1, 1] / (raw[0, 1] * raw[1, 0]),
    )


def test_sinkhorn_of_one_row_is_uniform() -> None:
    assert sinkhorn(random(1, 5)).tolist() == [[pytest.approx(0.2)] * 5]


def test_sinkhorn_survives_large_scores() -> None:
    assert sinkhorn(100 * random(3, 4).float().softmax(dim=1)).isfinite().all()


@SHAPES
def test_swapped_prediction_assigns_every_view_on_its_own(batch: int, views: int, dim: int) -> None:
    scores = random(batch, views, dim).tanh().requires_grad_()
    losses = []
    for s, t in ordered_pairs(views):
        assigned = sinkhorn(scores[:, s], 0.05, 3)
        losses.append(-(assigned * F.log_softmax(scores[:, t] / 0.1, dim=1)).sum(dim=1).mean())
    expected = torch.stack(losses).mean()
    value = swapped_prediction(scores)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (value, expected)]
    torch.testing.assert_close(*gradients)


@SHAPES
def test_bootstrap_adds_both_directions(batch: int, views: int, dim: int) -> None:
    prediction, target = random(batch, views, dim), random(batch, views, dim, seed=1)
    losses = [
        2 - 2 * F.cosine_similarity(prediction[:, s], target[:, t], dim=1).mean() for s, t in ordered_pairs(views)
    ]
    torch.testing.assert_close(bootstrap(prediction, target), 2 * torch.stack(losses).mean())


def test_bootstrap_leaves_the_target_alone() -> None:
    prediction, target = random(3, 2, 4).requires_grad_(), random(3, 2, 4, seed=1).requires_grad_()
    bootstrap(prediction, target).backward()
    assert prediction.grad is not None
    assert target.grad is None


@SHAPES
def test_self_distillation_skips_pairs_of_the_same_view(batch: int, views: int, dim: int) -> None:
    student, teacher, centre = random(batch, views, dim), random(batch, views, dim, seed=1), random(dim, seed=2)
    losses = []
    for i in range(batch):
        for s, t in ordered_pairs(views):
            p = ((teacher[i, s] - centre) / 0.04).softmax(dim=0)
            losses.append(-(p * (student[i, t] / 0.1).log_softmax(dim=0)).sum())
    value = self_distillation(student, teacher, centre, torch.tensor(0.04, dtype=torch.float64), 0.1)
    torch.testing.assert_close(value, torch.stack(losses).mean())


def test_the_centre_moves_a_tenth_of_the_way_to_the_mean() -> None:
    centre, teacher = random(4), random(3, 2, 4, seed=1)
    expected = 0.9 * centre + 0.1 * teacher.reshape(6, 4).mean(dim=0)
    torch.testing.assert_close(moved_centre(centre, teacher), expected)


@SHAPES
def test_vicreg_terms(batch: int, views: int, dim: int) -> None:
    z = 0.7 * random(batch, views, dim)
    differences = [(z[:, s] - z[:, t]).square().mean() for s, t in ordered_pairs(views)]
    torch.testing.assert_close(invariance(z), torch.stack(differences).mean())

    hinges, covariances = [], []
    for v in range(views):
        matrix = torch.cov(z[:, v].T).reshape(dim, dim)
        hinges.append(sum(max(0.0, 1 - float(matrix[i, i] + 1e-4) ** 0.5) for i in range(dim)) / dim)
        covariances.append(sum(float(matrix[i, j]) ** 2 for i, j in ordered_pairs(dim)) / dim)
    assert variance(z).item() == pytest.approx(sum(hinges) / views)  # halved over two views
    assert covariance(z).item() == pytest.approx(2 * sum(covariances) / views)  # added over two views


@pytest.mark.parametrize("term", [variance, covariance])
def test_vicreg_refuses_a_single_instance(term: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InputError, match="2 instances or more, got 1"):
        term(random(1, 2, 4))


def test_class_alignment_averages_over_the_anchors_of_the_class() -> None:
    z, anchors = random(3, 2, 5), random(7, 5, seed=1)
    label, anchor_labels = [2, 0, 2], [0, 2, 2, 1, 0, 2, 1]
    distances = []
    for i, own in enumerate(label):
        mates = [anchors[j] for j, other in enumerate(anchor_labels) if other == own]
        for view in z[i]:
            distances.append(1 - torch.stack([F.cosine_similarity(view, a, dim=0) for a in mates]).mean())
    value = class_alignment(z, anchors, torch.tensor(label), torch.tensor(anchor_labels))
    torch.testing.assert_close(value, torch.stack(distances).mean())
