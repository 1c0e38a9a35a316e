"""Memory of steps: kept on a CPU, given back on a GPU."""

from __future__ import annotations

import ctypes
import gc
import sys

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Numbers of two settings of the GNU C library."""


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


def free_gpu_memory() -> None:
    """Give back what runs that are over held on the GPU; no captured step may be replayed after.

    Captured steps refer to each other. And PyTorch keeps the workspaces of cuBLAS for every stream that ever used it,
    32 MiB each on recent GPUs: 129 MiB for every run, which has streams of its own.
    """
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # there is no public name for it
    torch.cuda.empty_cache()
