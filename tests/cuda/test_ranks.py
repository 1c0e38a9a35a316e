"""On a GPU: a run of one rank, with NCCL's messages inside the captured step, is a run without them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from icone.api.pretrain import pretrain
from icone.run import Run

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # compilers warn about themselves

CASES: dict[str, dict[str, Any]] = {
    "points": {"source": "synthetic:gaussians@x60", "batch_size": 8},
    "moving-average BatchNorm": {"source": "synthetic:shapes@16x18", "encoder": "resnet10_3d", "batch_size": 4},
    "BatchNorm": {"source": "synthetic:shapes@16x20", "encoder": "resnet10_3d", "batch_size": 4, "recipe": "paper"},
    "an EMA copy": {"source": "synthetic:gaussians@x60", "batch_size": 8, "method": "byol"},
    "clipping": {"source": "synthetic:gaussians@x60", "batch_size": 8, "method": "dino", "options": ("outputs=64",)},
}


def train(out: Path, **settings: Any) -> Run:
    fixed: dict[str, Any] = {"epochs": 4, "probe_every": 0, "precision": "fp32", "device": "cuda", "engine": "captured"}
    return pretrain(**fixed | settings, out=out)


@pytest.mark.parametrize("case", CASES)
def test_one_captured_rank_trains_what_one_process_trains(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train(tmp_path / "alone", **CASES[case])
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", port)
    ranked = train(tmp_path / "ranked", **CASES[case])
    assert not dist.is_initialized()
    found, expected = (torch.tensor([row["loss"] for row in run.history]) for run in (ranked, alone))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
