"""One run on several GPUs or machines: joining the processes that torchrun starts, and what they tell one another."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist

from icone.encoders.calibration import batch_norm_layers
from icone.errors import InputError, LostRank, TrainingError, one_line
from icone.methods import Method
from icone.nn.ranks import Ranks
from icone.process import is_launched, local_rank

PATIENCE = timedelta(days=1)
"""How long a rank waits for another, which may read data or measure features meanwhile. One that has died is noticed at
once, by its closed connection and by torchrun."""
EXCHANGE_SECONDS = 0.5
"""How often ranks tell one another that a signal came or that it is time to save."""


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks | None]:
    """Join the processes that were started with this one, within the block; None if it is alone.

    Tensors of a GPU are exchanged by NCCL, those of the CPU by Gloo. A process group that the program has already is
    used, and left as it is. If a rank ends unexpectedly, the others leave with a `LostRank`.
    """
    own = not dist.is_initialized()
    if own and not is_launched():
        yield None
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if own:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
        ranks = Ranks()
    else:
        ranks = Ranks(control=cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=PATIENCE)))
    store: Any = dist.distributed_c10d._get_default_store()  # there is no public name for it
    store.set(_key("process", ranks.rank), f"{socket.gethostname()} {os.getpid()}")
    try:
        yield ranks
    except (InputError, TrainingError):
        store.set("icone/said", "1")  # the others miss this rank, and need not tell
        raise
    except RuntimeError as error:
        if not _is_of_a_message(error):
            raise
        raise _lost(ranks, store, error) from error
    finally:
        if own:
            dist.destroy_process_group()


def _key(what: str, rank: int) -> str:
    return f"icone/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{what}/{rank}"


def _is_of_a_message(error: RuntimeError) -> bool:
    signs = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL")
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)


def _lost(ranks: Ranks, store: Any, error: RuntimeError) -> LostRank:
    """Find out which ranks are gone: those that neither miss another one nor run on this machine."""
    try:
        store.set(_key("alive", ranks.rank), "1")
        time.sleep(1.0)
        said = store.check(["icone/said"])
        alive = [rank for rank in range(ranks.size) if store.check([_key("alive", rank)])]
        gone = [
            rank for rank in range(ranks.size) if rank not in alive and not _is_here(store.get(_key("process", rank)))
        ]
    except RuntimeError:  # the rank that kept the store is gone
        alive, gone, said = [ranks.rank], [], False
    number = ", ".join(map(str, gone)) or "another"
    lost = LostRank(
        f"rank {number} of the run has ended ({one_line(error)}). What was saved last is kept: give the same command "
        "with --resume, or start it with `torchrun --max-restarts`"
    )
    lost.is_said = "ICONE_LAUNCHER" in os.environ or ranks.rank != alive[0] or said
    return lost


def _is_here(process: bytes) -> bool:
    """Whether a process is one of this machine that still runs."""
    host, number = process.decode().rsplit(" ", 1)
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(number), 0)
    except OSError:
        return False
    return True


@contextmanager
def one_reads_first(ranks: Ranks | None) -> Iterator[None]:
    """Let one rank of every machine read the data before the others, which then find them in the cache."""
    if ranks is not None and local_rank() > 0:
        ranks.barrier()
    yield
    if ranks is not None and local_rank() == 0:
        ranks.barrier()


def check_batch_size(batch_size: int, ranks: Ranks | None) -> None:
    """Refuse a batch that leaves ranks without work in every step."""
    if ranks is not None and batch_size < ranks.size:
        raise InputError(
            f"{ranks.size} processes share every batch, and --batch-size is {batch_size}: "
            f"give --batch-size={ranks.size} or more, or fewer processes"
        )


def check_micro_batches(method: Method, ranks: Ranks) -> None:
    """Refuse micro-batches of an encoder with BatchNorm: ranks would exchange statistics of passes that others lack."""
    if method.micro_batch is not None and ranks.size > 1 and batch_norm_layers(method.encoder):
        raise InputError(
            "--micro-batch and several processes exclude each other for encoders with BatchNorm: leave --micro-batch "
            "out and take more processes or a smaller --batch-size, or an encoder with another norm"
        )


class Exchange:
    """What ranks tell one another between steps, about twice a second: all of them act on it after the same step."""

    def __init__(self, ranks: Ranks, device: torch.device, done: int) -> None:
        self.ranks, self.device = ranks, device
        self.last, self.next = done, done + 1
        self.time = time.monotonic()

    def __call__(self, done: int, *wishes: bool) -> list[bool]:
        """Which of the wishes any rank has; none, until it is time to ask."""
        if done < self.next:
            return [False] * len(wishes)
        now = time.monotonic()
        steps = done - self.last
        pace = EXCHANGE_SECONDS * steps / max(now - self.time, 1e-9)
        stride = max(1, min(int(pace), 2 * steps)) if self.ranks.rank == 0 else 0
        random = self._random_digest()
        stride, high, low, *agreed = self.ranks.highest(stride, random, -random, *map(int, wishes))
        if high != -low:
            raise InputError(
                "the random numbers of the ranks differ, because the encoder draws some of its own in training "
                "(dropout): switch that off, or train in one process"
            )
        self.last, self.next, self.time = done, done + stride, now
        return [bool(wish) for wish in agreed]

    def _random_digest(self) -> int:
        state = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()
        return int.from_bytes(hashlib.blake2b(state.numpy().tobytes(), digest_size=7).digest(), "little")
