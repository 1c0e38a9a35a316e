"""What the command line sets in its own process, so that training is fast. Importing the package sets nothing."""

from __future__ import annotations

import ctypes
import os
import sys

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
