"""Attention over few tokens as two Triton kernels, which read and write queries, keys and values where they lie.

All layouts are those of the layers around: queries, keys and values come out of one linear layer side by side, and
the result of every head goes to its columns. Matrix products take the type of the input and add up in float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor


class AttentionTiling(NamedTuple):
    """How a kernel cuts the problem: tokens of a program, tokens that it meets at a time, warps, stages in flight."""

    rows: int
    others: int
    warps: int
    stages: int


FORWARD = AttentionTiling(64, 64, 4, 2)
BACKWARD = AttentionTiling(64, 64, 4, 2)
TILE_BYTES = 2**13
"""Of queries, keys or values at most: with larger tiles the sums of the backward pass no longer fit into registers."""
LOG2E = tl.constexpr(math.log2(math.e))
"""Exponentials are taken to base 2, which is what the hardware computes."""


def attend(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Result (B, N, heads·d), and log₂ Σ exp of the logits of every query (B·heads, N) in float32.

    qkv: (B, N, 3·heads·d), the queries of all heads, then their keys, then their values.
    """
    qkv = qkv.contiguous()
    batch, n, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    tiling = _fitting(FORWARD, width // heads, qkv.dtype)
    result = qkv.new_empty(batch, n, width)
    log_sums = qkv.new_empty(batch * heads, n, dtype=torch.float32)
    _attend[(triton.cdiv(n, tiling.rows), batch * heads)](
        qkv, result, log_sums, n, (width // heads) ** -0.5,
        heads=heads, head_dim=width // heads, rows=tiling.rows, others=tiling.others, precision=_precision(qkv.dtype),
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    return result, log_sums


def attend_backward(grad_output: Tensor, qkv: Tensor, result: Tensor, log_sums: Tensor, heads: int) -> Tensor:
    """Gradient of `qkv`, packed like it, from that of the result."""
    grad_output, qkv = grad_output.contiguous(), qkv.contiguous()
    batch, n, width = result.shape
    tiling = _fitting(BACKWARD, width // heads, qkv.dtype)
    grad_qkv = torch.empty_like(qkv)
    _attend_backward[(2 * triton.cdiv(n, tiling.rows), batch * heads)](
        grad_output, qkv, result, log_sums, grad_qkv, n, (width // heads) ** -0.5,
        heads=heads, head_dim=width // heads, rows=tiling.rows, others=tiling.others, precision=_precision(qkv.dtype),
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    return grad_qkv


def _fitting(tiling: AttentionTiling, head_dim: int, dtype: torch.dtype) -> AttentionTiling:
    """The same for wider heads: fewer tokens at a time."""
    most = TILE_BYTES // (head_dim * dtype.itemsize)
    return tiling._replace(rows=min(tiling.rows, most), others=min(tiling.others, most))


def _precision(dtype: torch.dtype) -> str:
    """Of the products of float32 numbers, as the user allows it for the library's own."""
    return "ieee" if dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest" else "tf32"


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    qkv, result, log_sums, n, scale,
    heads: tl.constexpr, head_dim: tl.constexpr, rows: tl.constexpr, others: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The queries of one tile meet all keys; what has been added up is rescaled whenever a larger logit turns up."""
    width: tl.constexpr = heads * head_dim
    qkv += _start(n, heads, head_dim, 3)
    result += _start(n, heads, head_dim, 1)
    log_sums += tl.program_id(1) * n
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    query = _load(qkv, row, n, 3 * width, head_dim)
    largest = tl.full((rows,), float("-inf"), tl.float32)
    total = tl.zeros((rows,), tl.float32)
    mean_value = tl.zeros((rows, head_dim), tl.float32)
    for start in range(0, n, others):
        other = start + tl.arange(0, others)
        key = _load(qkv + width, other, n, 3 * width, head_dim)
        value = _load(qkv + 2 * width, other, n, 3 * width, head_dim)
        logits = _logits(query, key, other[None, :] < n, scale, precision)
        larger = tl.maximum(largest, tl.max(logits, 1))
        weights = tl.exp2(logits - larger[:, None])
        rescale = tl.exp2(largest - larger)
        total = total * rescale + tl.sum(weights, 1)
        mean_value = tl.dot(weights.to(value.dtype), value, mean_value * rescale[:, None], input_precision=precision)
        largest = larger
    _store(result, mean_value / total[:, None], row, n, width, head_dim)
    tl.store(log_sums + row, largest + tl.log2(total), row < n)


@triton.jit  # type: ignore[untyped-decorator]
def _attend_backward(  # type: ignore[no-untyped-def]
    grad_output, qkv, result, log_sums, grad_qkv, n, scale,
    heads: tl.constexpr, head_dim: tl.constexpr, rows: tl.constexpr, others: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """One half of the programs has a tile of keys and values each, the other a tile of queries.

    All weights are computed in both halves, and so every gradient is added up by one program, always in the same
    order. With few heads most of the GPU would otherwise be idle.
    """
    grad_output += _start(n, heads, head_dim, 1)
    qkv += _start(n, heads, head_dim, 3)
    result += _start(n, heads, head_dim, 1)
    log_sums += tl.program_id(1) * n
    grad_qkv += _start(n, heads, head_dim, 3)
    tile = tl.program_id(0)
    tiles = tl.num_programs(0) // 2
    if tile < tiles:
        _keys_and_values(
            grad_output, qkv, result, log_sums, grad_qkv, n, scale, tile * rows,
            heads, head_dim, rows, others, precision,
        )  # fmt: skip
    else:
        _queries(
            grad_output, qkv, result, log_sums, grad_qkv, n, scale, (tile - tiles) * rows,
            heads, head_dim, rows, others, precision,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _keys_and_values(  # type: ignore[no-untyped-def]
    grad_output, qkv, result, log_sums, grad_qkv, n, scale, first,
    heads: tl.constexpr, head_dim: tl.constexpr, rows: tl.constexpr, others: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of the keys and values from `first` on; queries that are not there have a gradient of 0."""
    width: tl.constexpr = heads * head_dim
    row = first + tl.arange(0, rows)
    key = _load(qkv + width, row, n, 3 * width, head_dim)
    value = _load(qkv + 2 * width, row, n, 3 * width, head_dim)
    grad_key = tl.zeros((rows, head_dim), tl.float32)
    grad_value = tl.zeros((rows, head_dim), tl.float32)
    for start in range(0, n, others):
        other = start + tl.arange(0, others)
        query = _load(qkv, other, n, 3 * width, head_dim)
        grad_rows = _load(grad_output, other, n, width, head_dim)
        mean = tl.sum(grad_rows.to(tl.float32) * _load(result, other, n, width, head_dim), 1)
        log_sum = tl.load(log_sums + other, other < n, 0.0)
        weights = tl.exp2(_logits(key, query, row[:, None] < n, scale, precision) - log_sum[None, :])
        grad_weights = tl.dot(value, grad_rows.T, input_precision=precision)
        grad_logits = weights * (grad_weights - mean[None, :])
        grad_value = tl.dot(weights.to(value.dtype), grad_rows, grad_value, input_precision=precision)
        grad_key = tl.dot(grad_logits.to(key.dtype), query, grad_key, input_precision=precision)
    _store(grad_qkv + width, grad_key * scale, row, n, 3 * width, head_dim)
    _store(grad_qkv + 2 * width, grad_value, row, n, 3 * width, head_dim)


@triton.jit  # type: ignore[untyped-decorator]
def _queries(  # type: ignore[no-untyped-def]
    grad_output, qkv, result, log_sums, grad_qkv, n, scale, first,
    heads: tl.constexpr, head_dim: tl.constexpr, rows: tl.constexpr, others: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of the queries from `first` on."""
    width: tl.constexpr = heads * head_dim
    row = first + tl.arange(0, rows)
    query = _load(qkv, row, n, 3 * width, head_dim)
    grad_rows = _load(grad_output, row, n, width, head_dim)
    mean = tl.sum(grad_rows.to(tl.float32) * _load(result, row, n, width, head_dim), 1)
    log_sum = tl.load(log_sums + row, row < n, 0.0)
    grad_query = tl.zeros((rows, head_dim), tl.float32)
    for start in range(0, n, others):
        other = start + tl.arange(0, others)
        key = _load(qkv + width, other, n, 3 * width, head_dim)
        value = _load(qkv + 2 * width, other, n, 3 * width, head_dim)
        weights = tl.exp2(_logits(query, key, other[None, :] < n, scale, precision) - log_sum[:, None])
        grad_weights = tl.dot(grad_rows, value.T, input_precision=precision)
        grad_logits = weights * (grad_weights - mean[:, None])
        grad_query = tl.dot(grad_logits.to(key.dtype), key, grad_query, input_precision=precision)
    _store(grad_qkv, grad_query * scale, row, n, 3 * width, head_dim)


@triton.jit  # type: ignore[untyped-decorator]
def _logits(mine, theirs, present, scale, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """To base 2. A key that is not there has no weight: its logit of 0 might exceed all others by far."""
    logits = tl.dot(mine, theirs.T, input_precision=precision) * (scale * LOG2E)
    return tl.where(present, logits, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def _start(n, heads: tl.constexpr, head_dim: tl.constexpr, parts: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the first token of this program's image and head is, in rows of `parts` times all heads."""
    image = (tl.program_id(1) // heads).to(tl.int64)
    return image * n * (parts * heads * head_dim) + tl.program_id(1) % heads * head_dim


@triton.jit  # type: ignore[untyped-decorator]
def _load(start, row, n, stride: tl.constexpr, head_dim: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of one head, zeros beyond the last one."""
    return tl.load(start + row[:, None] * stride + tl.arange(0, head_dim)[None, :], row[:, None] < n, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _store(start, values, row, n, stride: tl.constexpr, head_dim: tl.constexpr):  # type: ignore[no-untyped-def]
    at = start + row[:, None] * stride + tl.arange(0, head_dim)[None, :]
    tl.store(at, values.to(start.dtype.element_ty), row[:, None] < n)
