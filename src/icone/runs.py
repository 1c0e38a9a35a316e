"""The run folder: what lies where, written atomically, by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from icone.config import PretrainConfig, from_json, to_json
from icone.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OWN_FILES = (
    "config.json", "instances.json", "history.jsonl", "state", "snapshots", "encoder.safetensors", "features.npz",
    "result.json", "tensorboard", "wandb", "wandb-run", "mlflow-run", ".lock",
)  # fmt: skip
"""Files and folders in a run folder that only the run itself writes."""


def refuse_own_file(path: Path) -> None:
    """Refuse to write over a file of a run folder."""
    place = Path(os.path.realpath(path))
    for folder in place.parents:
        if Run(folder).exists() and place.relative_to(folder).parts[0] in OWN_FILES:
            raise InputError(f"{path} is a file of the run {folder}: choose another --out")


class Run:
    """A folder with everything about one pretraining run; reading it needs nothing else.

    config.json          configuration, versions, what was found in the data and applied to it
    instances.json       ids of the training instances in the order of the anchor table, their labels
    history.jsonl        one line per epoch
    state/               what resuming needs
    snapshots/           the encoder's weights after the epochs of --snapshots
    encoder.safetensors  the encoder's weights
    features.npz, result.json   written by evaluation
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.state_file = self.folder / "state" / "state.safetensors"
        self.encoder_file = self.folder / "encoder.safetensors"
        self.features_file = self.folder / "features.npz"
        self.result_file = self.folder / "result.json"

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """A run that exists, or an `InputError` that says what is missing."""
        run = cls(folder)
        if not run.exists():
            raise InputError(f"{run.folder} is not a run folder (it has no config.json)")
        return run

    def exists(self) -> bool:
        return (self.folder / "config.json").is_file()

    def snapshot_file(self, epoch: int) -> Path:
        """Weights after an epoch, where the configuration asked to keep them."""
        return self.folder / "snapshots" / f"{epoch:05d}.safetensors"

    @property
    def record(self) -> dict[str, Any]:
        """The whole of config.json."""
        return self._read_json("config.json")

    @property
    def config(self) -> PretrainConfig:
        return from_json(self.record["config"])

    @property
    def instances(self) -> dict[str, Any]:
        """`ids`, `labels` and `class_names` of the training instances, `test_ids` of the held-out ones."""
        return self._read_json("instances.json")

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dictionary per finished epoch."""
        path = self.folder / "history.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # a kill can cut the last one short

    @property
    def result(self) -> dict[str, Any] | None:
        """What `icone evaluate` found, if it ran."""
        return self._read_json("result.json") if self.result_file.is_file() else None

    @property
    def finished(self) -> bool:
        return self.encoder_file.is_file() and read_metadata(self.encoder_file).get("finished") == "true"

    def __repr__(self) -> str:
        config = self.config
        done, state = len(self.history), "finished" if self.finished else "unfinished"
        return f"<Run {self.folder}: {config.method} on {config.source}, {done}/{config.epochs} epochs, {state}>"

    # Conveniences for notebooks; the import inside is the one exception from the order of the rooms.

    def plot_history(self) -> Figure:
        """Loss terms over epochs, as a matplotlib figure."""
        from icone.report import figures

        return figures.plot_history(self)

    def plot_spectrum(self) -> Figure:
        """Singular values of the features, as a matplotlib figure; needs `icone.evaluate`."""
        from icone.report import figures

        return figures.plot_spectrum(self)

    def plot_map(self, projection: Literal["umap", "tsne", "pca"] = "umap", colour: str = "label") -> Figure:
        """The samples in two dimensions, coloured by label, cluster or density; needs `icone.evaluate`."""
        from icone.report import figures

        return figures.plot_map(self, projection=projection, colour=colour)

    def _repr_html_(self) -> str:
        from icone.report.notebook import run_html

        return run_html(self)

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.folder / name).read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"cannot read {self.folder / name}: {error}") from error
        return content

    # Writing: only `fit` and the functions of the api do it, under `locked`.

    def describe(self, config: PretrainConfig, facts: dict[str, Any], instances: dict[str, Any]) -> None:
        """Write what is known before the first step; config.json last, because it makes the folder a run."""
        write_json(self.folder / "instances.json", instances)
        write_json(self.folder / "config.json", {"config": to_json(config), **facts})

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        write_text(self.folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def append_history(self, row: dict[str, Any]) -> None:
        with _disk_errors(self.folder), (self.folder / "history.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for writing; a second process is refused. A killed process leaves no lock behind."""
        with _disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise InputError(
                    f"another process is writing {self.folder}: wait for it to end, or choose another --out"
                ) from None
        try:
            yield
        finally:
            lock.release()


def write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode())  # \udcff, of a name that is not UTF-8, is JSON


def write_text(path: Path, text: str) -> None:
    """Replace a file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Replace a safetensors file whole or not at all."""
    with replacing(path) as temporary:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            temporary,
            metadata,
        )


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        return load_file(path), read_metadata(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def read_metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, and move it there once it is complete and on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.touch()
            mode = temporary.stat().st_mode  # what the umask gives; safetensors would leave the file to its owner
            yield temporary
            temporary.chmod(mode)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn what a disk can refuse into a sentence; whatever stood at `path` before is still there."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else None
        if code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            raise InputError(
                f"the disk is full: could not write {path}. What was saved before is kept; "
                "free some space and continue with --resume"
            ) from error
        if isinstance(error, PermissionError) or code == errno.EROFS or "Permission denied" in str(error):
            raise InputError(f"no permission to write {path}: choose another --out") from error
        if code in (errno.ENOTDIR, errno.EEXIST):
            raise InputError(f"cannot write {path}: a file is in the way; choose another --out") from error
        raise
