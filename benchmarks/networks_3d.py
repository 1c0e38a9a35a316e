"""What a 3D network without BatchNorm costs: time and memory of a training step beside those of the one with it.

    python benchmarks/networks_3d.py --out benchmarks/results/networks-3d.json     # two minutes on an H200

IConE, two views, the step of `icone pretrain`. Every network and size has a process of its own. All are built at once,
and timed in turns, so that whatever the machine does besides slows each of them. The ratio is that of the network
without BatchNorm to the one with it.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from icone.process import use_more_queues
from step import ROUNDS, Case, LoopProcess, environment, ours

NETWORKS = ("resnet18_3d", "nf_resnet18_3d")
CASES = {"64³, B = 1": (64, 1, 1188), "64³, B = 16": (64, 16, 1188), "128³, B = 1": (128, 1, 64)}
"""Size, batch size and number of volumes."""
CPU_CASES = {"32³, B = 4": (32, 4, 64)}


def measure(cases: dict[str, tuple[int, int, int]], device: torch.device, steps: int) -> list[dict[str, Any]]:
    """Milliseconds (medians over rounds) and gigabytes of every case and network."""
    loops = {
        (title, network): LoopProcess(Case(network, 3, size, count, batch, channels=1), device, steps, ours)
        for title, (size, batch, count) in cases.items()
        for network in NETWORKS
    }
    peaks = {key: loop.about().get("peak_gb") for key, loop in loops.items()}
    times: dict[tuple[str, str], list[float]] = {key: [] for key in loops}
    for _ in range(ROUNDS):
        for key, loop in loops.items():
            times[key].append(loop.round())
    for loop in loops.values():
        loop.end()
    return [
        {"case": title, "network": network, "milliseconds": statistics.median(found), "rounds": found,
         "peak_gb": peaks[title, network]}
        for (title, network), found in times.items()
    ]  # fmt: skip


def table_of(rows: list[dict[str, Any]]) -> Table:
    """A line for every case, with the ratio of its two networks."""
    table = Table("case", *(f"{network}, {unit}" for unit in ("ms", "GB") for network in NETWORKS), "time", "memory")
    for title in dict.fromkeys(row["case"] for row in rows):
        both = [next(r for r in rows if (r["case"], r["network"]) == (title, network)) for network in NETWORKS]
        numbers = [[row[name] or float("nan") for row in both] for name in ("milliseconds", "peak_gb")]
        ratios = [f"{without / with_:.2f}×" for with_, without in numbers]
        table.add_row(title, *(f"{number:.2f}" for pair in numbers for number in pair), *ratios)
    return table


def main(out: Path | None = None, steps: int = 100) -> None:
    """Measure both networks side by side, and print the table.

    Args:
        out: file for the figures, as JSON.
        steps: steps of each round, at most.
    """
    use_more_queues()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = measure(CASES if device.type == "cuda" else CPU_CASES, device, steps)
    if out is not None:
        out.write_text(json.dumps({**environment(device), "rows": rows}, indent=1) + "\n")
    Console(width=140).print(table_of(rows))


if __name__ == "__main__":
    tyro.cli(main)
