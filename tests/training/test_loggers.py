"""Loggers: the real tools where they are installed, and stand-ins for what only an account or a server would show."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from icone.api.pretrain import pretrain
from icone.config import PretrainConfig
from icone.errors import InputError
from icone.training.callbacks import MlflowLogger, WandbLogger, build_loggers

POINTS: dict[str, Any] = {"source": "synthetic:gaussians", "subset": 20, "epochs": 3, "features": 4}
ROW = {"epoch": 7, "loss": 0.5, "lr": 1e-4, "geometry": {"rankme": 12.0}}


def test_tensorboard_files_hold_the_history(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = pretrain(**POINTS, log=("tensorboard",), out=tmp_path / "run", console=Console(file=io.StringIO()))
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    assert losses == [(row["epoch"], pytest.approx(row["loss"], rel=1e-6)) for row in run.history]
    ranks = {event.step: event.value for event in events.Scalars("geometry/rankme")}
    assert ranks == {
        row["epoch"]: pytest.approx(row["geometry"]["rankme"], rel=1e-6) for row in run.history if "geometry" in row
    }


def test_mlflow_holds_the_history_of_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = pretrain(**POINTS, log=("mlflow",), out=tmp_path / "run", console=Console(file=io.StringIO()))
    pretrain(**POINTS, log=("mlflow",), out=tmp_path / "run", resume=True, console=Console(file=io.StringIO()))
    name = (run.folder / "mlflow-run").read_text()
    [stored] = (tmp_path / "store").glob(f"*/{name}")  # one run, not two
    lines = [line.split() for line in (stored / "metrics" / "loss").read_text().splitlines()]
    assert [(int(step), float(value)) for _, value, step in lines] == [(r["epoch"], r["loss"]) for r in run.history]
    assert (stored / "params" / "source").read_text() == POINTS["source"]


def test_mlflow_without_its_store_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(InputError, match="MLflow cannot log to nonsense://nowhere"):
        pretrain(**POINTS, log=("mlflow",), out=tmp_path / "run", console=Console(file=io.StringIO()))


def test_wandb_writes_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DATA_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    run = pretrain(**POINTS, log=("wandb",), out=tmp_path / "run", console=Console(file=io.StringIO()))
    name = (run.folder / "wandb-run").read_text()
    [written] = run.folder.glob(f"wandb/offline-run-*/run-{name}.wandb")
    content = written.read_bytes()
    for part in (b"geometry/rankme", b"anchor_alignment", POINTS["source"].encode()):
        assert part in content


class Calls(list[tuple[str, tuple[Any, ...], dict[str, Any]]]):
    """Records calls under their name; every call gives the same answer."""

    def recorder(self, name: str, answer: Any = None) -> Any:
        def record(*arguments: Any, **named: Any) -> Any:
            self.append((name, arguments, named))
            return answer

        return record


def test_wandb_gets_flat_rows_and_one_identity_per_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    remote = SimpleNamespace(log=calls.recorder("log"), finish=calls.recorder("finish"))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=calls.recorder("init", remote)))
    config = PretrainConfig(**POINTS)
    for _ in range(2):  # a run and its continuation
        logger = WandbLogger(tmp_path, config)
        logger.start([])
        logger.end_epoch(ROW)
        logger.close()
    assert [name for name, _, _ in calls] == ["init", "log", "finish"] * 2
    first, second = (named for name, _, named in calls if name == "init")
    assert first["id"] == second["id"]
    assert first["config"]["source"] == "synthetic:gaussians"
    assert calls[1] == ("log", ({"loss": 0.5, "lr": 1e-4, "geometry/rankme": 12.0},), {"step": 7})


def test_mlflow_gets_parameters_once_and_metrics_by_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    started = SimpleNamespace(info=SimpleNamespace(run_id="abc"))
    names = ("log_params", "log_metrics", "end_run")
    fake = SimpleNamespace(
        exceptions=SimpleNamespace(MlflowException=OSError),
        start_run=calls.recorder("start_run", started),
        **{name: calls.recorder(name) for name in names},
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    for _ in range(2):
        logger = MlflowLogger(tmp_path, PretrainConfig(**POINTS))
        logger.start([])
        logger.end_epoch(ROW)
        logger.close()
    assert [name for name, _, _ in calls] == [
        "start_run", "log_params", "log_metrics", "end_run", "start_run", "log_metrics", "end_run",
    ]  # fmt: skip
    assert calls[4][2] == {"run_id": "abc"}
    assert calls[2] == ("log_metrics", ({"loss": 0.5, "lr": 1e-4, "geometry/rankme": 12.0},), {"step": 7})


def test_a_missing_package_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = PretrainConfig(source="x", log=("wandb",))
    with pytest.raises(InputError, match=r"pip install 'icone\[wandb\]'"):
        build_loggers(tmp_path, config)
    with pytest.raises(InputError, match=r"log must be .* one of tensorboard, wandb, mlflow, got"):
        PretrainConfig(source="x", log=("wandbb",))  # type: ignore[arg-type]
