"""Seconds to the first step of a run on a GPU, and to its first compiled step, with an empty and a filled cache.

    python benchmarks/first_step.py --out benchmarks/results/first-step.json     # about ten minutes on an H200
    python benchmarks/first_step.py --only vit-b1                                # about four
    python benchmarks/first_step.py --smoke                                      # toy sizes, on a CPU, nothing captured

Every line is a process of its own that builds IConE on random samples as `icone pretrain` does and takes steps until
the compiled ones are timed. `ahead` begins uncompiled while another process compiles, as `--engine ahead` does;
`first` compiles before the first step, as `--engine captured` does. Lines of the same case share a cache of the
compiler: the first finds it empty (cold), later ones find it filled (warm). Seconds count from when method and data are
there, to when the device is done; `stall` is the longest wait for a step after the first. Losses are means over the
same steps.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

MARK = "line: "


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    case: str
    how: Literal["ahead", "first"]
    cache: Literal["cold", "warm"]
    encoder: str
    size: tuple[int, ...]
    channels: int
    samples: int
    batch: int = 1
    steps: int = 2000
    """Steps whose loss is compared, and after which no run ends earlier."""


CASES = {
    "vit-b1": Line("vit-b1", "ahead", "cold", "vit_small_patch16", (224, 224), 3, 5000),
    "resnet3d-b1": Line("resnet3d-b1", "ahead", "cold", "resnet18_3d", (64, 64, 64), 1, 1188),
    "resnet3d-b16": Line("resnet3d-b16", "ahead", "cold", "resnet18_3d", (64, 64, 64), 1, 1188, batch=16, steps=500),
}
SMOKE = {"smoke": Line("smoke", "ahead", "cold", "resnet10_3d", (16, 16, 16), 1, 12, batch=2, steps=4)}


def measure(line: Line, seconds: float) -> dict[str, Any]:
    """Take the steps of a line, in this process."""
    import torch

    from icone import cuda
    from icone.api.random_data import DataShape
    from icone.api.training_parts import build_parts
    from icone.config import PretrainConfig
    from icone.config_text import to_json
    from icone.data import Preparation
    from icone.process import configure_process
    from icone.training.context import RunContext
    from icone.training.step import TrainStep

    configure_process()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    config = PretrainConfig(source="random", encoder=line.encoder, batch_size=line.batch, device=device.type)
    preparation = Preparation(
        spatial_dims=len(line.size),
        channels=line.channels,
        size=line.size,
        fit="stretch",
        spacing=None,
        low=(0.0,) * line.channels,
        high=(1.0,) * line.channels,
        dtype="uint8",
    )
    shape = DataShape(preparation, line.samples)
    parts = build_parts(config, shape.random(device, config.views))
    step = TrainStep(parts.method.train(), parts.views, config, 10**6, device)
    context = RunContext(device, tf32=True)
    request = {"config": to_json(config), "data": shape.to_json(), "device": str(device)}
    told: list[str] = []
    began = time.perf_counter()
    engine = cuda.accelerate(
        step,
        parts.loader,
        context,
        told.append,
        engine="ahead" if line.how == "ahead" else "captured",
        compiler=cuda.CompilerProcess("icone.api.compile_ahead", request),
    )
    engine.tell = told.append
    found: dict[str, Any] = {"hardware": torch.cuda.get_device_name() if on_gpu else platform.processor() or "cpu"}
    stall, compiled_at, done, block_began = 0.0, None, 0, began
    uncompiled_ms: list[float] = []
    compiled_ms: list[float] = []
    with context.active():
        parts.loader.begin(0)
        while done < line.steps or (on_gpu and compiled_at is None) or len(compiled_ms) < (3 if on_gpu else 0):
            if time.perf_counter() - began > seconds:
                told.append(f"ended after {seconds:.0f} s")
                break
            was_compiled, before = bool(getattr(engine, "parts", [])), time.perf_counter()
            engine((line.batch,))
            done += 1
            is_compiled = bool(getattr(engine, "parts", []))
            if done == 1 or is_compiled != was_compiled:
                if on_gpu:
                    torch.cuda.synchronize()
                now = time.perf_counter()
                found.setdefault("first_step_s", now - began)
                if is_compiled and compiled_at is None:
                    compiled_at = now - began
                block_began = now
            if done > 1:
                stall = max(stall, time.perf_counter() - before)
            if done == line.steps:
                found["loss"] = step.meter.means()["loss"]
            if done % 100 == 0:
                if on_gpu:
                    torch.cuda.synchronize()
                now = time.perf_counter()
                (compiled_ms if is_compiled else uncompiled_ms).append(1000 * (now - block_began) / 100)
                block_began = now
    engine.close()
    return {
        **found,
        "compiled_step_s": compiled_at,
        "stall_s": stall,
        "uncompiled_ms": min(uncompiled_ms, default=None),
        "compiled_ms": min(compiled_ms, default=None),
        "steps": done,
        "told": told,
        "torch": torch.__version__,
    }


def in_a_process(line: Line, cache: str, seconds: float) -> dict[str, Any]:
    """A line measured in a process of its own, with this folder as the compiler's cache."""
    request = json.dumps({"line": asdict(line), "seconds": seconds})
    command = [sys.executable, __file__, "--request", request]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": str(Path(cache) / "triton")}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds + 120, check=False
        )
    except subprocess.TimeoutExpired:
        return {**asdict(line), "reason": f"took more than {seconds + 120:.0f} s"}
    answers = [text for text in done.stdout.splitlines() if text.startswith(MARK)]
    if answers:
        return {**asdict(line), **json.loads(answers[-1].removeprefix(MARK))}
    return {**asdict(line), "reason": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]}


COLUMNS = ("first_step_s", "compiled_step_s", "stall_s", "uncompiled_ms", "compiled_ms", "loss")


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The table."""
    table = Table(
        "case", "compiled", "cache", "first step s", "compiled step s", "stall s", "ms before", "ms after", "loss"
    )
    for row in rows:
        values = [row.get(name) for name in COLUMNS]
        cells = ["–" if value is None else f"{value:.4f}" if value < 10 else f"{value:.1f}" for value in values]
        table.add_row(row["case"], row["how"], row["cache"], *cells)
    console.print(table)
    for row in rows:
        for text in [*row.get("told", []), *([row["reason"]] if "reason" in row else [])]:
            console.print(f"{row['case']} {row['how']} {row['cache']}: {text}", highlight=False)


def main(
    out: Path | None = None,
    only: str | None = None,
    smoke: bool = False,
    seconds: float = 150.0,
    request: str | None = None,
) -> None:
    """Measure all lines and print them side by side.

    Args:
        out: file for the figures, as JSON; it is written after every line.
        only: measure this case only.
        smoke: toy sizes, on any machine.
        seconds: a line ends after so many, even if nothing was compiled.
        request: one line, as JSON; for processes that this program starts.
    """
    if request is not None:
        asked = json.loads(request)
        given = {**asked["line"], "size": tuple(asked["line"]["size"])}
        print(MARK + json.dumps(measure(Line(**given), asked["seconds"])), flush=True)
        return
    console, rows = Console(), []
    for case in (SMOKE if smoke else CASES).values():
        if only not in (None, case.case):
            continue
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            lines = [
                (case, one),
                (replace(case, cache="warm"), one),
                (replace(case, how="first"), other),
                (replace(case, how="first", cache="warm"), other),
            ]
            for line, cache in lines[:1] if smoke else lines:
                rows.append(in_a_process(line, cache, seconds))
                console.print(f"{line.case} {line.how} {line.cache}: done", highlight=False)
                if out is not None:
                    about = {"name": "first-step", "date": date.today().isoformat()}
                    out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    show(rows, console)


if __name__ == "__main__":
    tyro.cli(main)
