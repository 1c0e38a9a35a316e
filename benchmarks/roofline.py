"""What a training step must cost here, beside what it costs: operations, bytes, and the chain of its kernels.

    python benchmarks/roofline.py --out benchmarks/results/roofline.json

Ceilings are measured here: the largest matrix product in bfloat16, a copy of a gigabyte, and a chain of the smallest
kernels in one CUDA graph. Of every case of `benchmarks/step.py`: multiplications of one step at the first ceiling,
which no step can beat; bytes at the second (weights, gradients and moments once through AdamW, weights once in bfloat16
in each direction, and what the uncompiled backward pass needs of the forward pass, written and read once; a compiler
that computes some of it again moves less); the number of kernels in the captured step at the third, as if none of them
ran beside another.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from icone.training.context import RunContext
from icone.training.engine import EagerEngine, Engine
from step import CASES, CPU_CASES, Case, RandomSamples, build, captured, eager, milliseconds

UPDATE_BYTES = 4 * 8
"""Of one weight in float32: its gradient written and read, weight and two moments read and written."""
USE_BYTES = 4 + 2 + 2 + 2
"""Of one weight: read as float32, written as bfloat16, read in the forward and in the backward pass."""


def seconds(call: Any, device: torch.device, times: int) -> float:
    """Mean time of a call after three that do not count."""
    for _ in range(3):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def ceilings(device: torch.device) -> dict[str, float]:
    """Operations and bytes a second, and seconds of one kernel in a chain of the smallest (GPU)."""
    cuda = device.type == "cuda"
    edge, length = (8192, 2**28) if cuda else (1024, 2**24)
    a = torch.randn(edge, edge, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
    source = torch.zeros(length, device=device)
    target = torch.empty_like(source)
    found = {
        "operations": 2 * edge**3 / seconds(lambda: a @ a, device, 20),
        "bytes": 2 * source.nbytes / seconds(lambda: target.copy_(source), device, 20),
    }
    if cuda:
        one, links, graph = torch.zeros(1, device=device), 1000, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(links):
                one.add_(1)
        found["kernel"] = seconds(graph.replay, device, 20) / links
    return found


def counting() -> FlopCounterMode:
    """Counts our own attention too: two products of matrices forward, five backward, as the library counts its own."""

    def products(qkv: torch.Size, matrices: int) -> int:
        batch, tokens, width = qkv
        return matrices * 2 * batch * tokens**2 * width // 3

    def forward(qkv: torch.Size, *_: Any, **__: Any) -> int:
        return products(qkv, 2)

    def backward(_: torch.Size, qkv: torch.Size, *__: Any, **___: Any) -> int:
        return products(qkv, 5)

    own = {torch.ops.icone.attention: forward, torch.ops.icone.attention_backward: backward}
    return FlopCounterMode(display=False, custom_mapping=own)


def demands(case: Case, device: torch.device) -> dict[str, float]:
    """Operations and bytes of one step, counted on the uncompiled one."""
    step, loader = build(case, device, RandomSamples(case, one_on=device))
    method = step.method
    engine = EagerEngine(step, loader)
    engine((case.batch,))
    trained = {p.untyped_storage().data_ptr() for p in method.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in trained:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t), counting() as counter:
        engine((case.batch,))
    encoder = sum(p.numel() for p in method.encoder.parameters())
    weights = sum(p.numel() for p in method.parameters())
    return {
        "operations": counter.get_total_flops(),
        "bytes": UPDATE_BYTES * weights + USE_BYTES * encoder + 2 * sum(kept.values()),
    }


def kernels(engine: Engine, context: RunContext, batch: int) -> dict[str, float]:
    """Number of kernels of one captured step, and the sum of their times in milliseconds."""
    with context.active(), profile(activities=[ProfilerActivity.CUDA]) as profiler:
        engine((batch,))
        torch.cuda.synchronize()
    events = [e for e in profiler.events() if e.device_type.name == "CUDA"]
    return {"kernels": len(events), "busy": sum(e.device_time for e in events) / 1000}


def measure(case: Case, device: torch.device, limits: dict[str, float], steps: int) -> dict[str, float]:
    needed = demands(case, device)
    row = {
        **needed,
        "arithmetic_ms": 1000 * needed["operations"] / limits["operations"],
        "memory_ms": 1000 * needed["bytes"] / limits["bytes"],
    }
    cuda = device.type == "cuda"
    engine, context = (captured if cuda else eager)(case, device, RandomSamples(case, one_on=device))
    row["step_ms"] = milliseconds(engine, context, case.batch, min(steps, case.instances // case.batch // 6))
    if cuda:
        row |= kernels(engine, context, case.batch)
        row["chain_ms"] = 1000 * row["kernels"] * limits["kernel"]
    return row


def main(only: tuple[str, ...] = (), steps: int = 50, out: Path | None = None) -> None:
    """Print the table.

    Args:
        only: names of the cases (default: all).
        steps: steps in each of five timed rounds.
        out: file for the figures, as JSON.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    limits = ceilings(device)
    figures: dict[str, Any] = {"hardware": hardware, "torch": torch.__version__, "ceilings": limits, "rows": {}}
    columns = ("step_ms", "arithmetic_ms", "memory_ms", "chain_ms", "kernels", "busy")
    table = Table("case", *columns, title=f"{hardware}: {limits}")
    for name, case in (CASES if device.type == "cuda" else CPU_CASES).items():
        if not only or name in only:
            row = figures["rows"][name] = measure(case, device, limits, steps)
            table.add_row(name, *(f"{row[c]:.3f}" if c in row else "–" for c in columns))
            if out is not None:
                out.write_text(json.dumps(figures, indent=1) + "\n")
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
