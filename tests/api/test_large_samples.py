"""Where one sample fills the memory, nothing before or after training asks for more than a step does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import icone
from icone.data import prepare

SIZE = 8


class Counting(nn.Module):
    """A small 3D network; `given` has the sizes of all batches that such a network was given."""

    num_features = 4
    given: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv3d(1, 4, 3, 2, 1), nn.BatchNorm3d(4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        self.given.append(len(x))
        return torch.as_tensor(self.layers(x).mean(dim=(2, 3, 4)))


def most_views(call: Any, *values: Any, **settings: Any) -> tuple[Any, int]:
    Counting.given.clear()
    result = call(*values, **settings, device="cpu", console=Console(file=io.StringIO()))
    return result, max(Counting.given)


@pytest.mark.parametrize("fits", [1, 100])
def test_as_many_views_pass_at_once_as_memory_holds(fits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples are the fewest from which BatchNorm can take statistics, and a step has two views of one."""
    monkeypatch.setattr(prepare, "VALUES_AT_ONCE", fits * SIZE**3)
    network, out = Counting(), tmp_path / "run"
    run, training = most_views(icone.pretrain, f"synthetic:shapes@{SIZE}x40", encoder=network, epochs=2, out=out)
    _, evaluating = most_views(icone.evaluate, run, encoder=network, test_fraction=0.25, untrained=False)
    table, embedding = most_views(icone.embed, run, encoder=network)
    assert len(table) == 40
    if fits == 1:
        assert (training, evaluating, embedding) == (4, 2, 2)  # networks that are built are shown two samples
    else:
        assert (training, evaluating, embedding) == (32, 40, 16)
