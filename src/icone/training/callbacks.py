"""Callbacks: what follows a run from outside. Measurements, alarms, snapshots and loggers share one small protocol."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from icone.config import PretrainConfig
from icone.config_text import to_json
from icone.errors import InputError, optional
from icone.files import write_text
from icone.nn import plain_state_dict
from icone.run import Run
from icone.tensor_files import write_tensors
from icone.training.progress import MEASURED

Row = dict[str, Any]
"""A line of the history: numbers by name, and perhaps `geometry` and `probe`, dictionaries of further numbers; the
first may hold a `warning`."""


class Callback:
    """Is told about every epoch; leaves weights, modes and random generators as they are.

    A subclass overrides what it needs: `measure` to add to the row of an epoch, `end_epoch` to react to it.
    """

    def start(self, history: Sequence[Row]) -> None:
        """Training begins, or continues after the epochs of `history`."""

    def measure(self, epoch: int) -> Row:
        """Entries for the row of the epoch that has just ended."""
        return {}

    def end_epoch(self, row: Row) -> None:
        """The row is complete and written; `CollapseError` stops the run, with its state saved."""

    def close(self) -> None:
        """Training is over, for whatever reason."""


class FunctionCallback(Callback):
    """Calls a function with the row of every epoch."""

    def __init__(self, function: Callable[[Row], object]) -> None:
        self.function = function

    def end_epoch(self, row: Row) -> None:
        self.function(row)


def as_callback(given: Any) -> Callback:
    """A callback as it is, and a function as one."""
    if isinstance(given, Callback):
        return given
    if callable(given) and not isinstance(given, type):
        return FunctionCallback(given)
    raise InputError(f"callbacks are icone.Callback objects or functions of the row of an epoch, got {given!r}")


def flatten(row: Row) -> dict[str, float]:
    """The numbers of a row by name, those of `geometry` and `probe` as `geometry/name` and `probe/name`.

    >>> flatten({"epoch": 3, "loss": 0.5, "geometry": {"rankme": 12.0, "warning": "collapsed"}})
    {'loss': 0.5, 'geometry/rankme': 12.0}
    """
    parts = {part: row.get(part, {}) for part in MEASURED}
    flat = {name: value for name, value in row.items() if name not in ("epoch", *MEASURED)}
    nested = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
    return flat | {name: value for name, value in nested.items() if name != "geometry/warning"}


class Snapshots(Callback):
    """Writes the weights to `Run.snapshot_file(epochs)` after the given numbers of epochs."""

    def __init__(self, encoder: nn.Module, run: Run, epochs: Collection[int]) -> None:
        self.encoder, self.run, self.epochs = encoder, run, frozenset(epochs)

    def end_epoch(self, row: Row) -> None:
        if (done := row["epoch"] + 1) in self.epochs:
            write_tensors(self.run.snapshot_file(done), plain_state_dict(self.encoder), {})


class TensorBoardLogger(Callback):
    """Scalars as event files in the run folder; `tensorboard --logdir RUN` shows them."""

    def __init__(self, folder: Path, config: PretrainConfig) -> None:
        self.tensorboard = _package("torch.utils.tensorboard", "tensorboard")
        self.folder = folder

    def start(self, history: Sequence[Row]) -> None:
        # What an interrupted run wrote after its last saved state is written again: the older lines are dropped.
        self.writer = self.tensorboard.SummaryWriter(str(self.folder / "tensorboard"), purge_step=len(history))

    def end_epoch(self, row: Row) -> None:
        for name, value in flatten(row).items():
            self.writer.add_scalar(name, value, row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandbLogger(Callback):
    """Scalars to a Weights & Biases run of the project `icone`; a resumed run continues it."""

    def __init__(self, folder: Path, config: PretrainConfig) -> None:
        self.wandb = _package("wandb", "wandb")
        self.folder, self.config = folder, config

    def start(self, history: Sequence[Row]) -> None:
        self.run = self.wandb.init(
            project="icone",
            name=self.folder.name,
            dir=str(self.folder),
            config=to_json(self.config),
            id=_kept(self.folder / "wandb-run", lambda: uuid.uuid4().hex),
            resume="allow",
        )

    def end_epoch(self, row: Row) -> None:
        self.run.log(flatten(row), step=row["epoch"])

    def close(self) -> None:
        self.run.finish()


class MlflowLogger(Callback):
    """Metrics to an MLflow run, wherever MLFLOW_TRACKING_URI points; a resumed run continues it."""

    def __init__(self, folder: Path, config: PretrainConfig) -> None:
        self.mlflow = _package("mlflow", "mlflow")
        self.folder, self.config = folder, config

    def start(self, history: Sequence[Row]) -> None:
        try:
            self._begin()
        except self.mlflow.exceptions.MlflowException as error:  # no server, no rights, a store that it refuses
            raise InputError(f"MLflow cannot log to {self.mlflow.get_tracking_uri()}: {error}") from error

    def _begin(self) -> None:
        known = self.folder / "mlflow-run"
        if known.is_file():
            self.mlflow.start_run(run_id=known.read_text())
            return
        started = self.mlflow.start_run(run_name=self.folder.name)
        self.mlflow.log_params(to_json(self.config))
        write_text(known, started.info.run_id)

    def end_epoch(self, row: Row) -> None:
        self.mlflow.log_metrics(flatten(row), step=row["epoch"])

    def close(self) -> None:
        self.mlflow.end_run()


LOGGERS: dict[str, Callable[[Path, PretrainConfig], Callback]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def build_loggers(folder: Path, config: PretrainConfig) -> list[Callback]:
    """The loggers that the configuration names; an `InputError` where their package is missing."""
    return [LOGGERS[name](folder, config) for name in config.log]


def _package(module: str, package: str) -> Any:
    with optional(package, f"--log={package}"):
        return importlib.import_module(module)


def _kept(path: Path, make: Callable[[], str]) -> str:
    """The text of a file that is made once."""
    if not path.is_file():
        write_text(path, make())
    return path.read_text()
