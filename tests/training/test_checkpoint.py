"""The state file holds the names of as many samples as there are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from icone.run import Run
from icone.training import checkpoint


def test_ids_of_more_than_100_mb_fit_into_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of safetensors end there: a million ids of 100 letters, or fewer that are longer."""
    ids = [f"{'a long name of a folder/' * 50}{number}.png" for number in range(100_000)]
    step: Any = SimpleNamespace(ranks=None)
    monkeypatch.setattr(checkpoint, "_tensors", lambda _: {"method/a": torch.ones(2)})
    book = checkpoint.StateBook(step=1, history=[], config={}, ids=ids, digests=["0" * 32] * len(ids))
    run = Run(tmp_path)
    checkpoint.save_state(run, step, book)
    assert run.state_file.stat().st_size > 100_000_000
    assert checkpoint.load_book(run).ids == ids
