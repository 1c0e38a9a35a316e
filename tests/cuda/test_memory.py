"""Memory of a run that is over serves others."""

from __future__ import annotations

import pytest
import torch

from icone.cuda import free_gpu_memory


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
