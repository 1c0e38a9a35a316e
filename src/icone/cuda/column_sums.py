"""Sums over the rows of a matrix as a Triton kernel: the gradient of a bias."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

TILE_COLUMNS = 32
"""Columns that one program sums. PyTorch's programs have more, and take 8 to 18 µs for the few hundred rows of batch 1:
longer than the gradient of the weight takes."""
TILE_ROWS = 128
"""Rows that a program loads at a time."""
PROGRAM_ROWS = 1024
"""Rows that a program sums in all. Longer columns are summed in pieces, and then the pieces."""


def column_sums(matrix: Tensor) -> Tensor:
    """(rows, columns) -> (columns,) in float32."""
    rows, columns = matrix.shape
    matrix = matrix if matrix.stride(1) == 1 else matrix.contiguous()
    pieces = triton.cdiv(rows, PROGRAM_ROWS)
    sums = matrix.new_empty(pieces, columns, dtype=torch.float32)
    _column_sums[(triton.cdiv(columns, TILE_COLUMNS), pieces)](
        matrix,
        sums,
        rows,
        columns,
        matrix.stride(0),
        tile_rows=TILE_ROWS,
        tile_columns=TILE_COLUMNS,
        program_rows=PROGRAM_ROWS,
    )
    return sums[0] if pieces == 1 else column_sums(sums)


@triton.jit  # type: ignore[untyped-decorator]
def _column_sums(  # type: ignore[no-untyped-def]
    matrix, sums, rows, columns, stride, tile_rows: tl.constexpr, tile_columns: tl.constexpr, program_rows: tl.constexpr
):
    begin = tl.program_id(1) * program_rows
    end = tl.minimum(begin + program_rows, rows)
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)
    inside = column < columns
    total = tl.zeros((tile_rows, tile_columns), tl.float32)
    for first in range(begin, end, tile_rows):
        row = first + tl.arange(0, tile_rows)
        at = matrix + row[:, None] * stride + column[None, :]
        total += tl.load(at, (row < end)[:, None] & inside[None, :], 0.0).to(tl.float32)
    tl.store(sums + tl.program_id(1) * columns + column, tl.sum(total, 0), inside)
