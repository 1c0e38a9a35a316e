"""The end of an epoch: no batch is too small for the method, whatever the number of instances."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from icone.api.build import make_method
from icone.api.pretrain import pretrain
from icone.config import PretrainConfig
from icone.data import Batch, load_data
from icone.errors import InterruptedRun
from icone.methods import METHODS
from icone.run import Run
from icone.tensor_files import read_tensors
from icone.training.checkpoint import load_state
from icone.training.step import TrainStep

BATCH_BOUND = [name for name in METHODS if METHODS[name].min_batch_size > 1]
VOLUMES: dict[str, Any] = {"source": "synthetic:shapes@28x6", "encoder": "resnet10_3d", "width": 0.125}


def train(out: Path, text: io.StringIO | None = None, **settings: Any) -> Run:
    common = {"source": "synthetic:gaussians@x9", "epochs": 2, "probe_every": 0, "features": 4, "device": "cpu"}
    return pretrain(**{**common, **settings}, out=out, console=Console(file=text or io.StringIO(), width=200))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The instances of every batch that a step takes."""
    batches: list[list[int]] = []
    step = TrainStep.__call__

    def watched(self: TrainStep, given: Sequence[Batch]) -> None:
        batches.extend(batch.index.tolist() for batch in given)
        step(self, given)

    monkeypatch.setattr(TrainStep, "__call__", watched)
    return batches


@pytest.mark.parametrize("method", BATCH_BOUND)
def test_a_remainder_of_one_shares_with_the_batch_before_it(method: str, seen: list[list[int]], tmp_path: Path) -> None:
    train(tmp_path / "run", method=method, batch_size=4)
    assert [len(index) for index in seen] == [4, 3, 2] * 2
    for epoch in (seen[:3], seen[3:]):
        assert sorted(i for index in epoch for i in index) == list(range(9))


def test_methods_that_take_any_batch_keep_the_short_one(seen: list[list[int]], tmp_path: Path) -> None:
    train(tmp_path / "a", method="icone", batch_size=4, epochs=1)
    train(tmp_path / "b", method="byol", batch_size=4, epochs=1, options=("head_norm=layer",))
    assert [len(index) for index in seen] == [4, 4, 1] * 2


def test_a_last_batch_above_the_batch_size_is_announced(seen: list[list[int]], tmp_path: Path) -> None:
    text = io.StringIO()
    train(tmp_path / "run", text, method="simclr", batch_size=2, epochs=1)
    assert [len(index) for index in seen] == [2, 2, 2, 3]
    assert "note: the last batch of every epoch has 3 samples, not 2" in text.getvalue()


@pytest.mark.parametrize("memory_gb", [None, 0.0], ids=["resident", "read ahead"])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_stopped_among_uneven_batches_goes_on_bit_for_bit(
    stop: int, memory_gb: float | None, tmp_path: Path, stop_after: Callable[[int], None]
) -> None:
    """9 instances are 4 + 3 + 2, in steps of two batches and of the one that is left."""
    settings: dict[str, Any] = {"method": "simclr", "batch_size": 4, "accumulate": 2, "memory_gb": memory_gb}
    whole = train(tmp_path / "whole", **settings)
    stop_after(stop)
    with pytest.raises(InterruptedRun, match=f"after step {stop} of 4"):
        train(tmp_path / "stopped", **settings)
    resumed = train(tmp_path / "stopped", **settings, resume=True)
    pairs = [
        [read_tensors(run.encoder_file)[0] for run in (resumed, whole)],
        [load_state(run).tensors for run in (resumed, whole)],
    ]
    for found, expected in pairs:
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize(
    ("settings", "smallest"),
    [
        ({"recipe": "paper"}, 2),  # one voxel and two views: one instance would give BatchNorm two values
        ({"recipe": "paper", "views": 3}, 1),
        ({"recipe": "paper", "method": "moco"}, 3),  # views pass one by one
        ({"recipe": "paper", "norm": "group"}, 1),
        ({"recipe": "paper", "norm": "group", "method": "simclr"}, 2),
        ({"recipe": "icone"}, 1),  # statistics reach back over earlier batches
    ],
)
def test_batch_norm_of_the_encoder_has_its_say(settings: dict[str, Any], smallest: int) -> None:
    config = PretrainConfig(**VOLUMES, **settings, batch_size=4)
    assert make_method(config, load_data(config)).smallest_batch == smallest
