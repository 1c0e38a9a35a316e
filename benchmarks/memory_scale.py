"""Peak memory and time of a step on large volumes: plain batches, micro-batches, activation checkpointing.

    python benchmarks/memory_scale.py --out benchmarks/results/memory-scale.json     # below four minutes on an H200
    python benchmarks/memory_scale.py --only 256 --expandable both                   # what expandable segments save
    python benchmarks/memory_scale.py --only 256 --where                             # what lies in memory at the peak
    python benchmarks/memory_scale.py --smoke                                        # toy sizes, on a CPU

IConE on a 3D ResNet-18 with two views of volumes of bytes. Every cell has a process of its own, so that nothing of one
is left in the next. `allocated` and `reserved` are the largest figures of PyTorch's allocator, warm-up before a capture
included, and `held` is what stays reserved while steps are replayed. Ratios are to the cell that a line names. A cell
that does not fit in memory, or that fails, says so. `captured` is without the compiler, unless `--compiled` asks for
it, which takes half a minute or more a cell.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

MARK = "cell: "
INSTANCES = 64


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    size: int
    batch: int = 1
    micro_batch: int | None = None
    checkpointed: bool = False
    engine: Literal["captured", "eager"] = "captured"
    expandable: bool = True
    encoder: str = "resnet18_3d"

    @property
    def name(self) -> str:
        parts = [f"{self.size}³", f"B={self.batch}"]
        parts += [f"micro-batch {self.micro_batch}"] if self.micro_batch else []
        parts += ["checkpointed"] if self.checkpointed else []
        parts += [] if self.expandable else ["fixed segments"]
        return " ".join([*parts, self.engine])


def cells(sizes: tuple[int, ...], batch: int, engines: tuple[Any, ...], encoder: str) -> list[Cell]:
    """Micro-batches at the smallest size first, then checkpointing at all sizes; captured before eager."""
    found = []
    for engine in engines:
        for samples, micro_batch in ((batch, None), (batch, 1), (1, None)):
            found.append(Cell(sizes[0], samples, micro_batch, engine=engine, encoder=encoder))
        for size in sizes:
            for checkpointed in (False, True):
                cell = Cell(size, checkpointed=checkpointed, engine=engine, encoder=encoder)
                found += [cell] if cell not in found else []
    return found


RATIOS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("micro-batches against a plain batch", {"micro_batch": 1}, {"micro_batch": None}),
    ("micro-batches against one sample", {"micro_batch": 1}, {"micro_batch": None, "batch": 1}),
    ("checkpointed against plain", {"checkpointed": True}, {"checkpointed": False}),
    ("expandable segments against fixed ones", {"expandable": True}, {"expandable": False}),
]
"""What is compared: the settings of a cell, and those in which the other one differs."""


def measure(cell: Cell, seconds: float, compiled: bool, where: bool) -> dict[str, Any]:
    """Peak gigabytes and milliseconds of a step, in this process."""
    import torch

    from icone.process import keep_freed_memory, use_more_queues
    from icone.training.context import RunContext
    from icone.training.engine import EagerEngine, Engine
    from step import Case, RandomSamples, build

    use_more_queues()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    keep_freed_memory()
    case = Case(cell.encoder, 3, cell.size, INSTANCES, cell.batch, channels=1)
    checkpointing = "on" if cell.checkpointed else "off"
    step, loader = build(
        case,
        device,
        RandomSamples(case, one_on=device),
        micro_batch=cell.micro_batch,
        checkpoint_activations=checkpointing,
    )
    context = RunContext(device, tf32=True)
    engine: Engine = EagerEngine(step, loader)
    if cell.engine == "captured":
        from icone.cuda.graph import CapturedEngine

        engine = CapturedEngine(step, loader, context, None, compiled)
    if where and on_gpu:
        torch.cuda.memory._record_memory_history(max_entries=10**6)

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    with context.active():
        for _ in range(2):
            loader.begin(0)
            engine((cell.batch,))
        wait()
        found = at_peak(torch.cuda.memory._snapshot()) if where and on_gpu else {}
        steps, began = 0, time.perf_counter()
        while steps < 2 or (time.perf_counter() - began < seconds and steps < 200):
            loader.begin(0)
            engine((cell.batch,))
            steps += 1
            if steps % 4 == 0:
                wait()
        wait()
        milliseconds = 1000 * (time.perf_counter() - began) / steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "allocated_gb": (torch.cuda.max_memory_allocated() if on_gpu else peak) / 1e9,
        "reserved_gb": (torch.cuda.max_memory_reserved() if on_gpu else peak) / 1e9,
        "held_gb": (torch.cuda.memory_reserved() if on_gpu else peak) / 1e9,
        "milliseconds": milliseconds,
        "loss": step.meter.means()["loss"],
        "hardware": torch.cuda.get_device_name() if on_gpu else platform.processor() or "cpu",
        "torch": torch.__version__,
        **found,
    }


def at_peak(snapshot: dict[str, Any], lines: int = 12) -> dict[str, Any]:
    """Gigabytes in use at the peak of a recorded history, by the line of Python that asked for them."""
    live: dict[int, tuple[int, str]] = {}
    total = most = 0
    largest: dict[int, tuple[int, str]] = {}
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"], _asked_by(event.get("frames", []))
            total += event["size"]
            if total > most:
                most, largest = total, dict(live)
        elif event["action"] == "free_completed" and event["addr"] in live:
            total -= live.pop(event["addr"])[0]
    by_line: Counter[str] = Counter()
    for size, line in largest.values():
        by_line[line] += size
    return {"at_peak": {line: round(size / 1e9, 3) for line, size in by_line.most_common(lines)}}


def _asked_by(frames: list[dict[str, Any]]) -> str:
    """The innermost line of this package, or of anything else where there is none."""
    own = [frame for frame in frames if "/icone/" in frame["filename"]] or frames[:1]
    return f"{Path(own[0]['filename']).name}:{own[0]['line']} {own[0]['name']}" if own else "backward pass or library"


def in_a_process(cell: Cell, seconds: float, compiled: bool, where: bool, limit: float) -> dict[str, Any]:
    """A cell measured in a process of its own; the reason where that failed."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{cell.expandable}"}
    request = json.dumps({"cell": asdict(cell), "seconds": seconds, "compiled": compiled, "where": where})
    command = [sys.executable, __file__, "--request", request]
    row: dict[str, Any] = {"name": cell.name, **asdict(cell)}
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {**row, "reason": f"took more than {limit:.0f} s"}
    answers = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    row["process_seconds"] = round(time.monotonic() - began, 1)
    if answers:
        return {**row, **json.loads(answers[-1].removeprefix(MARK))}
    return {**row, "reason": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]}


def answer(request: str) -> None:
    """Measure what another process asks for, and print it as one line."""
    asked = json.loads(request)
    try:
        row = measure(Cell(**asked["cell"]), asked["seconds"], asked["compiled"], asked["where"])
    except Exception as error:  # whatever happens is told
        from icone.errors import is_out_of_memory, one_line

        reason = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {one_line(error)[:160]}"
        row = {"reason": reason}
    print(MARK + json.dumps(row), flush=True)


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells side by side that differ in one respect."""
    found = []
    for title, ours, theirs in RATIOS:
        for row in rows:
            wanted = {name: row[name] for name in Cell.__dataclass_fields__} | theirs
            other = next((r for r in rows if all(r[name] == value for name, value in wanted.items())), None)
            if other is row or other is None or any(row[name] != value for name, value in ours.items()):
                continue
            if "milliseconds" not in row or "milliseconds" not in other:
                continue
            names = ("allocated_gb", "reserved_gb", "held_gb", "milliseconds")
            found.append(
                {"what": title, "cell": row["name"], "to": other["name"], **{n: row[n] / other[n] for n in names}}
            )
    return found


def show(rows: list[dict[str, Any]], compared: list[dict[str, Any]], console: Console) -> None:
    """Both tables."""
    names = ("allocated_gb", "reserved_gb", "held_gb", "milliseconds")
    table = Table("cell", "allocated GB", "reserved GB", "held GB", "ms a step", "reserved / allocated")
    for row in rows:
        numbers = [f"{row[name]:.2f}" for name in names] if "milliseconds" in row else [row["reason"], "", "", ""]
        spread = f"{row['reserved_gb'] / row['allocated_gb']:.2f}" if "milliseconds" in row else ""
        table.add_row(row["name"], *numbers, spread)
    console.print(table)
    table = Table("compared", "cell", "to", "allocated", "reserved", "held", "time", title="ratios")
    for row in compared:
        table.add_row(row["what"], row["cell"], row["to"], *(f"{row[name]:.2f}" for name in names))
    console.print(table)
    for row in rows:
        for line, size in row.get("at_peak", {}).items():
            console.print(f"{row['name']}: {size:.2f} GB by {line}", highlight=False)


def main(
    out: Path | None = None,
    only: int | None = None,
    expandable: Literal["on", "off", "both"] = "on",
    compiled: bool = False,
    where: bool = False,
    smoke: bool = False,
    seconds: float = 1.0,
    most_seconds: float = 230.0,
    request: str | None = None,
) -> None:
    """Measure all cells and print them side by side.

    Args:
        out: file for the figures, as JSON; it is written after every cell.
        only: measure cells of this size only.
        expandable: expandable segments of PyTorch's allocator, as the command line sets them.
        compiled: compile captured steps.
        where: tell what lies in memory at the peak, by lines of Python.
        smoke: toy sizes, eager, on any machine.
        seconds: time for the steps of a cell, after its warm-up.
        most_seconds: no cell begins after so many seconds.
        request: one cell, as JSON; for processes that this program starts.
    """
    if request is not None:
        answer(request)
        return
    began, console = time.monotonic(), Console()
    todo = cells((16, 24), 4, ("eager",), "resnet10_3d") if smoke else []
    todo = todo or cells((128, 192, 256, 384), 16, ("captured", "eager"), "resnet18_3d")
    kinds = {"on": (True,), "off": (False,), "both": (True, False)}[expandable]
    todo = [Cell(**{**asdict(c), "expandable": kind}) for c in todo for kind in kinds if only in (None, c.size)]
    rows: list[dict[str, Any]] = []
    for cell in todo:
        left = most_seconds - (time.monotonic() - began)
        if left > 0:
            row = in_a_process(cell, 0.1 if smoke else seconds, compiled, where, limit=600 if compiled else left + 30)
        else:
            row = {"name": cell.name, **asdict(cell), "reason": f"not begun within {most_seconds:.0f} s"}
        rows.append(row)
        console.print(f"{row['name']}: {row.get('reason') or str(round(row['milliseconds'], 2)) + ' ms'}")
        if out is not None:
            about = {"name": "memory-scale", "date": date.today().isoformat(), "compiled": compiled}
            out.write_text(json.dumps({**about, "rows": rows, "ratios": ratios(rows)}, indent=1) + "\n")
    show(rows, ratios(rows), console)


if __name__ == "__main__":
    tyro.cli(main)
