"""Blocked `orthogonality` against the literal masked matrix: time, memory and gradient, on the CPU.

    python benchmarks/diversity.py --n 5000 20000 --d 384 --repeats 3

The literal form computes all of G = ẼẼᵀ, takes what is off the diagonal by boolean indexing, and leaves the
gradient to autograd. One pass is value and gradient. Times are medians of passes that take turns in this
process. Memory is the peak resident set of a pass above what was resident before, in a fresh process for each
form (Linux), after a small pass that loads what is loaded once. The reference for gradients is autograd in
float64, over blocks of rows.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from icone.nn.diversity import orthogonality

MIN_SPEEDUP, MAX_MEMORY_SHARE, MAX_GRADIENT_ERROR = 3.0, 0.1, 1e-5
MEMORY_GOAL_FROM = 20_000


def masked_matrix(table: Tensor) -> Tensor:
    """The diversity term as one would write it down."""
    unit = F.normalize(table, dim=1)
    off_diagonal = ~torch.eye(len(table), dtype=torch.bool)
    return (unit @ unit.T)[off_diagonal].relu().square().mean()


FORMS: dict[str, Callable[[Tensor], Tensor]] = {"masked": masked_matrix, "blocked": orthogonality}


def main(n: tuple[int, ...] = (5000, 20000), d: int = 384, repeats: int = 3) -> None:
    """Print ratios of the blocked form to the masked one.

    Args:
        n: numbers of anchors.
        d: their dimension.
        repeats: timed passes of each form.
    """
    report = Table(title=f"orthogonality, value and gradient, d={d}: masked matrix / blocked pass")
    for column in (
        "N",
        "seconds",
        "speed-up",
        "extra memory (MB)",
        "memory share",
        "gradient error",
        "goals",
    ):
        report.add_column(column, justify="right")
    for anchors in n:
        seconds = times(anchors, d, repeats)
        memory = {form: peak_memory(form, anchors, d) for form in FORMS}
        error = gradient_error(anchors, d)
        speedup, share = seconds["masked"] / seconds["blocked"], memory["blocked"] / memory["masked"]
        met = speedup >= MIN_SPEEDUP and error <= MAX_GRADIENT_ERROR
        met = met and (share <= MAX_MEMORY_SHARE or anchors < MEMORY_GOAL_FROM)
        report.add_row(
            f"{anchors:,}",
            f"{seconds['masked']:.2f} / {seconds['blocked']:.2f}",
            f"{speedup:.1f}×",
            f"{memory['masked'] / 1e6:,.0f} / {memory['blocked'] / 1e6:,.0f}",
            f"1/{1 / share:.0f}",
            f"{error:.1e}",
            "met" if met else "MISSED",
        )
    console = Console()
    console.print(report)
    console.print(
        f"goals: speed-up ≥ {MIN_SPEEDUP:g}×, gradient error ≤ {MAX_GRADIENT_ERROR:g}, "
        f"memory share ≤ {MAX_MEMORY_SHARE:g} from N = {MEMORY_GOAL_FROM:,} on; {repeats} repeats"
    )
    console.print(
        f"Python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} threads "
        f"of {os.cpu_count()} cores, {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    )


def times(n: int, d: int, repeats: int) -> dict[str, float]:
    """Median seconds of a pass of each form, the forms taking turns."""
    table = random_table(n, d)
    one_pass("blocked", random_table(100, d))
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for _ in range(repeats):
        for form, measured in seconds.items():
            start = time.perf_counter()
            one_pass(form, table)
            measured.append(time.perf_counter() - start)
    return {form: statistics.median(measured) for form, measured in seconds.items()}


def peak_memory(form: str, n: int, d: int) -> float:
    """Bytes of the peak resident set of one pass above what was resident before, in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_rise_to_peak, (form, n, d))


def _rise_to_peak(form: str, n: int, d: int) -> float:
    table = random_table(n, d)
    one_pass(form, random_table(256, d))
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
    before = _status("VmRSS")
    one_pass(form, table)
    return _status("VmHWM") - before


def _status(field: str) -> float:
    """A field of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def gradient_error(n: int, d: int) -> float:
    """Relative error of the blocked float32 gradient, in the Euclidean norm."""
    table = random_table(n, d)
    exact = exact_gradient(table)
    return float((one_pass("blocked", table) - exact).norm() / exact.norm())


def exact_gradient(table: Tensor, block: int = 500) -> Tensor:
    """The gradient by float64 autograd, summed over blocks of rows."""
    table = table.detach().double().requires_grad_()
    n = len(table)
    gradient = torch.zeros_like(table)
    for start in range(0, n, block):
        unit = F.normalize(table, dim=1)
        rows = torch.arange(start, min(start + block, n))
        others = rows[:, None] != torch.arange(n)
        loss = ((unit[rows] @ unit.T).relu().square() * others).sum() / (n * (n - 1))
        gradient += torch.autograd.grad(loss, table)[0]
    return gradient


def one_pass(form: str, table: Tensor) -> Tensor:
    return torch.autograd.grad(FORMS[form](table), table)[0]


def random_table(n: int, d: int) -> Tensor:
    return (torch.randn(n, d, generator=torch.Generator().manual_seed(0)) * 0.02).requires_grad_()


if __name__ == "__main__":
    tyro.cli(main)
