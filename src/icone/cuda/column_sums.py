"""Sums over the rows of a matrix: what a bias gets from a batch."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

WIDE = 32
"""Columns that one program sums. The library's have more, which takes them 8 to 18 µs for the few hundred rows of
batch 1: longer than the gradient of the weight."""
TALL = 128
"""Rows that it takes at a time."""
LONG = 1024
"""Rows that it takes in all; longer columns are summed in pieces, and then these."""


def column_sums(matrix: Tensor) -> Tensor:
    """(rows, columns) -> (columns,) in float32."""
    rows, columns = matrix.shape
    matrix = matrix if matrix.stride(1) == 1 else matrix.contiguous()
    pieces = triton.cdiv(rows, LONG)
    sums = matrix.new_empty(pieces, columns, dtype=torch.float32)
    _column_sums[(triton.cdiv(columns, WIDE), pieces)](
        matrix, sums, rows, columns, matrix.stride(0), tall=TALL, wide=WIDE, long=LONG
    )
    return sums[0] if pieces == 1 else column_sums(sums)


@triton.jit  # type: ignore[untyped-decorator]
def _column_sums(  # type: ignore[no-untyped-def]
    matrix, sums, rows, columns, stride, tall: tl.constexpr, wide: tl.constexpr, long: tl.constexpr
):
    begin = tl.program_id(1) * long
    end = tl.minimum(begin + long, rows)
    column = tl.program_id(0) * wide + tl.arange(0, wide)
    inside = column < columns
    total = tl.zeros((tall, wide), tl.float32)
    for first in range(begin, end, tall):
        row = first + tl.arange(0, tall)
        at = matrix + row[:, None] * stride + column[None, :]
        total += tl.load(at, (row < end)[:, None] & inside[None, :], 0.0).to(tl.float32)
    tl.store(sums + tl.program_id(1) * columns + column, tl.sum(total, 0), inside)
