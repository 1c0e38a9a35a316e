"""Losses of the baselines that need no batch, or a small one: against lightly where it has them, and against loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.nn import losses

lightly = pytest.importorskip("lightly.loss", reason="needs the extra icone[parity]")
lightly_models = pytest.importorskip("lightly.models.utils", reason="needs the extra icone[parity]")

SHAPES = pytest.mark.parametrize(("batch", "views", "dim"), [(2, 2, 3), (5, 2, 16), (4, 3, 8)])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def assert_same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True):
        assert mine.abs().max() > 1e-6
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize(("batch", "dim"), [(2, 3), (5, 16)])
def test_decoupled_contrast(batch: int, dim: int, temperature: float) -> None:
    z = random(batch, 2, dim)
    assert_same(losses.decoupled_contrast(z, temperature), lightly.DCLLoss(temperature)(z[:, 0], z[:, 1]), z)


def dynamic_by_hand(z: Tensor, average: Tensor, gamma: float, temperature: float) -> tuple[Tensor, Tensor]:
    """Value of the objective with the moved averages, as a function whose gradient is the printed estimator."""
    batch, views, _ = z.shape
    terms, moved = [], torch.zeros_like(average)
    for i in range(batch):
        for v in range(views):
            cosines = [
                F.cosine_similarity(z[i, v], z[k, w], dim=0) for k in range(batch) if k != i for w in range(views)
            ]
            g = torch.stack([((c - 1) / temperature).exp() for c in cosines]).mean()
            old = average[i, v].item()
            u = g.item() if old == 0 else (1 - gamma) * old + gamma * g.item()
            moved[i, v] = u
            others = [F.cosine_similarity(z[i, v], z[i, w], dim=0) for w in range(views) if w != v]
            terms.append(
                g / u - torch.stack(others).mean() / temperature + (math.log(u) + 1 / temperature - g.item() / u)
            )
    return torch.stack(terms).mean(), moved


@SHAPES
def test_dynamic_contrast(batch: int, views: int, dim: int) -> None:
    z, average = random(batch, views, dim), random(batch, views, seed=1).detach().abs()
    average[0] = 0  # never seen
    ours, moved = losses.dynamic_contrast(z, average, 0.7, 0.3)
    theirs, expected = dynamic_by_hand(z, average, 0.7, 0.3)
    assert_same(ours, theirs, z)
    torch.testing.assert_close(moved, expected)


def test_dynamic_contrast_that_remembers_nothing_is_the_decoupled_one() -> None:
    """With γ = 1 the denominator is that of the batch: the gradient of DCL, and its value but for log of a count."""
    z = random(5, 2, 8)
    ours, _ = losses.dynamic_contrast(z, torch.ones(5, 2, dtype=torch.float64), 1.0, 0.2)
    assert_same(ours, losses.decoupled_contrast(z, 0.2) - math.log(8), z)


@pytest.mark.parametrize("block", [1, 4, 100])
def test_memory_softmax_is_a_cross_entropy_over_all_instances(block: int) -> None:
    raw, index = random(6, 8), torch.tensor([3, 0, 10, 3, 7, 1])
    memory = F.normalize(random(11, 8, seed=1).detach(), dim=1)
    z = F.normalize(raw, dim=1)
    ours = losses.memory_softmax(z, index, memory, 0.07, block=block)
    assert_same(ours, F.cross_entropy(F.normalize(raw, dim=1) @ memory.T / 0.07, index), raw)


def test_memory_nce_is_the_printed_objective() -> None:
    raw, own = random(3, 4), F.normalize(random(3, 4, seed=1).detach(), dim=1)
    noise = F.normalize(random(3, 5, 4, seed=2).detach(), dim=2)
    z, total, n, m = F.normalize(raw, dim=1), 37.0, 20, 5
    terms = []
    for r in range(3):
        chance = lambda row, r=r: (z[r] @ row / 0.3).exp() / total  # noqa: E731
        h = [chance(row) / (chance(row) + m / n) for row in (own[r], *noise[r])]
        terms.append(-h[0].log() - torch.stack([(1 - x).log() for x in h[1:]]).sum())
    ours = losses.memory_nce(F.normalize(raw, dim=1), own, noise, torch.tensor(total, dtype=torch.float64), n, 0.3)
    assert_same(ours, torch.stack(terms).mean(), raw)


@SHAPES
def test_lejepa(batch: int, views: int, dim: int) -> None:
    """lightly's buffers are float32, and it asks for local views: those given twice change no mean."""
    z = random(batch, views, dim).detach().float().requires_grad_()
    stacked = z.transpose(0, 1)
    torch.manual_seed(3)
    ours = 0.95 * losses.mean_view_distance(z) + 0.05 * losses.sliced_gaussianity(z, directions=64)
    torch.manual_seed(3)
    theirs = lightly.LeJEPALoss(lambda_param=0.05, sigreg_num_vectors=64)(local_proj=stacked, global_proj=stacked)
    torch.testing.assert_close(ours, theirs)
    (mine,), (other,) = torch.autograd.grad(ours, z), torch.autograd.grad(theirs, z)
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_one_instance_is_drawn_to_the_origin_and_refused() -> None:
    """Why LeJEPA needs two: the statistic of a single point has its minimum at 0, whatever the direction."""
    from icone.nn.diversity.sigreg import epps_pulley

    points = torch.linspace(-3, 3, 61, dtype=torch.float64)
    values = torch.stack([epps_pulley(x.reshape(1, 1), 17, 3.0)[0] for x in points])
    assert points[values.argmin()].abs() < 1e-9
    pairs = torch.stack([epps_pulley(torch.stack([x, -x]).reshape(2, 1), 17, 3.0)[0] for x in points])
    assert points[pairs.argmin()].abs() > 0.5
    with pytest.raises(ValueError, match="2 instances"):
        losses.sliced_gaussianity(torch.zeros(1, 2, 3))


def test_masked_patches_against_a_loop() -> None:
    predicted, patches = random(2, 5, 12), random(2, 5, 12, seed=1).detach()
    masked = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(losses.normalise_patches(patches), lightly_models.normalize_mean_var(patches))
    terms = [(predicted[i, j] - patches[i, j]).square().mean() for i in range(2) for j in range(5) if masked[i, j]]
    assert_same(losses.masked_patch_error(predicted, patches, masked), torch.stack(terms).mean(), predicted)


def test_masked_voxels_against_a_selection() -> None:
    predicted, images = random(2, 3, 4, 4, 4), random(2, 3, 4, 4, 4, seed=1).detach()
    masked = torch.rand(2, 4, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.4
    each = [F.l1_loss(predicted[i][:, masked[i]], images[i][:, masked[i]]) for i in range(2)]
    assert_same(losses.masked_absolute_error(predicted, images, masked.double()), torch.stack(each).mean(), predicted)
