"""What every trick of `icone.cuda` earns: the time of a training step with all of them, and without each one.

    python benchmarks/ablation.py --out ablation.json                       # 4 cases, at most 9 minutes on one H200
    python benchmarks/ablation.py --case vit-b1 --only stem-conv channels-last
    python benchmarks/ablation.py --out ablation.json                       # again: only what the file does not have

Each variant has a process of its own. First the step with all tricks is built for all cases at once, which fills the
compiler's cache. Then the variants of a case are built at the same time, as many as fit into the GPU's memory, and
timed in turns, round by round, with the step with all tricks among them. The file is written after every round.

The gain of a trick is 100 · (without / with − 1) %, both medians over the rounds of the same group of processes.
`everything` is captured and compiled like the others, and has no other trick. `SmallMapConv3d` has no row: on a GPU it
is the library's convolution.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from icone.cuda import ALL_ON, CudaOptions
from icone.errors import InputError
from icone.process import use_more_queues
from step import CASES, Case, Loop, LoopProcess, captured, environment, loop_of, measure

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
ALL_TRICKS = "all tricks"
MEMORY_SHARE = 0.9
"""Share of the GPU's memory that the processes of a group may take."""
CONTEXT_GB = 1.0
"""What a process takes on the GPU besides its tensors."""


@dataclass(frozen=True)
class Variant:
    """A step with some tricks. `dims` are those of the cases in which it differs from the step with all tricks."""

    options: CudaOptions = ALL_ON
    high_priority: bool = True
    connections: bool = True
    dims: tuple[int, ...] = (2, 3)


def without(*switches: str, dims: tuple[int, ...] = (2, 3)) -> Variant:
    return Variant(dataclasses.replace(ALL_ON, **dict.fromkeys(switches, False)), dims=dims)


SWITCHES = tuple(field.name for field in dataclasses.fields(CudaOptions))
"""What makes a step faster."""
VARIANTS: dict[str, Variant] = {
    ALL_TRICKS: Variant(),
    "deferred-gradients": without("deferred_gradients"),
    "column-sum-kernel": without("column_sum_kernel"),
    "attention-kernels": without("attention_kernels", dims=(2,)),
    "diversity-stream": without("diversity_stream"),
    "combo-kernels": without("combo_kernels"),
    "patch-conv": without("patch_conv", dims=(2,)),
    "stem-conv": without("stem_conv", dims=(3,)),
    "halving-pool": without("halving_pool", dims=(3,)),
    "channels-last": without("channels_last", dims=(3,)),
    "stream-priority": Variant(high_priority=False),
    "max-connections": Variant(connections=False),
    "everything": dataclasses.replace(without(*SWITCHES), high_priority=False, connections=False),
}
"""By the trick that is left out."""


def loop_without(trick: str, case: Case, device: torch.device, samples: Any) -> Loop:
    """The captured step without a trick, in a process in which CUDA has not begun."""
    variant = VARIANTS[trick]
    if not variant.connections:
        os.environ.pop(CONNECTIONS, None)
    engine, context = captured(case, device, samples, tricks=variant.options, high_priority=variant.high_priority)
    return loop_of(engine, context, case.batch)


Start = Callable[[str, str], LoopProcess]
"""From the names of a case and a trick to the process that takes the steps."""


def ablate(
    chosen: Mapping[str, Sequence[str]],
    start: Start,
    figures: dict[str, Any],
    keep: Callable[[], None],
    *,
    memory_gb: float,
    seconds: float,
) -> None:
    """Add a row to the figures for every case and trick; groups that would not end within the seconds are left out."""
    began = time.monotonic()
    reserved = fill_compiler_cache(list(chosen), start, figures)
    keep()
    longest = 0.0
    for case, size in reserved.items():
        fitting = int(memory_gb * MEMORY_SHARE / (size + CONTEXT_GB)) - 1
        for group in in_groups(chosen[case], max(1, fitting)):
            group_began = time.monotonic()
            if group_began - began + longest > seconds:
                print(f"{case}: no time for {', '.join(group)}; the same command goes on with them", flush=True)
                continue
            use_compile_threads(len(group) + 1)
            row: dict[str, Any] = {"case": case}
            starts = {trick: partial(start, case, trick) for trick in (ALL_TRICKS, *group)}
            measure(row, starts, partial(keep_group, row, group, figures["rows"], list(figures["rows"]), keep))
            for found in figures["rows"]:
                found["complete"] = True
            figures["failed"] |= {f"{case} without {trick}": why for trick, why in row["failed"].items()}
            keep()
            longest = max(longest, time.monotonic() - group_began)


def fill_compiler_cache(cases: Sequence[str], start: Start, figures: dict[str, Any]) -> dict[str, float]:
    """Build the step with all tricks for all cases at once; the GB of GPU memory that each one took."""
    use_compile_threads(len(cases))
    processes = {case: start(case, ALL_TRICKS) for case in cases}
    reserved = {}
    for case, process in processes.items():
        try:
            reserved[case] = float(process.about().get("reserved_gb", 0.0))
        except RuntimeError as error:
            figures["failed"][f"{case} with {ALL_TRICKS}"] = str(error)
        process.end()
    return reserved


def use_compile_threads(processes: int) -> None:
    """Let processes that start from now on share the CPU's cores; most of them find their kernels in the cache."""
    threads = str(max(4, (os.cpu_count() or 1) // processes))
    os.environ |= {"TORCHINDUCTOR_COMPILE_THREADS": threads, "OMP_NUM_THREADS": threads}


def in_groups(tricks: Sequence[str], size: int) -> list[Sequence[str]]:
    """Groups of about equal size.

    >>> in_groups(["a", "b", "c", "d", "e"], 4)
    [['a', 'b', 'c'], ['d', 'e']]
    """
    count = -(-len(tricks) // size)
    each = -(-len(tricks) // max(count, 1))
    return [tricks[first : first + each] for first in range(0, len(tricks), max(each, 1))]


def keep_group(
    row: dict[str, Any],
    group: Sequence[str],
    rows: list[dict[str, Any]],
    before: list[dict[str, Any]],
    keep: Callable[[], None],
) -> None:
    """Write what the rounds of a group have given so far, behind the rows of the groups before it."""
    rows[:] = before
    for trick in group:
        if ALL_TRICKS in row and trick in row:
            gain = 100 * (row[trick] / row[ALL_TRICKS] - 1)
            found = {"with": row[ALL_TRICKS], "without": row[trick], "gain_percent": gain, "complete": False}
            rows.append({"case": row["case"], "trick": trick, **found})
    keep()


CELL = "{with:.3f} → {without:.3f} {gain_percent:+.1f} %"


def table_of(rows: Sequence[dict[str, Any]], cases: Sequence[str]) -> Table:
    """A line for every trick; for every case milliseconds with and without it, and the gain."""
    table = Table(title="milliseconds a step with all tricks → without this one, and the gain by the trick")
    table.add_column("trick")
    for case in cases:
        table.add_column(case, justify="right")
    found = {(row["case"], row["trick"]): row for row in rows}
    for trick in list(VARIANTS)[1:]:
        cells = [found.get((case, trick)) for case in cases]
        table.add_row(trick, *("–" if cell is None else CELL.format(**cell) for cell in cells))
    return table


def tricks_of(case: Case, only: Sequence[str] = ()) -> list[str]:
    """The tricks that are left out in a case."""
    return [
        trick
        for trick, variant in VARIANTS.items()
        if trick != ALL_TRICKS and case.dims in variant.dims and (not only or trick in only)
    ]


def main(
    case: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    steps: int = 100,
    seconds: float = 500.0,
    out: Path | None = None,
) -> None:
    """Print what every trick earns.

    Args:
        case: names of the cases (default: all).
        only: names of the tricks (default: all).
        steps: steps in each of five timed rounds, at most; a round of slow steps has fewer.
        seconds: nothing is begun that would probably not end within them.
        out: file for the figures, as JSON; what it has already is not measured again.
    """
    for given, known in ((case, CASES), (only, VARIANTS)):
        if unknown := sorted(set(given) - set(known)):
            raise InputError(f"{', '.join(unknown)}: the names are {', '.join(known)}")
    use_more_queues()
    if not torch.cuda.is_available():
        raise InputError("the tricks are those of a CUDA device, and there is none")
    device = torch.device("cuda")
    figures: dict[str, Any] = {
        **environment(device),
        CONNECTIONS: os.environ.get(CONNECTIONS),
        "failed": {},
        "rows": [],
    }
    if out is not None and out.is_file():
        figures["rows"] = [row for row in json.loads(out.read_text())["rows"] if row["complete"]]
    done = {(row["case"], row["trick"]) for row in figures["rows"]}
    chosen = {
        name: tricks
        for name in (case or CASES)
        if (tricks := [trick for trick in tricks_of(CASES[name], only) if (name, trick) not in done])
    }

    def keep() -> None:
        if out is not None:
            out.write_text(json.dumps(figures, indent=1) + "\n")

    def start(name: str, trick: str) -> LoopProcess:
        return LoopProcess(CASES[name], device, steps, partial(loop_without, trick))

    memory_gb = torch.cuda.get_device_properties(device).total_memory / 1e9
    ablate(chosen, start, figures, keep, memory_gb=memory_gb, seconds=seconds)
    Console(width=160).print(table_of(figures["rows"], case or list(CASES)))
    for name, why in figures["failed"].items():
        print(f"{name} failed: {why}")


if __name__ == "__main__":
    tyro.cli(main)
