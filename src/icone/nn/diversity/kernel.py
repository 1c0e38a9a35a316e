"""Orthogonality of all anchors and its gradient as one Triton kernel: the similarities are never written to memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

CHUNK = 128
"""Columns of the table that are multiplied at a time; narrower and uneven tables are padded with zeros."""
GROUP = 3
"""Chunks of the result that one program can accumulate in its registers; wider tables are done in groups of them."""
SCALE = 16.0
"""Unit rows are enlarged by this before they are rounded to half precision, so that small entries and small
similarities (times 256) stay normal numbers. A power of two: it changes no digit of the others."""
SHARE = 3
"""One processor of the GPU in three works on a small table, while the encoder computes on the others. With all of them
it would end sooner, but the encoder would have to wait for it."""


class Tiling(NamedTuple):
    """How the kernel cuts the problem: rows of a program, rows that it meets at a time, warps, stages in flight."""

    rows: int
    others: int
    warps: int
    stages: int


TILING = Tiling(128, 32, 8, 3)


def orthogonality_sums(
    unit: Tensor,
    labels: Tensor | None = None,
    dtype: torch.dtype = torch.float16,
    tiling: Tiling = TILING,
    own: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_{i≠j} relu(G_ij)² and relu(G)_{i≠j} Ẽ, G = ẼẼᵀ, for unit rows (N, d) in float32.

    Both products take operands of 16 bits and accumulate in float32. float16 keeps 11 significant bits, as many
    as TF32, at twice its speed; bfloat16 keeps 8. With `labels` only pairs of different classes count. With `own`, the
    first row and the one after the last, both results are of these rows i only, against all rows j.

    The sum needs no pass of its own: relu(G)² = relu(G)·G, so it is the inner product of relu(G) Ẽ and Ẽ.
    """
    n, d = unit.shape
    groups = triton.cdiv(d, GROUP * CHUNK)
    grouped = triton.cdiv(d, groups * CHUNK)
    start, stop = own or (0, n)
    blocks = triton.cdiv(stop - start, tiling.rows)
    height = blocks * tiling.rows  # programs may read over the end of own rows, but not over that of the table
    whole_tiles = triton.cdiv(max(n, start + height), tiling.rows) * tiling.rows
    padding = (0, groups * grouped * CHUNK - d, 0, whole_tiles - n)
    table = torch.nn.functional.pad(unit * SCALE, padding).to(dtype)
    splits = _splits(unit, blocks * groups, len(table), tiling)
    stages = tiling.stages if groups == 1 else 2  # chunks of other groups come in too, and three would not fit
    gradient = torch.empty(splits, height, table.shape[1], device=unit.device)
    if labels is not None:
        labels = torch.nn.functional.pad(labels, (0, len(table) - n), value=-1)
    _orthogonality[(blocks, groups, splits)](
        table, gradient, labels, len(table), triton.cdiv(len(table) // tiling.others, splits) * tiling.others,
        start, height,
        chunks=groups * grouped, width=CHUNK, grouped=grouped, rows=tiling.rows, others=tiling.others,
        num_warps=tiling.warps, num_stages=stages,
    )  # fmt: skip
    whole = gradient[0] if splits == 1 else gradient.sum(0)
    result = whole[: stop - start, :d].mul_(SCALE**-3)
    return (result * table[start:stop, :d]).sum() / SCALE, result


def _splits(unit: Tensor, programs: int, rows: int, tiling: Tiling) -> int:
    """Parts into which the other rows are cut, so that a small table still fills its share of the GPU."""
    if not unit.is_cuda:
        return 2
    processors = torch.cuda.get_device_properties(unit.device).multi_processor_count
    return max(1, min(processors // SHARE // programs, rows // tiling.others))


@triton.jit  # type: ignore[untyped-decorator]
def _orthogonality(  # type: ignore[no-untyped-def]
    table, gradient, labels, count, part, start, height,
    chunks: tl.constexpr, width: tl.constexpr, grouped: tl.constexpr, rows: tl.constexpr, others: tl.constexpr,
):  # fmt: skip
    """One tile of relu(G) Ẽ, `grouped` chunks of columns wide, summed over one split of the rows, `part` of them."""
    depth: tl.constexpr = chunks * width
    local = tl.program_id(0) * rows + tl.arange(0, rows)
    row = start + local
    first = tl.program_id(1) * grouped
    begin = tl.program_id(2) * part
    column = tl.arange(0, width)
    mine = table + row[:, None] * depth + column[None, :]
    group = first * width
    # The chunks of this group, which serve both products, stay on the chip; without tuples of tensors in loops
    # they have names instead of numbers.
    mine_0 = tl.load(mine + group)
    sum_0 = tl.zeros((rows, width), tl.float32)
    if grouped > 1:
        mine_1 = tl.load(mine + group + width)
        sum_1 = tl.zeros((rows, width), tl.float32)
    if grouped > 2:
        mine_2 = tl.load(mine + group + 2 * width)
        sum_2 = tl.zeros((rows, width), tl.float32)
    if labels is not None:
        label = tl.load(labels + row)
    for position in range(begin, min(begin + part, count), others):
        other = position + tl.arange(0, others)
        theirs = table + other[:, None] * depth + column[None, :]
        theirs_0 = tl.load(theirs + group)
        similar = tl.dot(mine_0, theirs_0.T)
        if grouped > 1:
            theirs_1 = tl.load(theirs + group + width)
            similar = tl.dot(mine_1, theirs_1.T, similar)
        if grouped > 2:
            theirs_2 = tl.load(theirs + group + 2 * width)
            similar = tl.dot(mine_2, theirs_2.T, similar)
        if chunks > grouped:  # the chunks of the other groups serve the similarity alone
            for step in range(grouped, chunks):
                chunk = (first + step) % chunks * width
                similar = tl.dot(tl.load(mine + chunk), tl.load(theirs + chunk).T, similar)
        same = row[:, None] == other[None, :]
        if labels is not None:
            same = label[:, None] == tl.load(labels + other)[None, :]
        positive = tl.where(same, 0.0, tl.maximum(similar, 0.0)).to(table.dtype.element_ty)
        sum_0 = tl.dot(positive, theirs_0, sum_0)
        if grouped > 1:
            sum_1 = tl.dot(positive, theirs_1, sum_1)
        if grouped > 2:
            sum_2 = tl.dot(positive, theirs_2, sum_2)
    result = gradient + (tl.program_id(2) * height + local[:, None]).to(tl.int64) * depth + group + column[None, :]
    tl.store(result, sum_0)
    if grouped > 1:
        tl.store(result + width, sum_1)
    if grouped > 2:
        tl.store(result + 2 * width, sum_2)
