"""The attractive terms against the printed double sums, in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from icone.errors import InputError
from icone.nn.losses import anchor_alignment, view_consistency


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.dot(a, b) / torch.sqrt(torch.dot(a, a) * torch.dot(b, b))


def printed_view_consistency(z: Tensor) -> Tensor:
    b, v, _ = z.shape
    pairs = [1 - cosine(z[i, m], z[i, n]) for i in range(b) for m, n in itertools.combinations(range(v), 2)]
    return torch.stack(pairs).sum() * 2 / (v * (v - 1)) / b


def printed_anchor_alignment(z: Tensor, anchors: Tensor) -> Tensor:
    b, v, _ = z.shape
    return torch.stack([1 - cosine(z[i, j], anchors[i]) for i in range(b) for j in range(v)]).sum() / (b * v)


def random_case(b: int, v: int, d: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(b * 100 + v * 10 + d)
    z = torch.randn(b, v, d, generator=generator, dtype=torch.float64) * 7 + 0.5
    anchors = torch.randn(b, d, generator=generator, dtype=torch.float64) * 0.02
    return z.requires_grad_(), anchors.requires_grad_()


@pytest.mark.parametrize(("b", "v", "d"), [(1, 2, 3), (1, 5, 4), (3, 2, 2), (4, 7, 16)])
def test_view_consistency_is_the_printed_sum_over_pairs(b: int, v: int, d: int) -> None:
    z, _ = random_case(b, v, d)
    loss, expected = view_consistency(z), printed_view_consistency(z)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(expected, z))


@pytest.mark.parametrize(("b", "v", "d"), [(1, 2, 3), (1, 5, 4), (3, 2, 2), (4, 7, 16)])
def test_anchor_alignment_is_the_printed_sum_and_reaches_views_and_anchors(b: int, v: int, d: int) -> None:
    z, anchors = random_case(b, v, d)
    loss, expected = anchor_alignment(z, anchors), printed_anchor_alignment(z, anchors)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, (z, anchors))
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, (z, anchors)))
    assert all(bool(g.abs().sum() > 0) for g in gradients)


def test_opposite_equal_and_orthogonal_views() -> None:
    x = torch.tensor([2.0, 0.0, 0.0])
    y = torch.tensor([0.0, 9.0, 0.0])
    assert view_consistency(torch.stack([x, -3 * x])[None]).item() == pytest.approx(2)
    assert view_consistency(torch.stack([x, 5 * x])[None]).item() == 0
    assert view_consistency(torch.stack([x, y, -x])[None]).item() == pytest.approx((1 + 2 + 1) / 3)
    assert anchor_alignment(torch.stack([x, -x])[None], 4 * x[None]).item() == pytest.approx(1)


def test_each_instance_meets_its_own_anchor_only() -> None:
    z = torch.eye(3)[:, None].repeat(1, 2, 1)
    assert anchor_alignment(z, torch.eye(3)).item() == pytest.approx(0)
    assert anchor_alignment(z, torch.eye(3).roll(1, dims=0)).item() == pytest.approx(1)


def test_nearly_equal_views_keep_their_digits() -> None:
    """1 − cosine of an angle of 1e-4 is 5e-9: the difference of two float32 numbers near 1 would be 0."""
    angle = torch.tensor(1e-4)
    z = torch.stack([torch.tensor([1.0, 0.0]), torch.stack([angle.cos(), angle.sin()])])[None]
    assert view_consistency(z).item() == pytest.approx(5e-9, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_compared_in_float32(dtype: torch.dtype) -> None:
    z = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    anchors = z[:, 0].float()
    torch.testing.assert_close(view_consistency(z), view_consistency(z.float()))
    torch.testing.assert_close(anchor_alignment(z, anchors), anchor_alignment(z.float(), anchors))


def test_autocast_changes_nothing() -> None:
    z = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    plain = view_consistency(z), anchor_alignment(z, z[:, 0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = view_consistency(z), anchor_alignment(z, z[:, 0])
    torch.testing.assert_close(inside, plain)


def test_one_view_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 of each instance, got 1"):
        view_consistency(torch.ones(3, 1, 4))
    with pytest.raises(InputError, match=r"\(B, V, d\), got \(3, 4\)"):
        view_consistency(torch.ones(3, 4))
    with pytest.raises(InputError, match="one anchor per instance"):
        anchor_alignment(torch.ones(3, 2, 4), torch.ones(1, 4))
