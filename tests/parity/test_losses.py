"""Our losses against implementations that others wrote: values and gradients, in float64, for several shapes.

DINO, SwAV, VICReg, NT-Xent and BYOL's cosine come from lightly, SupCon and NT-Xent from pytorch-metric-learning.

Where those deviate from the method's paper:
- lightly leaves BYOL's symmetrisation and the constant to the caller, so here 2 + 2·(−cos) is added up twice.
- pytorch-metric-learning averages SupCon over the rows whose loss is not zero, and returns zero for a batch
  without any negative pair; the paper's sum runs over all rows. Both agree where every row has a positive and
  the batch holds two classes; the other cases are checked against loops in tests/losses.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from icone.nn import losses

lightly = pytest.importorskip("lightly.loss", reason="needs the extra icone[parity]")
metric_learning = pytest.importorskip("pytorch_metric_learning.losses", reason="needs the extra icone[parity]")

TWO_VIEWS = pytest.mark.parametrize(("batch", "dim"), [(2, 3), (5, 16), (16, 8)])
MANY_VIEWS = pytest.mark.parametrize(("batch", "views", "dim"), [(2, 2, 3), (5, 3, 16), (16, 4, 8)])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def assert_same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs.reshape(()))
    for mine, other in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs.sum(), inputs), strict=True):
        assert mine.abs().max() > 1e-6
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-10)


@TWO_VIEWS
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_nt_xent(batch: int, dim: int, temperature: float) -> None:
    z = random(batch, 2, dim)
    assert_same(losses.nt_xent(z, temperature), lightly.NTXentLoss(temperature)(z[:, 0], z[:, 1]), z)


@TWO_VIEWS
def test_nt_xent_of_metric_learning(batch: int, dim: int) -> None:
    z = random(batch, 2, dim)
    instances = torch.arange(batch).repeat_interleave(2)
    assert_same(losses.nt_xent(z, 0.5), metric_learning.NTXentLoss(0.5)(z.flatten(0, 1), instances), z)


@MANY_VIEWS
def test_sup_con(batch: int, views: int, dim: int) -> None:
    z, label = random(batch, views, dim), torch.arange(batch) % 2
    theirs = metric_learning.SupConLoss(0.1)(z.flatten(0, 1), label.repeat_interleave(views))
    assert_same(losses.sup_con(z, label, 0.1), theirs, z)


@TWO_VIEWS
def test_info_nce(batch: int, dim: int) -> None:
    """lightly's NT-Xent with a memory bank is MoCo's loss; the bank is given our queue."""
    query, key = random(batch, dim), random(batch, dim, seed=1)
    queue = torch.nn.functional.normalize(random(11, dim, seed=2).detach(), dim=1)
    loss = lightly.NTXentLoss(0.2, memory_bank_size=(11, dim))
    loss.memory_bank.bank = queue.clone()
    loss.memory_bank.bank_ptr = torch.zeros(1, dtype=torch.long)
    assert_same(losses.info_nce(query, key.detach(), queue, 0.2), loss(query, key.detach()), query)


@MANY_VIEWS
def test_swapped_prediction(batch: int, views: int, dim: int) -> None:
    scores = random(batch, views, dim).detach().tanh().requires_grad_()
    theirs = lightly.SwaVLoss(temperature=0.1)(list(scores.unbind(1)), [])
    assert_same(losses.swapped_prediction(scores), theirs, scores)


@TWO_VIEWS
def test_bootstrap(batch: int, dim: int) -> None:
    prediction, target = random(batch, 2, dim), random(batch, 2, dim, seed=1).detach()
    negative_cosine = lightly.NegativeCosineSimilarity()
    theirs = sum(2 + 2 * negative_cosine(prediction[:, s], target[:, 1 - s]) for s in (0, 1))
    assert_same(losses.bootstrap(prediction, target), theirs, prediction)


@TWO_VIEWS
def test_vicreg(batch: int, dim: int) -> None:
    z = random(batch, 2, dim)
    ours = 25 * losses.invariance(z) + 25 * losses.variance(z) + losses.covariance(z)
    assert_same(ours, lightly.VICRegLoss()(z[:, 0], z[:, 1]), z)


@MANY_VIEWS
def test_self_distillation_and_centre(batch: int, views: int, dim: int) -> None:
    student, teacher = random(batch, views, dim), random(batch, views, dim, seed=1).detach()
    theirs = lightly.DINOLoss(output_dim=dim, student_temp=0.1, center_momentum=0.9).double()
    centre = torch.zeros(dim, dtype=torch.float64)
    for _ in range(3):  # the centre of the first batches acts on the later ones
        expected = theirs(list(teacher.unbind(1)), list(student.unbind(1)), teacher_temp=0.05)
        assert_same(losses.self_distillation(student, teacher, centre, 0.05), expected, student)
        centre = losses.moved_centre(centre, teacher, 0.9)
        torch.testing.assert_close(centre, theirs.center.flatten())
