"""Weights after chosen epochs, and evaluation of what a run drew."""

from __future__ import annotations

import io
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import icone
from icone.config import PretrainConfig
from icone.config_text import to_command
from icone.errors import InputError
from icone.run import Run
from icone.tensor_files import read_tensors

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x80", "features": 4, "batch_size": 16, "device": "cpu"}


def test_snapshots_are_the_weights_after_their_epochs(tmp_path: Path) -> None:
    run = icone.pretrain(**POINTS, epochs=3, snapshots=(1, 3), out=tmp_path / "run")
    first, last = (read_tensors(run.snapshot_file(epoch))[0] for epoch in (1, 3))
    final = read_tensors(run.encoder_file)[0]
    assert {path.name for path in (run.folder / "snapshots").iterdir()} == {"00001.safetensors", "00003.safetensors"}
    assert all(last[name].equal(final[name]) for name in final)
    assert not all(first[name].equal(final[name]) for name in final)


def test_a_run_on_a_subset_is_evaluated_on_it(tmp_path: Path) -> None:
    run = icone.pretrain(**POINTS, epochs=1, subset=30, test_fraction=0.2, out=tmp_path / "run")
    data = icone.evaluate(run, geometry_instances=4)["data"]
    assert (data["samples"], data["train"], data["test"]) == (30, 24, 6)


def kept(run: Run) -> list[int]:
    return sorted(int(path.stem) for path in (run.folder / "snapshots").glob("*"))


def test_snapshots_of_an_extended_run_count_from_its_beginning(tmp_path: Path) -> None:
    settings = POINTS | {"epochs": 2, "out": tmp_path / "run"}
    run = icone.pretrain(**settings, snapshots=(1,))
    with pytest.raises(InputError, match="snapshots must be at most 4, the epochs of the whole run, got 3 5"):
        icone.pretrain(**settings, extend=True, snapshots=(3, 5))
    assert run.finished
    told = Console(file=io.StringIO(), width=500)
    run = icone.pretrain(**settings, extend=True, snapshots=(1, 2, 3, 4), console=told)
    assert kept(run) == [1, 3, 4]
    assert isinstance(told.file, io.StringIO)
    assert "note: the weights after epoch 2, which snapshots= asks for, are gone: " in told.file.getvalue()
    assert "epochs count from the beginning of the run, and 2 of 4 are done" in told.file.getvalue()
    final = read_tensors(run.encoder_file)[0]
    assert all(tensor.equal(final[name]) for name, tensor in read_tensors(run.snapshot_file(4))[0].items())
    assert Run(run.folder).config.snapshots == (1, 2, 3, 4)
    run = icone.pretrain(**settings | {"epochs": 5}, extend=True, snapshots=(6,))  # 2, and the 5 of the last schedule
    assert kept(run) == [1, 3, 4, 6]


def test_snapshots_of_a_longer_schedule_count_alike(tmp_path: Path) -> None:
    """A finished run of 2 epochs that is extended to 4 in all goes on with its schedule."""
    icone.pretrain(**POINTS, epochs=2, out=tmp_path / "run")
    with pytest.raises(InputError, match="snapshots must be at most epochs=4, got 5"):
        icone.pretrain(**POINTS, epochs=4, extend=True, snapshots=5, out=tmp_path / "run")
    assert kept(icone.pretrain(**POINTS, epochs=4, extend=True, snapshots=3, out=tmp_path / "run")) == [3]


def test_snapshots_after_the_last_epoch_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    settings = POINTS | {"epochs": 2, "snapshots": (3,)}
    with pytest.raises(InputError, match="snapshots must be at most epochs=2, got 3"):
        icone.pretrain(**settings, out=tmp_path / "run")
    with pytest.raises(InputError, match="snapshots must be at most epochs=2, got 3"):
        icone.pretrain_many([PretrainConfig(**settings)], [tmp_path / "run"])
    assert not (tmp_path / "run").exists()


def test_what_repeats_an_extended_run_has_no_snapshots_that_only_that_run_has(tmp_path: Path) -> None:
    run = icone.pretrain(**POINTS, epochs=1, out=tmp_path / "run")
    run = icone.pretrain(**POINTS, epochs=1, extend=True, snapshots=(1, 2), out=run.folder)
    assert tomllib.loads((run.folder / "config.toml").read_text())["snapshots"] == [1]
    assert "--snapshots 1 --" in shlex.join([*to_command(run.config), "--"])
