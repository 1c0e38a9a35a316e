"""Sums over rows as a kernel, on a CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

column_sums = pytest.importorskip("icone.cuda.column_sums", reason="Triton comes with torch for CUDA").column_sums


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for machines without a GPU")
@pytest.mark.parametrize("shape", [(1, 1), (5, 33), (128, 32), (300, 100), (2100, 3)])
@pytest.mark.parametrize("turned", [False, True])
def test_sums_are_those_of_torch(shape: tuple[int, int], turned: bool) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape[::-1]).t() if turned else torch.randn(shape)
    torch.testing.assert_close(column_sums(matrix), matrix.sum(0))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(394, 384), (394, 1536), (2, 128), (5000, 1000)])
def test_sums_of_bfloat16_are_exact_to_float32(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, device="cuda").bfloat16()
    torch.testing.assert_close(column_sums(matrix), matrix.double().sum(0).float())
