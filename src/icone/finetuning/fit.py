"""The loop of fine-tuning: epochs with a validation part, the best one kept, a state on disk now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icone.config import FinetuneConfig
from icone.data import Batch, Dataset, Loader
from icone.errors import InputError, InterruptedRun, TrainingError
from icone.finetuning.classifier import Classifier, outputs_of
from icone.finetuning.label_code import LabelCode
from icone.nn.batchnorm import MovingStatistics, plain_state_dict
from icone.recipe import FINETUNE_EPOCHS, FINETUNE_STEPS, ContinuedSettings, adamw_settings, parameter_groups
from icone.tensor_files import misfit, read_tensors, write_tensors
from icone.terminal import counted
from icone.training.checkpoint import below, load_moments, named_moments, random_states, set_random_states
from icone.training.context import seed_random_numbers
from icone.training.optimizer import build_adamw, encoder_scales, learning_rates, set_learning_rate
from icone.training.progress import Display
from icone.training.signals import watch_signals
from icone.views import Views

Row = dict[str, Any]

SAVE_SECONDS = 30.0
"""Seconds between two saved states, at the least. The state of a 3D ResNet-18 takes half a gigabyte, and an epoch with
few labels less time than writing it."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a network learns: samples and targets that train it, those that choose its epoch, and the views."""

    code: LabelCode
    train: Dataset
    targets: Tensor
    val: Dataset | None
    val_targets: Tensor | None
    views: Views
    """Whose `plain` views are those of evaluation."""
    augment: bool


@dataclass
class Progress:
    """How far a fine-tuning is: rows of the history, and the weights of the best epoch so far."""

    history: list[Row] = field(default_factory=list)
    best_epoch: int = -1
    best: dict[str, Tensor] = field(default_factory=dict)

    def note(self, row: Row, weights: dict[str, Tensor]) -> None:
        """Add an epoch, and keep its weights if it is the best; without a validation part the last one is."""
        self.history.append(row)
        if self.best_epoch < 0 or _rank(row) > _rank(self.history[self.best_epoch]) or "val_loss" not in row:
            self.best_epoch = row["epoch"]
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}

    def is_over(self, epochs: int, patience: int) -> bool:
        done = len(self.history)
        return done >= epochs or done - 1 - self.best_epoch >= patience


def _rank(row: Row) -> tuple[float, float]:
    """Better epochs rank higher: by balanced accuracy where classes are learned, then by the loss."""
    return row.get("val_balanced_accuracy", 0.0), -row.get("val_loss", 0.0)


def planned_epochs(epochs: int | None, steps: int) -> tuple[int, int]:
    """Most epochs, and how many passes of so many steps each of them has: one, where the user chose the epochs.

    >>> planned_epochs(None, steps=60), planned_epochs(None, steps=2), planned_epochs(5, steps=2)
    ((50, 1), (50, 10), (5, 1))
    """
    return epochs or FINETUNE_EPOCHS, 1 if epochs else -(-FINETUNE_STEPS // (FINETUNE_EPOCHS * steps))


def fit(
    classifier: Classifier,
    task: Task,
    config: FinetuneConfig,
    rates: ContinuedSettings,
    state_file: Path | None,
    *,
    smallest_batch: int = 1,
    display: Display,
    resume: bool = False,
    after_epoch: Callable[[list[Row]], None] = lambda history: None,
) -> Progress:
    """Train until the validation part gets no better; what comes back holds the weights of the best epoch.

    AdamW of the recipe; the learning rate of the encoder is `rates.lr_scale` times that of the linear layer and falls
    by `rates.layer_decay` from layer to layer; warm-up, then a cosine to zero. The state is saved after an epoch if the
    last one is `SAVE_SECONDS` old, and when the loop is interrupted or over; never without a `state_file`. With
    `resume` the loop goes on after the last saved epoch, bit for bit as if it had never stopped.
    """
    device = classifier.device
    loader = Loader(
        task.train, min(config.batch_size, len(task.train)), config.seed, device, smallest_batch=smallest_batch
    )
    groups = parameter_groups(
        classifier,
        batch_size=loader.batch_size,
        lr=config.lr,
        weight_decay=config.weight_decay,
        undecayed=[p for p in classifier.parameters() if p.dim() < 2],  # biases and scales, as is usual
        lr_scales=encoder_scales(classifier.encoder, rates),
    )
    base = adamw_settings(config.lr, loader.batch_size).lr
    epochs, passes = planned_epochs(config.epochs, len(loader.sizes))
    loop = _Loop(
        classifier, task, loader, build_adamw(groups, base, device), base=base, warmup=rates.warmup, passes=passes,
        steps=epochs * passes * len(loader.sizes),
    )  # fmt: skip
    seed_random_numbers(config.seed, device)
    progress = _restore(loop, state_file) if resume and state_file and state_file.is_file() else Progress()
    keeper = _StateKeeper(loop, state_file)
    with display, watch_signals() as wish, keeper:
        display.start(len(progress.history) * loop.steps // epochs, loop.steps, epochs)
        while not progress.is_over(epochs, config.patience):
            row = loop.epoch(len(progress.history), display, lambda: wish.requested)
            progress.note(row, plain_state_dict(classifier))
            keeper.keep(progress, over=progress.is_over(epochs, config.patience))
            after_epoch(progress.history)
            display.end_epoch(row)
            if wish.requested:
                raise _interrupted(len(progress.history))
    return progress


def _interrupted(epochs: int) -> KeyboardInterrupt:
    """What is raised on a wish to stop; before the first finished epoch the caller knows what is kept."""
    if epochs == 0:
        return KeyboardInterrupt()
    return InterruptedRun(f"interrupted after {counted(epochs, 'epoch')}; the state is saved")


class _Loop:
    """One epoch after the other."""

    def __init__(
        self,
        classifier: Classifier,
        task: Task,
        loader: Loader,
        optimizer: torch.optim.AdamW,
        *,
        base: float,
        warmup: float,
        passes: int,
        steps: int,
    ) -> None:
        """`passes` over the samples are an epoch; `steps` are those of all epochs."""
        self.classifier, self.task, self.loader = classifier, task, loader
        self.optimizer, self.base, self.warmup = optimizer, base, warmup
        self.passes, self.steps = passes, steps
        self.targets = task.targets.to(loader.device)
        self.batch_norms = MovingStatistics(classifier)

    def epoch(self, number: int, display: Display, interrupted: Callable[[], bool]) -> Row:
        """Train on all samples, then measure the validation part; the row of the history."""
        began, seen = time.monotonic(), 0
        total = torch.zeros((), dtype=torch.float64, device=self.loader.device)
        self.classifier.train()
        for step, batch in enumerate(self._batches(number)):
            if interrupted():
                raise _interrupted(number)
            done = number * self.passes * len(self.loader.sizes) + step
            total += self._step(batch.images, batch.index, done / self.steps) * len(batch.index)
            seen += len(batch.index)
            if step % 16 == 0:  # reading the loss waits for the device
                speed = seen / (time.monotonic() - began)
                display.refresh(done + 1, number, {"loss": float(total) / seen}, speed)
        display.refresh(done + 1, number, {"loss": float(total) / seen}, seen / (time.monotonic() - began))
        row: Row = {"epoch": number, "loss": float(total) / seen, **self._validation()}
        if not all(math.isfinite(value) for value in row.values()):
            raise TrainingError(f"the loss is not finite in epoch {number + 1}: a smaller --lr may help")
        seconds = time.monotonic() - began
        return {**row, "seconds": seconds, "instances_per_second": seen / seconds}

    def _batches(self, number: int) -> Iterator[Batch]:
        for one in range(number * self.passes, (number + 1) * self.passes):
            self.loader.begin(one)
            try:
                for size in self.loader.sizes:
                    self.loader.advance([size])
                    yield self.loader.take(0, size)
            finally:
                self.loader.end()

    def _step(self, images: Tensor, index: Tensor, progress: float) -> Tensor:
        set_learning_rate(learning_rates(self.optimizer), self.base, torch.tensor(progress), self.warmup)
        views = self.task.views
        if self.loader.dataset.preparation.crops and not self.task.augment:
            images = images[:, 0]
        seen = views(images, 1)[:, 0] if self.task.augment else views.plain(images)
        self.batch_norms.begin()
        loss = self.task.code.loss(self.classifier(seen), self.targets[index])
        self.optimizer.zero_grad()
        loss.backward()
        self.batch_norms.update()
        self.optimizer.step()
        return loss.detach()

    def _validation(self) -> dict[str, float]:
        if self.task.val is None or self.task.val_targets is None:
            return {}
        outputs = outputs_of(self.classifier, self.task.views, self.task.val, self.loader.batch_size)
        return self.task.code.quality(outputs, self.task.val_targets)


def _tensors(loop: _Loop) -> dict[str, Tensor]:
    return {
        **{f"network/{name}": t for name, t in loop.classifier.state_dict().items()},
        **{f"optimizer/{name}": t for name, t in named_moments(loop.classifier, loop.optimizer).items()},
        **{f"random/{name}": t for name, t in random_states(loop.loader.device).items()},
    }


class _StateKeeper:
    """Keeps a copy of the state after the last epoch, and writes it where that is due, or when the block is left."""

    def __init__(self, loop: _Loop, path: Path | None) -> None:
        self.loop, self.path = loop, path
        self.written = time.monotonic()
        self.unwritten: tuple[dict[str, Tensor], Row] | None = None

    def __enter__(self) -> _StateKeeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def keep(self, progress: Progress, *, over: bool) -> None:
        if self.path is None:
            return
        tensors = {name: t.detach().clone() for name, t in _tensors(self.loop).items()}
        best = {f"best/{name}": t for name, t in progress.best.items()}
        about = {"history": list(progress.history), "best_epoch": progress.best_epoch}
        self.unwritten = {**tensors, **best}, about
        if over or time.monotonic() - self.written >= SAVE_SECONDS:
            self._write()

    def _write(self) -> None:
        if self.path is not None and self.unwritten is not None:
            write_tensors(self.path, *self.unwritten)
            self.unwritten, self.written = None, time.monotonic()


def _restore(loop: _Loop, path: Path) -> Progress:
    """Put the network, the moments and the random state of a saved epoch in their place."""
    tensors, about = read_tensors(path)
    own = _tensors(loop)
    found = {name: t for name, t in tensors.items() if not name.startswith("best/")}
    is_random = "random/cuda"  # a state of another kind of device lacks it, or has it
    if wrong := misfit(
        {n: t for n, t in own.items() if n != is_random}, {n: t for n, t in found.items() if n != is_random}
    ):
        raise InputError(f"{path} does not fit these settings and data: {wrong}; begin anew under another --out")
    loop.classifier.load_state_dict(below(tensors, "network"))
    load_moments(loop.classifier, loop.optimizer, below(tensors, "optimizer"))
    set_random_states(below(tensors, "random"), loop.loader.device)
    return Progress(history=about["history"], best_epoch=about["best_epoch"], best=below(tensors, "best"))
