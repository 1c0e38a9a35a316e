"""Several processes train what one process trains."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import world
from torch import Tensor

from icone.run import Run
from icone.training.checkpoint import SavedState, load_state


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """From a name to the folder of its run in one process."""
    folder = tmp_path_factory.mktemp("alone")
    return cache(lambda name: world.train(name, folder).folder)


def compare(found: Path, expected: Path) -> None:
    """The same weights, statistics, moments, random numbers and history, but for rounding."""
    a, b = (load_state(Run(folder)) for folder in (found, expected))
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in floats(a, "method").items():
        torch.testing.assert_close(tensor, b.tensors[name], rtol=1e-4, atol=1e-5, msg=lambda m: f"{name}: {m}")  # noqa: B023
    for name, tensor in floats(a, "optimizer").items():
        assert (tensor - b.tensors[name]).norm() <= 1e-3 * b.tensors[name].norm() + 1e-5, name
    assert torch.equal(a.tensors["random/cpu"], b.tensors["random/cpu"])
    assert [row["loss"] for row in a.history] == pytest.approx([row["loss"] for row in b.history], rel=1e-5)
    assert Run(found).finished


def floats(state: SavedState, part: str) -> dict[str, Tensor]:
    return {name: t for name, t in state.tensors.items() if name.split("/")[0] == part and t.is_floating_point()}


@pytest.mark.parametrize("size", [2, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 3, 4))])
def test_any_number_of_ranks_trains_the_same(size: int, alone: Callable[[str], Path], tmp_path: Path) -> None:
    world.run_world(size, tmp_path / "runs", list(world.variants()))
    for name in world.variants():
        compare(tmp_path / "runs" / name, alone(name))


@pytest.mark.slow
def test_a_run_of_two_ranks_is_resumed_by_three_and_by_one(alone: Callable[[str], Path], tmp_path: Path) -> None:
    names = ["icone", "moco", "accumulate"]
    world.run_world(2, tmp_path, names, callbacks=[world.stop_after_an_epoch])
    assert all(len(load_state(Run(tmp_path / name)).history) == 1 for name in names)
    assert not any(Run(tmp_path / name).finished for name in names)
    world.run_world(3, tmp_path, names[:2], resume=True)
    world.train("accumulate", tmp_path, resume=True)
    for name in names:
        compare(tmp_path / name, alone(name))
