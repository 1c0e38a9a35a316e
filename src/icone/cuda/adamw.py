"""AdamW for many tensors of any size as one Triton kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor, nn

BLOCK = 2048
"""Weights that one program updates. PyTorch's fused kernel takes 65,536 and leaves most of the GPU idle when the
parameters of one block of a network are updated on their own: 58 µs where the memory would allow 13."""
COLUMNS = 6


class KernelUpdate:
    """The update of a bucket of parameters: a table of addresses tells every program where its weights are.

    A captured step repeats addresses. Those of the gradients are known once the step is captured, so the table is
    filled after it, by `after_capture`.
    """

    def __init__(self, optimizer: torch.optim.AdamW, params: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        """`group` is the optimizer's group of these parameters."""
        self.optimizer, self.params, self.group = optimizer, params, group
        programs = sum(triton.cdiv(p.numel(), BLOCK) for p in params)
        self.table = torch.zeros(programs, COLUMNS, dtype=torch.int64, device=params[0].device)
        self.addresses: list[list[int]] = []

    def launch(self) -> None:
        """Update the parameters that have a gradient, on the current stream."""
        ready = [p for p in self.params if p.grad is not None]
        if not ready:
            return
        self.addresses = [row for p in ready for row in self._rows(p)]
        if not torch.cuda.is_current_stream_capturing():
            self.after_capture()
        torch._foreach_add_([self.optimizer.state[p]["step"] for p in ready], 1)
        beta1, beta2 = self.group["betas"]
        aligned = all(address % 16 == 0 for row in self.addresses for address in row[:4])
        _update[(len(self.addresses),)](
            self.table, self.group["lr"], self.group["weight_decay"], beta1, beta2, 1 - beta1, 1 - beta2,
            self.group["eps"],
            columns=COLUMNS, block=BLOCK, alignment=16 if aligned else 4,
        )  # fmt: skip

    def after_capture(self) -> None:
        """Copy the addresses of the last launch to the device."""
        if self.addresses:
            self.table[: len(self.addresses)].copy_(torch.tensor(self.addresses))

    def _rows(self, p: nn.Parameter) -> list[list[int]]:
        state = self.optimizer.state[p]
        tensors = (p, cast(Tensor, p.grad), state["exp_avg"], state["exp_avg_sq"])
        assert all(t.dtype == torch.float32 and _layout(t) == _layout(p) for t in tensors), "one layout for all"
        return [
            [*(t.data_ptr() + 4 * first for t in tensors), state["step"].data_ptr(), min(BLOCK, p.numel() - first)]
            for first in range(0, p.numel(), BLOCK)
        ]


def _layout(tensor: Tensor) -> list[int]:
    """The strides along axes longer than 1; those of other axes do not matter."""
    return [stride for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1]


@triton.jit  # type: ignore[untyped-decorator]
def _update(  # type: ignore[no-untyped-def]
    table, lr, decay, beta1, beta2, weight1, weight2, eps,
    columns: tl.constexpr, block: tl.constexpr, alignment: tl.constexpr,
):  # fmt: skip
    row = table + tl.program_id(0) * columns
    offset = tl.arange(0, block)
    mask = offset < tl.load(row + 5)
    p_at = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), alignment) + offset
    g_at = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), alignment) + offset
    m_at = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), alignment) + offset
    v_at = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(tl.float32)), alignment) + offset
    step = tl.load(tl.load(row + 4).to(tl.pointer_type(tl.float32)))
    learning_rate = tl.load(lr)
    g = tl.load(g_at, mask, 0.0)
    m = tl.load(m_at, mask, 0.0)
    m = m + weight1 * (g - m)
    v = beta2 * tl.load(v_at, mask, 0.0) + weight2 * g * g
    correction1 = 1 - tl.exp(step * tl.log(beta1))
    correction2 = 1 - tl.exp(step * tl.log(beta2))
    p = tl.load(p_at, mask, 0.0) * (1 - learning_rate * decay)
    p -= learning_rate / correction1 * m / (tl.sqrt(v) / tl.sqrt(correction2) + eps)
    tl.store(p_at, p, mask)
    tl.store(m_at, m, mask)
    tl.store(v_at, v, mask)
