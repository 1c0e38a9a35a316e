"""Memory that a step frees serves the next one; memory of a run that is over serves others."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from icone.training.allocation import free_gpu_memory

PROGRAM = """
import resource, sys, torch
from icone.training.allocation import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def step():
    torch.ones(2**24).sum()  # 64 MB

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of the GNU C library")
def test_freed_memory_is_kept() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True).stdout)
        for how in ("usual", "kept")
    }
    assert faults["kept"] < 0.1 * faults["usual"]


@pytest.mark.gpu
def test_streams_that_are_over_hold_nothing() -> None:
    free_gpu_memory()
    before = torch.cuda.memory_allocated()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() > before, "cuBLAS keeps no workspace: free_gpu_memory has nothing to do"
    free_gpu_memory()
    assert torch.cuda.memory_allocated() == before
