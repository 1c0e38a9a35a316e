"""What the command line sets in its own process, so that training is fast, and what a launcher has set there.

Importing the package sets nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

EXTENSIONS: list[str] = []
"""Files and modules that `--import` has loaded into this process."""
BUSY = 1.5
"""Load for each core from which on others use it: a training of our own has one at most."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Numbers of two settings of the GNU C library."""


def configure_process() -> None:
    """Prepare this process for training: to be called before CUDA begins, by a program that owns its process.

    `icone` and its worker processes call it. A program of your own may call it too.
    """
    use_more_queues()
    use_expandable_segments()
    keep_freed_memory()


def use_more_queues() -> None:
    """Let CUDA have 32 queues to the GPU, unless the environment says otherwise.

    Streams of a process wait for each other where there are more of them than queues, and there are 8 by default. The
    processes of a multi-process service (MPS) share one pool of queues: CUDA was "busy or unavailable" to most of 14
    processes with 32 each.
    """
    if not os.path.isdir(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")):
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def use_expandable_segments() -> None:
    """Let PyTorch grow its blocks of GPU memory instead of adding new ones, unless the environment says otherwise.

    A step on large volumes frees and takes blocks of many sizes, and a gap between blocks in use serves only what fits
    into it. `benchmarks/memory_scale.py --expandable both` measures what that costs. Only Linux has it.
    """
    if sys.platform == "linux" and "PYTORCH_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")


def keep_freed_memory() -> None:
    """Let this process keep the memory that a step frees for the next one.

    By default large blocks go back to the system, which hands them out again page by page, cleared: tens of thousands
    of page faults a step. From now on the process is as large as its largest step was. Where there is another C library
    nothing changes.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def busy_cores(threads: int) -> str | None:
    """What to do where other processes use the cores that so many threads wait for; None where they do not.

    A thread that has finished its part of an operation spins until the others have theirs. Where these have no core to
    run on, most of the time is lost: at a load of 8 on two cores a step of a small network took 8 to 20 times as long
    with two threads as with one.
    """
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if threads < 2 or load <= BUSY * cores:
        return None
    return (
        f"other processes use the cores (load {load:.0f}, {cores} cores), and {threads} threads that wait for one "
        "another may take many times as long as one: OMP_NUM_THREADS=1 before the command, in Python "
        "torch.set_num_threads(1)"
    )


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Within the block SIGTERM, by which a cluster stops a job, raises `KeyboardInterrupt` as Ctrl-C does.

    A SIGTERM that is ignored stays so. Outside the main thread signals cannot be caught, and nothing changes.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        yield
        return
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def is_launched() -> bool:
    """Whether torchrun, or another launcher that sets its variables, has started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def local_rank() -> int:
    """The number of this process on its machine; 0 without a launcher."""
    return int(os.environ.get("LOCAL_RANK", "0")) if is_launched() else 0


def is_silent() -> bool:
    """Whether another process of the run speaks to the terminal."""
    return is_launched() and os.environ["RANK"] != "0"


def is_restarted() -> bool:
    """Whether torchrun (`--max-restarts`) or SLURM (`scontrol requeue`) has started this command again."""
    return any(int(os.environ.get(name) or 0) > 0 for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
