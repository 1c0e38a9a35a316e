"""What it costs to be one of several ranks: a step that exchanges messages, against one that does not, side by side.

    python benchmarks/distributed.py                      # one rank: NCCL, captured, on one GPU
    torchrun --nproc-per-node 4 benchmarks/distributed.py --batch 16

With one rank both steps have the same work, and the ratio is the price of the exchange (goal on an H200: 1.05). With
several, every rank has its share of the batch, and the ratio is to the whole batch on one GPU. On a CPU the exchange is
Gloo's, and steps are not captured.
"""

from __future__ import annotations

import os
import socket
import statistics
from typing import Any

import torch
import torch.distributed as dist
import tyro
from rich.console import Console
from rich.table import Table

from icone.nn.ranks import Ranks
from icone.process import local_rank, use_more_queues
from icone.training.context import RunContext
from icone.training.engine import EagerEngine
from step import CASES, CPU_CASES, Case, Loop, RandomSamples, build, loop_of, timed

ROUNDS = 7


def loop(case: Case, device: torch.device, samples: Any, ranks: Ranks | None) -> Loop:
    """Steps of `icone pretrain` on this case, captured and compiled on a GPU."""
    step, loader = build(case, device, samples, ranks=ranks)
    context = RunContext(device, tf32=True)
    if device.type == "cpu":
        return loop_of(EagerEngine(step, loader), context, case.batch)
    from icone.cuda.graph import CapturedEngine

    return loop_of(CapturedEngine(step, loader, context, None, True), context, case.batch)


def join(device: torch.device) -> Ranks:
    """The ranks that torchrun has started, or this process alone."""
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Ranks()


def main(only: tuple[str, ...] = (), steps: int = 100, batch: int | None = None) -> None:
    """Print milliseconds a step with and without the exchange, and their ratio.

    Args:
        only: names of the cases (default: all).
        steps: steps in each of seven rounds, in which the two take turns.
        batch: samples of a step, of all ranks together (default: that of each case).
    """
    use_more_queues()
    device = torch.device("cuda", local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ranks = join(device)
    cases = CASES if device.type == "cuda" else CPU_CASES
    table = Table("case", "batch", "ranks", "alone, ms", "with ranks, ms", "ratio")
    for name in only or cases:
        given = cases[name]
        case = Case(given.encoder, given.dims, given.size, given.instances, batch or given.batch, None, given.channels)
        samples = RandomSamples(case, one_on=device)
        loops = [loop(case, device, samples, None), loop(case, device, samples, ranks)]
        for one in loops:
            timed(one, 3)
        rounds = [[timed(one, steps) for one in loops] for _ in range(ROUNDS)]
        alone, together = (statistics.median(times) for times in zip(*rounds, strict=True))
        ratio = statistics.median(b / a for a, b in rounds)
        table.add_row(name, str(case.batch), str(ranks.size), f"{alone:.3f}", f"{together:.3f}", f"{ratio:.3f}")
    if ranks.rank == 0:
        Console().print(table)
    dist.destroy_process_group()


if __name__ == "__main__":
    tyro.cli(main)
