"""The run folder: what lies where, written atomically, by one process at a time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakValueDictionary

from filelock import FileLock, Timeout
from torch import Tensor

from icone.config import PretrainConfig
from icone.config_text import from_json, to_json, to_toml
from icone.data import Preparation
from icone.errors import InputError
from icone.files import disk_errors, move, remove, remove_leftovers, write_json, write_text
from icone.find_runs import is_finetuned, no_run
from icone.readable import Part, Readable
from icone.tensor_files import read_metadata, read_tensors
from icone.terminal import counted
from icone.wording import all_in_user_terms

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Read = TypeVar("Read")

FINISHED_SHARES = "finished_shares.json"
"""Scores of networks that `icone evaluate` has fine-tuned, while others are still to come."""

TESTED = "tested.npz"
"""What a fine-tuned network says of each test sample."""

EARLIER = "earlier"
"""Folder for the results of trainings that the run has extended."""

OWN_FILES = (
    "config.json", "config.toml", "instances.json", "history.jsonl", "state", "snapshots", "initial.safetensors",
    "encoder.safetensors", "classifier.safetensors", "features.npz", "result.json", EARLIER, "tensorboard", "wandb",
    "wandb-run", "mlflow-run", ".lock", FINISHED_SHARES, TESTED,
)  # fmt: skip
"""Files and folders in a run folder that only the run itself writes."""


EARLIER_RESULT = re.compile(r"result-after-(\d+)-epochs\.json")
RESULT: dict[str, type | tuple[type, ...]] = {"trained": dict, "data": dict, "verdict": (dict, str)}
"""What a result must hold."""


def remembered_objects(folder: str | Path) -> dict[str, Any]:
    """What `icone.pretrain` was given as Python objects for the run in a folder; empty where no `Run` remembers it."""
    run = _REMEMBERING.get(os.path.realpath(folder))
    return {} if run is None else run.objects


def check_free(folder: Path) -> None:
    """Refuse a folder for a new run that holds files of somebody else; an empty one, or a run's own start, is fine.

    What was killed before its config.json was written has left a state, and nothing but a run's own files.
    """
    if not folder.is_dir():
        return
    there = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    strange = sorted(there - set(OWN_FILES) if (folder / "state").is_dir() else there)
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        other = folder / "run" if folder.name in ("", "..") else folder.with_name(f"{folder.name}-run")
        raise InputError(
            f"{folder} holds other files, such as {strange[0]}{more}, and a run needs a folder of its own: choose "
            f"another, such as --out={shlex.quote(other.as_posix())}"
        )


def free_folder(taken: Path) -> Path:
    """The first folder of this name and a number that is not there yet: where a run can be repeated.

    >>> free_folder(Path("runs/no such run")).as_posix()
    'runs/no such run-2'
    """
    taken = taken if taken.name not in ("", "..") else taken.absolute()
    numbered = (taken.with_name(f"{taken.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in numbered if not folder.exists())


def refuse_own_file(path: Path) -> None:
    """Refuse to write over a file of a run folder."""
    place = Path(os.path.realpath(path))
    for folder in place.parents:
        if Run(folder).exists() and place.relative_to(folder).parts[0] in OWN_FILES:
            raise InputError(f"{path} is a file of the run {folder}: choose another --out")


class Run:
    """A folder with everything about one pretraining run; reading it needs nothing else.

    config.json          configuration, versions, what was found in the data and applied to it
    config.toml          the configuration as settings that `icone pretrain --config` takes
    instances.json       ids of the training instances in the order of the anchor table, their labels
    history.jsonl        one line per epoch
    state/               what resuming needs
    snapshots/           the encoder's weights after the epochs of --snapshots
    initial.safetensors  weights before training of an encoder that was given as a Python object or --weights
    encoder.safetensors  the encoder's weights
    features.npz, result.json   written by evaluation
    earlier/             results of trainings that the run has extended since: result-after-2-epochs.json
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.state_file = self.folder / "state" / "state.safetensors"
        self.encoder_file = self.folder / "encoder.safetensors"
        self.initial_file = self.folder / "initial.safetensors"
        self.features_file = self.folder / "features.npz"
        self.result_file = self.folder / "result.json"
        self.objects: dict[str, Any] = {}
        """What `icone.pretrain` was given as Python objects in this process: encoder, views, data, labels, groups."""

    def remember(self, objects: dict[str, Any]) -> None:
        """Keep Python objects that belong to the run, for all who open its folder while this `Run` is in use."""
        self.objects = objects
        _REMEMBERING[os.path.realpath(self.folder)] = self

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """A run that exists, or an `InputError` that says what is missing."""
        run = cls(folder)
        run.objects = remembered_objects(folder)
        if not run.folder.exists():
            raise no_run(run.folder, f"there is no run {run.folder}")
        if not run.exists():
            raise no_run(run.folder, f"{run.folder} is not a run folder (it has no config.json)")
        if run.is_finetuned:
            came_from = run.read_json("config.json").get("run")
            way_out = f"give the run it came from, {came_from}, or use icone predict"
            raise InputError(f"{run.folder} holds a fine-tuned classifier: {way_out}")
        return run

    def exists(self) -> bool:
        return (self.folder / "config.json").is_file()

    @property
    def is_finetuned(self) -> bool:
        """Whether the folder is that of `icone finetune`."""
        return is_finetuned(self.folder)

    def snapshot_file(self, epochs: int) -> Path:
        """Weights after so many epochs, where the configuration asked to keep them."""
        return self.folder / "snapshots" / f"{epochs:05d}.safetensors"

    @property
    def record(self) -> dict[str, Any]:
        """The whole of config.json."""
        return self.read_json("config.json", {"config": dict, "data": dict})

    @property
    def notes(self) -> list[str]:
        """What was said about the data and the method, with settings as the reader of now can type them."""
        told: list[str] = all_in_user_terms(self.record["data"]["notes"])
        return told

    @property
    def config(self) -> PretrainConfig:
        return self._decode("config.json", lambda: from_json(self.record["config"]))

    @property
    def preparation(self) -> Preparation:
        """How the run's samples become tensors."""
        return self._decode("config.json", lambda: Preparation.from_json(self.record["data"]["preparation"]))

    @property
    def epochs(self) -> int:
        """Epochs that the history has when the run is finished: those of earlier trainings that it extends count."""
        return int(self.record.get("epochs_before", 0)) + self.config.epochs

    @property
    def instances(self) -> dict[str, Any]:
        """`ids`, `labels` and `class_names` of the training instances, `test_ids` of the held-out ones."""
        return self.read_json("instances.json", {"ids": list, "labels": list, "test_ids": list, "minority": list})

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dictionary per finished epoch."""
        path = self.folder / "history.jsonl"
        if not path.is_file():
            return []

        def read() -> list[dict[str, Any]]:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            rows = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill can cut the last one short
            if not all(isinstance(row, dict) and isinstance(row.get("epoch"), int) for row in rows):
                raise ValueError("a line is not about an epoch")
            return rows

        return self._decode(path.name, read)

    @property
    def result(self) -> dict[str, Any] | None:
        """What `icone evaluate` found about the encoder, if it ran and the run has not been extended since."""
        if not self.result_file.is_file() or self._is_extended:
            return None
        return Readable(all_in_user_terms(self.read_json("result.json", RESULT)), _shown)

    @property
    def earlier_results(self) -> dict[int, Path]:
        """The files of what `icone evaluate` found before the run was extended, by the epochs that it had then."""
        found = {path: EARLIER_RESULT.fullmatch(path.name) for path in self.folder.glob(f"{EARLIER}/*.json")}
        return dict(sorted((int(match[1]), path) for path, match in found.items() if match))

    @property
    def why_no_result(self) -> str:
        """The end of a sentence about a run without a result of its encoder."""
        if not self.earlier_results:
            return "has not been evaluated yet"
        return f"was evaluated after {counted(max(self.earlier_results), 'epoch')}, and has been extended since"

    @property
    def finished(self) -> bool:
        """Whether the encoder is the outcome of the whole training, of the last one where the run was extended."""
        said = self._said(self.encoder_file)
        return said.get("finished") in (True, "true") and not self._is_extended  # a text in version 0.1

    @property
    def _is_extended(self) -> bool:
        """Whether a further training has begun since the encoder was written: encoder and results are of the former."""
        begun, done = (self._said(file).get("extensions", 0) for file in (self.state_file, self.encoder_file))
        return self.encoder_file.is_file() and done < begun

    @staticmethod
    def _said(file: Path) -> dict[str, Any]:
        """The metadata of a file; nothing where it is missing or damaged, which is said when it is needed."""
        try:
            return read_metadata(file) if file.is_file() else {}
        except InputError:
            return {}

    def trained_weights(self) -> dict[str, Tensor]:
        """The weights of the trained encoder, or an `InputError` where there are none that can be used."""
        if not self.encoder_file.is_file():
            raise InputError(f"{self.folder} holds no encoder yet: finish the run with --resume")
        weights, _ = read_tensors(self.encoder_file)
        if not self.finished:
            raise InputError(f"{self.encoder_file} is not that of a finished training: finish the run with --resume")
        if bad := [name for name, t in weights.items() if t.is_floating_point() and not t.isfinite().all()]:
            raise InputError(f"{self.encoder_file} is damaged: {bad[0]} is not finite; train anew under another --out")
        return weights

    def __repr__(self) -> str:
        config = self.config
        done, state = len(self.history), "finished" if self.finished else "unfinished"
        return f"<Run {self.folder}: {config.method} on {config.source}, {done}/{self.epochs} epochs, {state}>"

    # Conveniences for notebooks; the import inside is the one exception from the order of imports.

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

    def read_json(self, name: str, wanted: Mapping[str, type | tuple[type, ...]] | None = None) -> dict[str, Any]:
        """The content of a file of the folder, which must hold values of the `wanted` types under these keys."""

        def read() -> dict[str, Any]:
            content = json.loads((self.folder / name).read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise ValueError("it holds no JSON object")
            if missing := [key for key, kind in (wanted or {}).items() if not isinstance(content.get(key), kind)]:
                raise ValueError(f"it says nothing usable about {', '.join(missing)}")
            return content

        return self._decode(name, read)

    def _decode(self, name: str, read: Callable[[], Read]) -> Read:
        """What a file of the folder holds; whatever is wrong with it becomes an `InputError` that names it."""
        try:
            return read()
        except InputError as error:
            raise InputError(f"cannot use {self.folder / name}: {error}") from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else error
            raise InputError(f"cannot read {self.folder / name}, it is missing or damaged: {reason}") from error

    # Writing: only `pretrain` and `evaluate` do it, under `locked`.

    def begin(
        self, config: PretrainConfig, facts: dict[str, Any], instances: dict[str, Any], history: list[dict[str, Any]]
    ) -> None:
        """Write what is known before the first step of a training whose state is saved already.

        The saved state decides what the run is; the rest follows it, so that after a kill in between `--resume` goes
        on and writes it again. Outcomes of an earlier training go first; config.json, which makes the folder a run,
        comes last. The result of a training that is extended is kept under another name; its encoder is gone.
        """
        if not (self.exists() and self.finished):
            if self.exists():
                move(self.result_file, self.folder / EARLIER / f"result-after-{self.epochs}-epochs.json")
            for stale in (self.result_file, self.features_file, self.encoder_file):
                remove(stale)
        self.write_history(history)
        self.describe(config, facts, instances)

    def describe(self, config: PretrainConfig, facts: dict[str, Any], instances: dict[str, Any]) -> None:
        """Write what was found and decided; config.json last, because it makes the folder a run."""
        write_json(self.folder / "instances.json", instances)
        if (settings := to_toml(config, self._about_settings(facts))) is None:
            remove(self.folder / "config.toml")
        else:
            write_text(self.folder / "config.toml", settings)
        write_json(self.folder / "config.json", {"config": to_json(config), **facts})

    def _about_settings(self, facts: dict[str, Any]) -> list[str]:
        """What config.toml says to its reader: a run's own folder is taken, so that repeating it needs another."""
        file, folder = (self.folder / "config.toml").as_posix(), free_folder(self.folder).as_posix()
        about, verb = "The settings of this run.", "repeats it"
        if facts.get("extensions") or facts.get("changes"):
            about, verb = "The last settings of this run, which had other samples or settings before.", "trains anew"
        command = shlex.join(["icone", "pretrain", "--config", file, "--out", folder])
        return [about, f"From the folder in which it was started, this {verb}, in another folder:", command]

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        write_text(self.folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def append_history(self, row: dict[str, Any]) -> None:
        with disk_errors(self.folder), (self.folder / "history.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for writing; a second process is refused. A killed process leaves no lock behind."""
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", timeout=0)
            try:
                lock.acquire()
            except Timeout:
                raise InputError(
                    f"another process is writing {self.folder}: wait for it to end, or choose another --out"
                ) from None
        try:
            for folder in (self.folder, self.state_file.parent, self.folder / "snapshots"):
                remove_leftovers(folder)
            yield
        finally:
            lock.release()


_REMEMBERING: WeakValueDictionary[str, Run] = WeakValueDictionary()
"""Runs that remember objects, by their folders; whoever trained them decides how long they, and the objects, live."""


def _shown(result: dict[str, Any]) -> list[Part]:
    """What is said about the result of an evaluation, for a reader in a notebook or a terminal."""
    from icone.report.notebook import evaluation_parts

    return evaluation_parts(result)
