"""The one training loop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from icone.config import PretrainConfig
from icone.data import Batch, Loader
from icone.errors import CollapseError, InterruptedRun, TrainingError
from icone.methods import Method
from icone.runs import Run
from icone.training.display import Display
from icone.training.interruption import watch_signals
from icone.training.observers import Observer
from icone.training.state import SavedState, restore, restore_extended, save_state
from icone.training.step import TrainStep
from icone.views import Views

REFRESH_SECONDS = 0.5


def fit(
    method: Method,
    views: Views,
    loader: Loader,
    config: PretrainConfig,
    run: Run,
    display: Display,
    saved: SavedState | None = None,
    rows: list[int | None] | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Train `method` on `loader` to the end of `config.epochs`, keeping the state in `run`.

    `saved` continues a run; with `rows` (old row of each instance) the instances have changed meanwhile, and
    training goes on from the start of the epoch it was in, or with a new schedule if it was finished.
    `observers` are told about every epoch.
    """
    _Fit(method, views, loader, config, run, display, observers).train(saved, rows)


class _Fit:
    """The loop's variables: `done` steps, the `history`, and the clocks of display and checkpoint."""

    def __init__(
        self,
        method: Method,
        views: Views,
        loader: Loader,
        config: PretrainConfig,
        run: Run,
        display: Display,
        observers: Sequence[Observer],
    ) -> None:
        self.loader, self.config, self.run, self.display, self.observers = loader, config, run, display, observers
        self.steps_per_epoch = -(-loader.steps_per_epoch // config.accumulate)
        self.total_steps = config.epochs * self.steps_per_epoch
        self.step = TrainStep(method, views, config, self.total_steps, loader.device)
        self.done = 0
        self.history: list[dict[str, Any]] = []

    def train(self, saved: SavedState | None, rows: list[int | None] | None) -> None:
        if saved is not None:
            self._continue(saved, rows)
        self.run.write_history(self.history)
        self._save()
        self.step.method.train()
        self.display.start(self.done, self.total_steps, self.config.epochs)
        self.shown_at = self.epoch_began = time.monotonic()
        self.instances_before = self.step.meter.instances
        for observer in self.observers:
            observer.start(self.history)
        try:
            self._run()
        except CollapseError:
            self._save()
            raise
        finally:
            for observer in self.observers:
                observer.close()
        self._save()

    def _run(self) -> None:
        """All steps that are left, or those until somebody asks to stop."""
        with watch_signals() as interruption:
            for epoch in range(self.done // self.steps_per_epoch, self.config.epochs):
                for batches in self._steps_of(epoch):
                    self.step(batches)
                    self.done += 1
                    if self.done % self.steps_per_epoch == 0:
                        self._end_epoch(epoch)
                    self._now_and_then(epoch)
                    if interruption.requested:
                        self._save()
                        raise InterruptedRun(
                            f"stopped after step {self.done} of {self.total_steps}; the state is saved"
                        )

    def _continue(self, saved: SavedState, rows: list[int | None] | None) -> None:
        if rows is None:
            restore(self.step, saved)
            self.done, self.history = saved.step, saved.history
        else:
            restore_extended(self.step, saved, rows)
            epochs_done = len(saved.history)
            if epochs_done < self.config.epochs:
                self.done, self.history = epochs_done * self.steps_per_epoch, saved.history
                self.step.count.fill_(self.done)

    def _steps_of(self, epoch: int) -> Iterator[list[Batch]]:
        """Batches of an epoch from where it was left, in groups whose gradients are accumulated."""
        start = (self.done - epoch * self.steps_per_epoch) * self.config.accumulate
        batches = self.loader.epoch(epoch, start)
        while group := list(itertools.islice(batches, self.config.accumulate)):
            yield group

    def _now_and_then(self, epoch: int) -> None:
        now = time.monotonic()
        if now - self.shown_at > REFRESH_SECONDS and self.step.meter.instances:
            self._check_finite()
            self.display.refresh(self.done, epoch, self.step.meter.means(), self._speed())
            self.shown_at = now
        if now - self.saved_at > self.config.checkpoint_seconds:
            self._save()

    def _end_epoch(self, epoch: int) -> None:
        self._check_finite()
        row = {
            "epoch": epoch,
            **self.step.meter.means(),
            **{name: value.item() for name, value in self.step.method.epoch_figures().items()},
            "lr": self.step.optimizer.param_groups[0]["lr"].item(),
            "seconds": round(time.monotonic() - self.epoch_began, 3),
            "instances_per_second": round(self._speed(), 3),
        }
        for observer in self.observers:
            row |= observer.measure(epoch)
        self.history.append(row)
        self.step.meter.reset()
        self.epoch_began, self.instances_before = time.monotonic(), 0  # what observers took is no training time
        self.run.append_history(row)
        self.display.refresh(self.done, epoch, {k: row[k] for k in self.step.meter.sums}, row["instances_per_second"])
        self.display.end_epoch(row)
        for observer in self.observers:
            observer.end_epoch(row)

    def _speed(self) -> float:
        instances = self.step.meter.instances - self.instances_before
        return instances / max(time.monotonic() - self.epoch_began, 1e-9)

    def _check_finite(self) -> None:
        bad = int(self.step.meter.first_bad)
        if bad >= 0:
            terms = ", ".join(f"{name} {value.item():.4g}" for name, value in self.step.meter.bad_terms.items())
            raise TrainingError(
                f"the loss is not finite at step {bad} (epoch {bad // self.steps_per_epoch}): {terms}. "
                f"The last good state is kept in {self.run.folder}; a smaller --lr or --clip-gradient 1 may help"
            )

    def _save(self) -> None:
        self._check_finite()
        if not all(torch.isfinite(p).all() for p in self.step.method.parameters()):
            raise TrainingError(
                f"weights are not finite after step {self.done}. The last good state is kept in {self.run.folder}; "
                "a smaller --lr or --clip-gradient 1 may help"
            )
        save_state(self.run, self.step, self.done, self.history, self.loader.dataset.ids)
        self.saved_at = time.monotonic()
