"""Weights after chosen epochs, and evaluation of what a run drew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icone
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
