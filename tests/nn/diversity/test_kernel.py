"""The Triton kernel of orthogonality, on a CPU by Triton's interpreter and on a GPU as it is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError
from icone.nn.diversity import orthogonality
from icone.nn.diversity.orthogonality import is_tested_torch

pytestmark = pytest.mark.skipif(not is_tested_torch(), reason="the kernel is used from torch 2.11 on")
kernel = pytest.importorskip("icone.nn.diversity.kernel", reason="Triton comes with torch for CUDA")
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for machines without a GPU")
TILING = kernel.Tiling(32, 16, 4, 1)


def brute_force(unit: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Σ relu(G)² over pairs that count, and relu(G) Ẽ, in float64."""
    unit = unit.double()
    positive = (unit @ unit.T).relu()
    same = torch.eye(len(unit), dtype=torch.bool) if labels is None else labels[:, None] == labels
    positive[same] = 0
    return positive.square().sum(), positive @ unit


# One chunk of columns, padded; three chunks; groups of chunks with others beside them; rows that fill no tile.
@pytest.mark.parametrize(("n", "d"), [(33, 64), (70, 384), (40, 640), (20, 1024), (1, 64)])
@pytest.mark.parametrize("classes", [0, 3])
@on_cpu
def test_kernel_against_brute_force(n: int, d: int, classes: int) -> None:
    torch.manual_seed(n)
    unit = F.normalize(torch.randn(n, d) + 0.3, dim=1)
    labels = torch.randint(classes, (n,)) if classes else None
    value, gradient = kernel.orthogonality_sums(unit, labels, tiling=TILING)
    expected_value, expected_gradient = brute_force(unit, labels)
    torch.testing.assert_close(value.double(), expected_value, rtol=1e-3, atol=1e-6)
    assert (gradient - expected_gradient).norm() <= 1e-3 * expected_gradient.norm() + 1e-9


@pytest.mark.parametrize("own", [(0, 24), (24, 47), (47, 70), (69, 70)])
@on_cpu
def test_rows_of_one_rank_against_all(own: tuple[int, int]) -> None:
    torch.manual_seed(0)
    unit = F.normalize(torch.randn(70, 64) + 0.3, dim=1)
    labels = torch.randint(3, (70,)) if own[0] else None
    value, gradient = kernel.orthogonality_sums(unit, labels, tiling=TILING, own=own)
    _, expected = brute_force(unit, labels)
    expected = expected[slice(*own)]
    assert (gradient - expected).norm() <= 1e-3 * expected.norm()
    torch.testing.assert_close(value.double(), (expected * unit[slice(*own)]).sum(), rtol=1e-3, atol=1e-6)


@on_cpu
def test_small_similarities_do_not_underflow() -> None:
    """Nearly orthogonal anchors: without the scale, half precision would lose what is left of their cosines."""
    unit = F.normalize(torch.eye(64) + 1e-5 * torch.randn(64, 64), dim=1)
    _, gradient = kernel.orthogonality_sums(unit, None, tiling=TILING)
    _, expected = brute_force(unit, None)
    assert (gradient - expected).norm() < 0.02 * expected.norm()


def test_reduced_precision_is_refused_where_there_is_no_kernel() -> None:
    with pytest.raises(InputError, match="float32 tables on CUDA"):
        orthogonality(torch.randn(8, 4), precision="tf32")
    with pytest.raises(InputError, match="precision must be"):
        orthogonality(torch.randn(8, 4), precision="half")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("normalisation", ["pair", "anchor"])
@pytest.mark.parametrize(("n", "d"), [(1000, 64), (2049, 384), (1500, 512), (700, 1024)])
@pytest.mark.parametrize("classes", [0, 7])
def test_gpu_kernel_is_as_accurate_as_tf32(n: int, d: int, classes: int, normalisation: str) -> None:
    table = torch.randn(n, d, device="cuda", requires_grad=True)
    labels = torch.randint(classes, (n,), device="cuda") if classes else None

    def gradient(t: Tensor, precision: str) -> Tensor:
        loss = orthogonality(t, normalisation=normalisation, labels=labels, precision=precision)  # type: ignore[arg-type]
        return torch.autograd.grad(loss, t)[0]

    exact = gradient(table.detach().double().requires_grad_(), "full")
    torch.set_float32_matmul_precision("high")
    tf32 = (gradient(table, "full") - exact).norm()
    torch.set_float32_matmul_precision("highest")
    assert (gradient(table, "tf32") - exact).norm() <= 1.1 * tf32


@pytest.mark.gpu
def test_gpu_bfloat16_keeps_fewer_digits() -> None:
    """Not on a CPU: Triton's interpreter multiplies the bits of bfloat16 numbers as if they were integers."""
    unit = F.normalize(torch.randn(600, 384), dim=1)
    _, expected = brute_force(unit, None)
    errors = [
        float((kernel.orthogonality_sums(unit.cuda(), None, dtype)[1].cpu() - expected).norm() / expected.norm())
        for dtype in (torch.float16, torch.bfloat16)
    ]
    assert errors[0] < 5e-4
    assert 4 * errors[0] < errors[1] < 4e-3
