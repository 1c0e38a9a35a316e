"""The encoder's weights after chosen epochs, for pictures of how a representation came about."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from icone.nn import plain_state_dict
from icone.run import Run, write_tensors
from icone.training.observers import Observer, Row


class Snapshots(Observer):
    """Writes the weights to `Run.snapshot_file(epoch)` at the end of the given epochs."""

    def __init__(self, encoder: nn.Module, run: Run, epochs: Collection[int]) -> None:
        self.encoder, self.run, self.epochs = encoder, run, frozenset(epochs)

    def end_epoch(self, row: Row) -> None:
        if row["epoch"] in self.epochs:
            write_tensors(self.run.snapshot_file(row["epoch"]), plain_state_dict(self.encoder), {})
