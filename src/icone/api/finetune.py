"""`icone.finetune`: a run's encoder trained with labels, beside its linear probe and the same network from scratch."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from icone import cuda
from icone.api.build import (
    Given,
    autocast_dtype,
    check_given,
    check_known,
    given_objects,
    make_encoder,
    make_views,
    make_weak_views,
    memory_errors,
    own_randomness,
    pick_device,
)
from icone.api.embed import CALIBRATION_SEED, extract_with_progress, load_encoder, untrained_encoder
from icone.api.evaluation_data import GivenData, changed_settings, read_evaluation_data
from icone.api.partition import GEOMETRY_ONLY, EvaluationData
from icone.api.predict import WEIGHTS, FineTuned, load_classifier, read_record
from icone.api.summaries import NETWORKS, PROBES
from icone.config import FinetuneConfig, to_json
from icone.data import Dataset
from icone.data.targets import TaskSetting
from icone.encoders import check_batch_norm
from icone.encoders.calibration import calibrate_batch_norm, calibration_rows
from icone.errors import InputError
from icone.evaluation.assessment import Partition, Result, run_probes
from icone.evaluation.comparison import compare_probes
from icone.evaluation.features import FrozenEncoder
from icone.evaluation.label_efficiency import draw_labels
from icone.finetuning.classifier import Classifier, outputs_of
from icone.finetuning.fit import Progress, Task, fit
from icone.finetuning.holdout import compact, hold_out
from icone.finetuning.label_code import LabelCode
from icone.nn import convert_batch_norm
from icone.recipe import FINETUNE_ENCODER, ContinuedSettings
from icone.run import FINETUNED, Run, check_free, remove, write_json, write_tensors, write_text
from icone.terminal import Terminal, say
from icone.training.context import kept_random_state
from icone.training.progress import choose_display
from icone.validation import check_arguments, check_folder


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
    test_fraction: float = 0.2,
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
        samples = read_evaluation_data(run, changed, given_data, official_test, test_fraction, console)
        parts = _choose(samples, config, run.config.split_seed)
        record = _record(run, config, parts, scratch)
        with Run(folder).locked():
            if _begin(folder, record, resume):
                return load_classifier(folder, device, encoder=encoder, views=views)
            work = _Work(run, folder, config, samples, parts, objects, device, resume, console)
            result = work.run(frozen, scratch)
            write_json(folder / "result.json", result)
            for name in NETWORKS:
                remove(work.state_file(name))
    return load_classifier(folder, device, encoder=encoder, views=views)


def _target(run: Run, out: Path | None) -> Path:
    """The folder to write, which must not be the run or inside it."""
    here = run.folder.resolve()
    folder = out or here.with_name(f"{here.name}-finetuned")
    if here == folder.resolve() or here in folder.resolve().parents:
        raise InputError(f"{folder} is the pretrained run or inside it, which stays as it is: choose another --out")
    check_folder(folder)
    return folder


@dataclass(frozen=True)
class _Parts:
    """Rows of the samples that train, validate and test."""

    partition: Partition
    """Its training rows are all whose labels are used: those of the probe, and of training and validation together."""
    train: np.ndarray
    val: np.ndarray
    code: LabelCode
    note: str
    ids: dict[str, list[str]]


def _choose(samples: EvaluationData, config: FinetuneConfig, split_seed: int) -> _Parts:
    if samples.partition is None:
        why = samples.note.replace(GEOMETRY_ONLY, "")
        raise InputError(f"fine-tuning needs labels of a training and a test part, but {why}")
    partition = samples.partition
    used = dataclasses.replace(partition, train=draw_labels(partition, config.fraction, config.seed))
    own = samples.datasets[0]
    assigned = None if own.source.assigned is None else [own.source.assigned[p] for p in own.positions]
    train, val, note = hold_out(used, config.val_fraction, split_seed, assigned)
    code = LabelCode.of(used.task, used.labels[used.train].tolist())
    rows = {"train": train, "val": val, "test": used.test}
    return _Parts(used, train, val, code, note, {part: [samples.ids[row] for row in rows[part]] for part in rows})


def _record(run: Run, config: FinetuneConfig, parts: _Parts, scratch: bool) -> dict[str, Any]:
    """The config.json of the folder: all that reading it needs, without the run."""
    packages = ("icone", "torch", "timm", "numpy", "scikit-learn")
    return {
        "kind": FINETUNED,
        "settings": {**dataclasses.asdict(config), "scratch": scratch},
        "run": str(run.folder),
        "pretraining": to_json(run.config),
        "preparation": run.preparation.to_json(),
        "code": {**dataclasses.asdict(parts.code), "names": list(parts.code.names)},
        "parts": parts.ids,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }


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
        if before["settings"].get(key) != value:
            flag = key.replace("_", "-")
            raise InputError(
                f"{folder} was begun with --{flag}={before['settings'].get(key)}, not {value}: choose another --out"
            )
    if before["parts"] != record["parts"] or before["code"] != record["code"]:
        raise InputError(f"{folder} was begun with other samples or labels: choose another --out")
    return (folder / "result.json").is_file() and (folder / WEIGHTS).is_file()


@dataclass
class _Work:
    """One fine-tuning: what it learns from, and what it writes."""

    pretrained: Run
    folder: Path
    config: FinetuneConfig
    samples: EvaluationData
    parts: _Parts
    given: Given
    device: str
    resume: bool
    console: Console

    def __post_init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        preparation = self.pretrained.preparation
        make = make_weak_views if self.config.augment == "weak" else make_views
        needs_views = self.config.augment != "none"
        self.views = (
            make(self.pretrained.config, preparation, self.given).to(pick_device(self.device)) if needs_views else None
        )
        self.train, self.val, self.test = (
            _subset(self.samples.datasets, rows) if len(rows) else None
            for rows in (self.parts.train, self.parts.val, self.parts.partition.test)
        )
        self.partition = compact(self.parts.partition, self.parts.partition.train)

    def state_file(self, name: str) -> Path:
        return self.folder / "state" / f"{name}.safetensors"

    def run(self, frozen: FrozenEncoder, scratch: bool) -> dict[str, Any]:
        """Train, measure and compare; the content of result.json."""
        found: dict[str, Result] = {"probe": self._probe(frozen)}
        rates = ContinuedSettings(self.config.encoder_lr, self.config.layer_decay, self.config.warmup)
        progress = {"fine_tuned": self._fit("fine_tuned", frozen, rates, self.config.freeze)}
        write_tensors(self.folder / WEIGHTS, progress["fine_tuned"].best, {"finished": True})
        found["fine_tuned"] = self._score(frozen, progress["fine_tuned"])
        if scratch:
            random = untrained_encoder(
                self.pretrained, self.samples.datasets[0], self.device, self.given, from_scratch=True
            )
            rates = ContinuedSettings(FINETUNE_ENCODER, 1.0, self.config.warmup)
            progress["from_scratch"] = self._fit("from_scratch", random, rates, freeze=0.0)
            found["from_scratch"] = self._score(random, progress["from_scratch"])
        test_labels = self.partition.labels[self.partition.test].tolist()
        others = {
            name: compare_probes({"": found[name]}, {"": found["fine_tuned"]}, test_labels, [""])[""]
            for name in ("probe", "from_scratch")
            if name in found
        }
        return {
            "data": self._describe(),
            "training": {
                name: {"epochs": len(p.history), "best_epoch": p.best_epoch + 1} for name, p in progress.items()
            },
            "comparison": {name: difference.to_json() for name, difference in others.items()},
            **{name: found[name].to_json() for name in NETWORKS if name in found},
        }

    def _describe(self) -> dict[str, Any]:
        sizes = {name: len(ids) for name, ids in self.parts.ids.items()}
        notes = [*self.samples.notes, self.parts.note]
        return {**self.samples.describe(), **sizes, "fraction": self.config.fraction, "notes": notes}

    def _probe(self, frozen: FrozenEncoder) -> Result:
        """The linear probe of the encoder before fine-tuning, with the labels of training and validation."""
        own = _subset(self.samples.datasets, self.parts.partition.train)
        assert self.test is not None
        features = [extract_with_progress(frozen, dataset, 16, self.console) for dataset in (own, self.test)]
        return run_probes(np.concatenate(features), self.partition)[PROBES[self.partition.task]]

    def _fit(self, name: str, frozen: FrozenEncoder, rates: ContinuedSettings, freeze: float) -> Progress:
        """Fine-tune the network of a frozen encoder, which is used up."""
        config, code = self.config, self.parts.code
        assert self.train is not None
        if freeze < 1:
            self._calibrate(frozen, freeze)
        features = torch.from_numpy(extract_with_progress(frozen, self.train, 16, self.console))
        network = frozen.encoder.requires_grad_(True).cpu()
        fewest = 1
        if freeze < 1:
            batch = min(config.batch_size, len(self.train))
            network = convert_batch_norm(network, batch)
            preparation = self.pretrained.preparation
            fewest = check_batch_norm(network, (preparation.channels, *preparation.size), batch)
        classifier = Classifier(network, code.outputs)
        classifier.standardize(features)
        targets = code.encode(self.parts.partition.labels[self.parts.train].tolist())
        if config.head == "probe":
            classifier.start_head(features, targets, code.loss)
        classifier.freeze(freeze)
        classifier = classifier.to(pick_device(self.device))
        if classifier.device.type == "cuda":
            cuda.prepare_network(classifier)
        classifier.autocast_dtype = autocast_dtype(config, classifier.device)
        labels = self.parts.partition.labels
        task = Task(
            code=code,
            train=self.train,
            targets=targets,
            val=self.val,
            val_targets=None if self.val is None else code.encode(labels[self.parts.val].tolist()),
            views=frozen.views if self.views is None else self.views,
            augment=self.views is not None,
        )
        say(self.console, f"{NETWORKS[name]}: {self.parts.note}")
        with own_randomness(classifier.device):
            progress = fit(
                classifier,
                task,
                config,
                rates,
                self.state_file(name),
                smallest_batch=fewest,
                display=choose_display(self.console),
                resume=self.resume,
                after_epoch=lambda history: self._write_history(name, history),
            )
        self._write_history(name, progress.history)
        return progress

    def _calibrate(self, frozen: FrozenEncoder, freeze: float) -> None:
        """Give BatchNorm the statistics that fine-tuning begins with, so that the linear layer starts at what it reads.

        The encoder comes with running statistics of pretraining, of other views and perhaps of few steps. In training
        a layer normalises by the batch instead, and a linear layer that fits the one does not fit the other.
        """
        assert self.train is not None
        train, device = self.train, next(frozen.parameters()).device
        views = frozen.views if self.views is None else self.views.to(device)
        layers = Classifier(frozen.encoder, 1)
        layers.freeze(freeze)

        def encode(rows: Tensor) -> object:
            images = train.for_views(rows, 1, CALIBRATION_SEED, 0).to(device)
            if train.preparation.crops and self.views is None:
                images = images[:, 0]
            return frozen.encoder(views.plain(images) if self.views is None else views(images, 1)[:, 0])

        with kept_random_state(device, CALIBRATION_SEED):
            calibrate_batch_norm(frozen.encoder, calibration_rows(len(train)), encode, layers.frozen)

    def _write_history(self, name: str, history: Sequence[dict[str, Any]]) -> None:
        self.rows[name] = [{"network": name, **row} for row in history]
        lines = [json.dumps(row) + "\n" for rows in self.rows.values() for row in rows]
        write_text(self.folder / "history.jsonl", "".join(lines))

    def _score(self, frozen: FrozenEncoder, progress: Progress) -> Result:
        """The scores of the best epoch on the test part, by a network with ordinary BatchNorm, as it is used later."""
        with own_randomness(torch.device("cpu")):
            network = make_encoder(self.pretrained.config, self.pretrained.preparation, self.given)
        classifier = Classifier(network, self.parts.code.outputs)
        classifier.load_state_dict(progress.best)
        classifier = classifier.to(pick_device(self.device))
        assert self.test is not None
        answers = self.parts.code.decode(outputs_of(classifier, frozen.views.to(classifier.device), self.test))
        return self.parts.code.score(answers, self.partition)


def _subset(datasets: Sequence[Dataset], rows: np.ndarray) -> Dataset:
    """The samples at rows that count through all data sets and lie in one of them."""
    start = 0
    for dataset in datasets:
        if start <= rows.min() and rows.max() < start + len(dataset):
            return dataset.subset((rows - start).tolist())
        start += len(dataset)
    raise AssertionError("a part lies in one data set")
