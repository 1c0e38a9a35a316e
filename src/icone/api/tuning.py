"""One network trained with labels and tested: what `icone.finetune` and the curves of `icone.evaluate` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from icone import cuda
from icone.api.build import (
    Given,
    autocast_dtype,
    make_encoder,
    make_views,
    make_weak_views,
    own_randomness,
    pick_device,
)
from icone.api.embed import CALIBRATION_SEED, extract_with_progress, load_encoder, untrained_encoder
from icone.api.partition import GEOMETRY_ONLY, EvaluationData
from icone.api.summaries import NETWORKS, PROBES
from icone.config import FinetuneConfig
from icone.data import Dataset
from icone.encoders import check_batch_norm
from icone.encoders.calibration import calibrate_batch_norm, calibration_rows
from icone.errors import InputError
from icone.evaluation.assessment import Partition, Result, run_probes
from icone.evaluation.features import FrozenEncoder
from icone.evaluation.label_efficiency import draw_labels
from icone.finetuning.classifier import Classifier, outputs_of
from icone.finetuning.fit import Progress, Row, Task, fit
from icone.finetuning.holdout import FEWEST, compact, hold_out
from icone.finetuning.kept_epoch import lucky_epoch, way_out
from icone.finetuning.label_code import LabelCode
from icone.nn import convert_batch_norm
from icone.recipe import FINETUNE_ENCODER, ContinuedSettings
from icone.run import Run
from icone.terminal import say
from icone.training.context import kept_random_state
from icone.training.progress import Display, choose_display
from icone.views import Views

Network = Literal["fine_tuned", "from_scratch"]


@dataclass(frozen=True)
class Parts:
    """Rows of the samples that train, validate and test."""

    partition: Partition
    """Its training rows are those of the probe: of training and validation together, but for a val of the data's own,
    which the run left alone."""
    train: np.ndarray
    val: np.ndarray
    code: LabelCode
    note: str
    ids: dict[str, list[str]]
    """Of every part, in the order of its rows."""
    val_is_given: bool
    """Whether the data itself says which samples validate."""

    def labelled(self) -> dict[str, list[tuple[str, str]]]:
        """Id and label of the samples of every part; two official splits may use the same ids."""
        rows = {"train": self.train, "val": self.val, "test": self.partition.test}
        found = {part: self.partition.labels[rows[part]].tolist() for part in rows}
        return {part: list(zip(self.ids[part], found[part], strict=True)) for part in rows}


def choose_parts(samples: EvaluationData, config: FinetuneConfig, split_seed: int) -> Parts:
    """The draw of labels of a configuration, and which of them validate."""
    if samples.partition is None:
        why = samples.note.replace(GEOMETRY_ONLY, "")
        raise InputError(f"fine-tuning needs labels of a training and a test part, but {why}")
    own, partition = samples.datasets[0], samples.partition
    assigned = None if own.source.assigned is None else [own.source.assigned[p] for p in own.positions]
    if samples.validation is not None and assigned is not None:
        assigned += [""] * (len(partition.labels) - len(assigned)) + ["val"] * len(samples.validation)
        partition = _with_rows_of(partition, samples.validation)
    used = dataclasses.replace(partition, train=draw_labels(partition, config.fraction, config.seed))
    if assigned is not None:
        assigned = _drawn_val(partition, used.train, assigned, config)
    train, val, note = hold_out(used, config.val_fraction, split_seed, assigned)
    code = LabelCode.of(used.task, used.labels[used.train].tolist(), balanced=config.balance_classes)
    rows = {"train": train, "val": val, "test": used.test}
    ids = [*samples.ids, *(samples.validation.ids if samples.validation else ())]
    named = {part: [ids[row] for row in rows[part]] for part in rows}
    is_given = assigned is not None and any(assigned[row] == "val" for row in val)
    return Parts(used, train, val, code, note, named, is_given)


def _with_rows_of(partition: Partition, validation: Dataset) -> Partition:
    """A partition with the rows of val behind its own, which neither train nor test."""
    labels, groups = validation.source.labels or (), partition.groups
    texts = [labels[position] or "" for position in validation.positions]
    if groups is not None:
        known = validation.groups or [None] * len(validation)
        groups = [*groups, *(f"group {name}" if name else f"val {row}" for row, name in enumerate(known))]
    return dataclasses.replace(
        partition, labels=np.concatenate([partition.labels, np.array(texts, dtype=str)]), groups=groups
    )


def _drawn_val(partition: Partition, drawn: np.ndarray, assigned: Sequence[str], config: FinetuneConfig) -> list[str]:
    """The part that the data assigns to every row, with those rows of val alone whose labels are drawn.

    Of rows that may train, the draw has decided. Of others, which only validate, the same share is drawn. Where that
    leaves too few, none counts.
    """
    rows = np.array([row for row, part in enumerate(assigned) if part == "val" and partition.labels[row]], np.int64)
    kept = np.setdiff1d(rows, [*partition.train, *partition.test])
    if len(kept):
        kept = draw_labels(dataclasses.replace(partition, train=kept), config.fraction, config.seed)
    kept = np.union1d(kept, np.intersect1d(rows, drawn))
    if config.fraction < 1 and not config.val_fraction and len(kept) < FEWEST:
        kept = kept[:0]
    counting = set(kept.tolist())
    return ["" if part == "val" and row not in counting else part for row, part in enumerate(assigned)]


class Tuned(NamedTuple):
    """A network after training with labels, and its scores on the test part."""

    progress: Progress
    result: Result


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """One draw of labels: what networks learn from, and on what they are tested."""

    pretrained: Run
    config: FinetuneConfig
    samples: EvaluationData
    parts: Parts
    given: Given
    device: str
    console: Console
    states: Path | None = None
    """Folder for the states of interrupted trainings; without one they begin anew."""
    resume: bool = False
    display: Callable[[], Display] | None = None
    """Follows each training; None: what suits the console."""
    after_epoch: Callable[[str, list[Row]], None] = lambda name, history: None
    """Told the name of the network and its history, after every epoch and at the end."""

    @cached_property
    def views(self) -> Views | None:
        """Random views of the training samples, where there are any."""
        make = make_weak_views if self.config.augment == "weak" else make_views
        if self.config.augment == "none":
            return None
        return make(self.pretrained.config, self.pretrained.preparation, self.given).to(pick_device(self.device))

    @cached_property
    def train(self) -> Dataset:
        return _subset(self.samples.datasets, self.parts.train)

    @cached_property
    def val(self) -> Dataset | None:
        validation = self.samples.validation
        datasets = [*self.samples.datasets, *([] if validation is None else [validation])]
        return _subset(datasets, self.parts.val) if len(self.parts.val) else None

    @cached_property
    def test(self) -> Dataset:
        return _subset(self.samples.datasets, self.parts.partition.test)

    @cached_property
    def partition(self) -> Partition:
        """The samples with a label that counts, then the test part, as rows of their features one below the other."""
        return compact(self.parts.partition, self.parts.partition.train)

    def note_on_epoch(self, name: Network, progress: Progress) -> str:
        """What to say where a handful of validation samples chose the epoch that a network keeps, or nothing."""
        labels = self.parts.partition.labels[self.parts.val].tolist()
        found = lucky_epoch(self.parts.partition.task, labels, progress.history, progress.best_epoch)
        return f"{NETWORKS[name]}: {found}. {way_out(given=self.parts.val_is_given)}" if found else ""

    def state_file(self, name: Network) -> Path | None:
        return None if self.states is None else self.states / f"{name}.safetensors"

    def encoder(self, name: Network) -> FrozenEncoder:
        """The encoder that a network starts from: that of the run, or one with random weights."""
        if name == "fine_tuned":
            return load_encoder(self.pretrained, self.device, encoder=self.given.encoder, views=self.given.views)
        return untrained_encoder(
            self.pretrained, self.samples.datasets[0], self.device, self.given, from_scratch=True
        )  # fmt: skip

    def tune(self, name: Network, frozen: FrozenEncoder) -> Tuned:
        """Train the network of a frozen encoder, which is used up, and test it; from scratch nothing is frozen."""
        config = self.config
        if name == "fine_tuned":
            rates = ContinuedSettings(config.encoder_lr, config.layer_decay, config.warmup)
            progress = self._fit(name, frozen, rates, config.freeze)
        else:
            progress = self._fit(name, frozen, ContinuedSettings(FINETUNE_ENCODER, 1.0, config.warmup), freeze=0.0)
        return Tuned(progress, self._score(frozen, progress))

    def probe(self, frozen: FrozenEncoder) -> Result:
        """The linear probe of the encoder before fine-tuning, with the labels of training and validation."""
        own = _subset(self.samples.datasets, self.parts.partition.train)
        features = [extract_with_progress(frozen, dataset, self.console) for dataset in (own, self.test)]
        return run_probes(np.concatenate(features), self.partition)[PROBES[self.partition.task]]

    def _fit(self, name: Network, frozen: FrozenEncoder, rates: ContinuedSettings, freeze: float) -> Progress:
        """Fine-tune the network of a frozen encoder, which is used up."""
        config, code = self.config, self.parts.code
        if freeze < 1:
            self._calibrate(frozen, freeze)
        features = torch.from_numpy(extract_with_progress(frozen, self.train, self.console))
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
                display=choose_display(self.console) if self.display is None else self.display(),
                resume=self.resume,
                after_epoch=lambda history: self.after_epoch(name, history),
            )
        self.after_epoch(name, progress.history)
        return progress

    def _calibrate(self, frozen: FrozenEncoder, freeze: float) -> None:
        """Give BatchNorm the statistics that fine-tuning begins with: features are standardised as it sees them.

        The encoder comes with running statistics of pretraining, of other views and perhaps of few steps. In training
        a layer normalises by the batch instead, and features of the one do not have the spread of the other.
        """
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
            rows = calibration_rows(len(train), at_once=train.preparation.samples_at_once())
            calibrate_batch_norm(frozen.encoder, rows, encode, layers.frozen)

    def _score(self, frozen: FrozenEncoder, progress: Progress) -> Result:
        """The scores of the best epoch on the test part, by a network with ordinary BatchNorm, as it is used later."""
        with own_randomness(torch.device("cpu")):
            network = make_encoder(self.pretrained.config, self.pretrained.preparation, self.given)
        classifier = Classifier(network, self.parts.code.outputs)
        classifier.load_state_dict(progress.best)
        classifier = classifier.to(pick_device(self.device))
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
