"""Updates of a bucket, by our kernel (on a CPU by Triton's interpreter) and by PyTorch's, against a plain AdamW."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from icone.cuda.overlap import FusedUpdate

adamw = pytest.importorskip("icone.cuda.adamw", reason="Triton comes with torch for CUDA")


def optimizer(params: list[nn.Parameter]) -> torch.optim.AdamW:
    result = torch.optim.AdamW(params, lr=torch.tensor(0.01), weight_decay=0.1, fused=True)
    for p in params:
        result.state[p] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
    return result


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for machines without a GPU")
@pytest.mark.parametrize("kind", [adamw.KernelUpdate, FusedUpdate])
def test_updates_are_those_of_torch(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes below, at and above the size of a piece, a layout that is not the usual one, and a missing gradient."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    torch.manual_seed(0)
    shapes = [(3, 5), (2048,), (4097,), (64, 33), (7,)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    ours.append(nn.Parameter(torch.randn(4, 8, 3, 3, 3).to(memory_format=torch.channels_last_3d)))
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    mine, reference = optimizer(ours), optimizer(theirs)
    update = kind(mine, ours, mine.param_groups[0])
    for _ in range(4):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        ours[4].grad = theirs[4].grad = None
        with torch.no_grad():
            update.launch()
        reference.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        for name, value in reference.state[q].items():
            torch.testing.assert_close(mine.state[p][name], value, rtol=1e-5, atol=1e-7)
    assert mine.state[ours[4]]["step"] == 0
