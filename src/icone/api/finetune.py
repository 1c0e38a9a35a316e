"""`icone.finetune`: a run's encoder trained with labels, beside its linear probe and the same network from scratch."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from icone.api.build import check_given, check_known, given_objects, memory_errors
from icone.api.embed import load_encoder
from icone.api.evaluated import write_tested
from icone.api.evaluation_data import GivenData, changed_settings, read_evaluation_data
from icone.api.predict import WEIGHTS, FineTuned, load_classifier, read_record
from icone.api.summaries import NETWORKS
from icone.api.tuning import Network, Parts, Tuned, Tuning, choose_parts
from icone.config import FinetuneConfig
from icone.config_text import to_json
from icone.data.identity import content_digest, file_digest
from icone.data.targets import TaskSetting
from icone.errors import InputError, tell_interruptions
from icone.evaluation.assessment import Result
from icone.evaluation.comparison import compare_probes
from icone.evaluation.features import FrozenEncoder
from icone.files import remove, write_json, write_text
from icone.find_runs import FINETUNED
from icone.finetuning.fit import Row
from icone.outputs import from_here
from icone.run import Run, check_free
from icone.tensor_files import write_tensors
from icone.terminal import Terminal
from icone.validation import check_arguments, check_folder

USUAL_TEST = 0.2
"""Share of the labelled samples that tests, where nothing else is said."""


@check_arguments
def finetune(
    run: str | Path | Run,
    data: Any = None,
    *,
    labels: Any = None,
    label_column: tuple[str, ...] = (),
    groups: Any = None,
    group_column: str | None = None,
    task: TaskSetting = "auto",
    test: Any = None,
    test_labels: Any = None,
    official_test: bool = False,
    test_fraction: float = USUAL_TEST,
    scratch: bool = True,
    encoder: nn.Module | None = None,
    views: Any = None,
    out: Path | None = None,
    resume: bool = False,
    data_root: Path | None = None,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
    **settings: Any,
) -> FineTuned:
    """Train a run's encoder with labels; the run itself stays as it is, and a new folder `out` gets the outcome.

    Data, labels, groups, task and the test part are those of `icone.evaluate`, so that the scores stand beside those of
    its probes. `settings` are the fields of `icone.config.FinetuneConfig`: freeze, fraction, epochs, lr, ….

    The folder (by default that of the run with `-finetuned` behind its name) holds config.json, history.jsonl,
    classifier.safetensors and result.json: the scores of the fine-tuned network, of the linear probe of the encoder
    before, trained with the same labels, and, with `scratch`, of the same network fine-tuned from random weights.
    tested.npz holds what the fine-tuned network says of each test sample, for `icone.compare`.
    `resume` goes on after an interruption; a folder that is finished is read as it is.
    """
    check_known(settings, FinetuneConfig)
    config = FinetuneConfig(**settings)
    check_given(data=data, labels=labels, groups=groups, test=test)
    run = run if isinstance(run, Run) else Run.open(run)
    console = console or Terminal()
    folder = _target(run, out)
    objects = given_objects(run, encoder, views, "icone.finetune(run, {}=…)")
    encoder, views = objects.encoder, objects.views
    with memory_errors():
        frozen = load_encoder(run, device, encoder=encoder, views=views)
        columns = (tuple(label_column), group_column, task)
        changed = changed_settings(run.config, labels, columns, data_root, cache)
        given_data = GivenData.of(run, data, labels, groups, test, test_labels)
        samples = read_evaluation_data(
            run, changed, given_data, official_test, test_fraction, console, finetunes=True
        )  # fmt: skip
        parts = choose_parts(samples, config, run.config.split_seed)
        where = {
            "labels": labels, "label_column": label_column, "group_column": group_column, "test": test,
            "test_labels": test_labels, "task": None if task == "auto" else task, "data": data,
        }  # fmt: skip
        record = _record(run, config, parts, scratch) | {"given": _given_words(where, official_test, test_fraction)}
        with Run(folder).locked(), tell_interruptions(partial(_kept, folder)):
            if _begin(folder, record, resume):
                return load_classifier(folder, device, encoder=encoder, views=views)
            tuning = Tuning(
                pretrained=run, config=config, samples=samples, parts=parts, given=objects, device=device,
                console=console, states=folder / "state", resume=resume, after_epoch=_History(folder),
            )  # fmt: skip
            write_json(folder / "result.json", _train(tuning, frozen, folder, scratch))
            for name in NETWORKS:
                remove(folder / "state" / f"{name}.safetensors")
    return load_classifier(folder, device, encoder=encoder, views=views)


def _target(run: Run, out: Path | None) -> Path:
    """The folder to write, which must not be the run or inside it."""
    here = run.folder.resolve()
    folder = out or from_here(here.with_name(f"{here.name}-finetuned"))
    if here == folder.resolve() or here in folder.resolve().parents:
        raise InputError(f"{folder} is the pretrained run or inside it, which stays as it is: choose another --out")
    check_folder(folder)
    return folder


def _record(run: Run, config: FinetuneConfig, parts: Parts, scratch: bool) -> dict[str, Any]:
    """The config.json of the folder: all that reading it needs, without the run.

    Digests tell whether encoder and labels are the same when it goes on.
    """
    packages = ("icone", "torch", "timm", "numpy", "scikit-learn")
    return {
        "kind": FINETUNED,
        "settings": {**dataclasses.asdict(config), "scratch": scratch},
        "run": str(run.folder),
        "pretraining": to_json(run.config),
        "preparation": run.preparation.to_json(),
        "code": {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(parts.code).items()},
        "parts": parts.ids,
        "digests": {
            "encoder": file_digest(run.encoder_file),
            "labels": content_digest(json.dumps(parts.labelled()).encode()),
        },
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def _given_words(where: dict[str, Any], official_test: bool, test_fraction: float) -> list[str]:
    """The flags that say which data and labels were used; what was a Python object is left out."""
    words = ["--official-test"] if official_test else []
    words += [] if test_fraction == USUAL_TEST else ["--test-fraction", str(test_fraction)]
    for name, value in where.items():
        texts = [value] if isinstance(value, (str, os.PathLike)) else value if isinstance(value, tuple) else []
        if texts:
            words += [f"--{name.replace('_', '-')}", *map(os.fspath, texts)]
    return words


def _begin(folder: Path, record: dict[str, Any], resume: bool) -> bool:
    """Write config.json, or check that it is that of the same fine-tuning; whether that is finished already."""
    if not (folder / "config.json").exists():
        check_free(folder)
        write_json(folder / "config.json", record)
        return False
    if not resume:
        raise InputError(f"{folder} holds a run or a fine-tuning already: go on with --resume, or choose another --out")
    before = read_record(folder)
    for key, value in record["settings"].items():
        if (earlier := before["settings"].get(key)) != value:
            flag = key.replace("_", "-")
            begun = f"--{flag}={earlier}, not {value}"
            if isinstance(value, bool):
                switches = f"no-{flag}", flag
                begun = f"--{switches[not value]}, not --{switches[value]}"
            raise InputError(f"{folder} was begun with {begun}: choose another --out")
    known = before.get("digests", record["digests"])  # folders of earlier versions have none
    same_labels = all(before[key] == record[key] for key in ("parts", "code"))
    if not same_labels or known["labels"] != record["digests"]["labels"]:
        raise InputError(f"{folder} was begun with other samples or labels: choose another --out")
    if known["encoder"] != record["digests"]["encoder"]:
        raise InputError(
            f"{folder} was begun with another encoder: {record['run']} has been trained since. Choose another --out"
        )
    return (folder / "result.json").is_file() and (folder / WEIGHTS).is_file()


def _kept(folder: Path) -> str | None:
    """What a folder keeps of a fine-tuning that is interrupted between or before its epochs."""
    if not (folder / "config.json").is_file():
        return None
    if any((folder / "state").glob("*.safetensors")):
        return f"{folder} keeps all epochs that are finished"
    return f"no epoch is finished, and {folder} keeps the settings alone"


class _History:
    """Writes history.jsonl: a row per epoch and network, after every epoch."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "history.jsonl"
        self.rows: dict[str, list[Row]] = {}

    def __call__(self, name: str, history: Sequence[Row]) -> None:
        self.rows[name] = [{"network": name, **row} for row in history]
        write_text(self.file, "".join(json.dumps(row) + "\n" for rows in self.rows.values() for row in rows))


def _train(tuning: Tuning, frozen: FrozenEncoder, folder: Path, scratch: bool) -> dict[str, Any]:
    """Train, measure and compare; the content of result.json."""
    found: dict[str, Result] = {"probe": tuning.probe(frozen)}
    tuned: dict[Network, Tuned] = {"fine_tuned": tuning.tune("fine_tuned", frozen)}
    write_tensors(folder / WEIGHTS, tuned["fine_tuned"].progress.best, {"finished": True})
    if scratch:
        tuned["from_scratch"] = tuning.tune("from_scratch", tuning.encoder("from_scratch"))
    found |= {name: one.result for name, one in tuned.items()}
    write_tested(folder, tuning.samples, tuning.parts.partition, found["fine_tuned"])
    partition = tuning.partition
    test_labels, groups = partition.labels[partition.test].tolist(), partition.groups_of(partition.test)
    others = {
        name: compare_probes({"": found[name]}, {"": found["fine_tuned"]}, test_labels, [""], groups)[""]
        for name in ("probe", "from_scratch")
        if name in found
    }
    training = {
        name: {"epochs": len(one.progress.history), "best_epoch": one.progress.best_epoch + 1}
        for name, one in tuned.items()
    }
    return {
        "data": _describe(tuning, tuned),
        "training": training,
        "comparison": {name: difference.to_json() for name, difference in others.items()},
        **{name: found[name].to_json() for name in NETWORKS if name in found},
    }


def _describe(tuning: Tuning, tuned: Mapping[Network, Tuned]) -> dict[str, Any]:
    sizes = {name: len(ids) for name, ids in tuning.parts.ids.items()}
    epochs = [tuning.note_on_epoch(name, one.progress) for name, one in tuned.items()]
    notes = [*tuning.samples.notes, tuning.parts.note, *filter(None, [tuning.parts.code.note, *epochs])]
    return {**tuning.samples.describe(), **sizes, "fraction": tuning.config.fraction, "notes": notes}
