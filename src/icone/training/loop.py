"""The one training loop, for one run or for several side by side."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from icone.config import PretrainConfig
from icone.config_text import to_json
from icone.data import Loader
from icone.errors import CollapseError, InputError, InterruptedRun, TrainingError
from icone.methods import Method
from icone.run import Run
from icone.terminal import counted, either
from icone.training.callbacks import Callback
from icone.training.checkpoint import SavedState, StateBook, restore, restore_extended, save_state
from icone.training.context import RunContext
from icone.training.distributed import Exchange
from icone.training.engine import EngineChoice, Sizes, eager
from icone.training.initialization import start
from icone.training.progress import Display, format_seconds, format_step
from icone.training.signals import Interruption, watch_signals
from icone.training.step import TrainStep
from icone.views import Views

REFRESH_SECONDS = 0.5
CHEAP_SAVING = 0.01
"""Share of the training time since the last saved state that saving may take for a further one after an epoch."""
TIMED_SECONDS = 2.0
"""Time of training, after the first refresh, by which a run says how long all of it will take."""
LONG_SECONDS = 60.0
"""What is left of training that takes no longer than this needs no such note."""


class Fit:
    """The training of one run: `done` steps, the `history`, and the clocks of display and checkpoint.

    `saved` continues a run; with `rows` (old row of each instance) the instances have changed meanwhile, and
    training goes on from the start of the epoch it was in, or with a new schedule if it was finished.
    `callbacks` are told about every epoch, `progress` about the instances that were embedded before the first;
    `digests` of the samples, `changes` of settings and the ids that are `probed` are kept with the state; `engine`
    chooses what calls the step.
    Building it writes nothing. Where ranks train together, rank 0 writes, and the others do the same but for that.
    """

    def __init__(
        self,
        method: Method,
        views: Views,
        loader: Loader,
        config: PretrainConfig,
        run: Run,
        display: Display,
        saved: SavedState | None = None,
        rows: list[int | None] | None = None,
        callbacks: Sequence[Callback] = (),
        progress: Callable[[int, int], None] = lambda done, total: None,
        digests: Sequence[str] = (),
        changes: Sequence[dict[str, Any]] = (),
        engine: EngineChoice = eager,
        probed: Sequence[str] = (),
    ) -> None:
        self.digests, self.changes, self.probed = list(digests), list(changes), list(probed)
        self.loader, self.config, self.run, self.display, self.callbacks = loader, config, run, display, callbacks
        self.steps_per_epoch = -(-len(loader.sizes) // config.accumulate)
        self.total_steps = config.epochs * self.steps_per_epoch
        self.step = TrainStep(method, views, config, self.total_steps, loader.device)
        if config.checkpoint_activations == "on" and (note := self.step.checkpoint_activations()):
            display.warn(note)
        # After all that the run is made of: the context waits for what was begun before it, and for nothing else.
        self.context = RunContext(loader.device, tf32=method.autocast_dtype is not None)
        self.engine = engine(self.step, loader, self.context, display.warn)
        self.ranks = method.ranks
        self.interruption = Interruption()
        self.stopping = False
        """Whether to stop after this step; where ranks train together, they have agreed on it."""
        self.engine.tell = display.warn
        self.done = 0
        self.history: list[dict[str, Any]] = []
        self.epochs_before = self.extensions = 0
        with self.context.active():
            if saved is not None:
                self._continue(saved, rows)
            if saved is None or rows is not None:
                known = rows or [None] * len(loader.dataset)
                fresh = [new for new, row in enumerate(known) if row is None]
                with self.engine.uncompiled():
                    start(method, views, loader, self.step.batch_norms, fresh, progress)
        self.exchange = None if self.ranks is None else Exchange(self.ranks, loader.device, self.done)

    @property
    def writes(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.ranks is None or self.ranks.rank == 0

    def steps(self) -> Iterator[None]:
        """Train to the end of the last epoch, from the state that `save` has kept; yields after every step, all of
        them inside `context.active()`."""
        self.step.method.train()
        self.display.start(self.done, self.total_steps, self.epochs_before + self.config.epochs)
        self.shown_at = self.epoch_began = time.monotonic()
        self.seen = 0
        """Instances since `epoch_began`."""
        self.timed_from: tuple[float, int] | None = None
        """When the steps began that are timed, and how many were done before."""
        self.has_told_time = False
        for callback in self.callbacks:
            callback.start(self.history)
        try:
            for epoch in range(self.done // self.steps_per_epoch, self.config.epochs):
                for sizes in self._steps_of(epoch):
                    self.loader.advance(sizes)
                    self.engine(sizes)
                    self.done += 1
                    self.seen += sum(sizes)
                    if self.done % self.steps_per_epoch == 0:
                        self._end_epoch(epoch)
                    self._now_and_then(epoch)
                    yield
        except CollapseError:
            self.save()
            raise
        finally:
            self.loader.end()
            self.engine.close()
            for callback in self.callbacks:
                callback.close()
        self.save()

    def save(self) -> None:
        """Keep the state, unless something in it is not finite; to be called inside `context.active()`."""
        self._check_finite()
        self._check_weights()
        book = StateBook(
            step=self.done,
            history=self.history,
            config=to_json(self.config),
            ids=list(self.loader.dataset.ids),
            digests=self.digests,
            epochs_before=self.epochs_before,
            extensions=self.extensions,
            terms=list(self.step.meter.names),
            changes=self.changes,
            probed=self.probed,
        )
        began = time.monotonic()
        save_state(self.run, self.step, book)
        self.saved_at = time.monotonic()
        self.saving_took = self.saved_at - began

    def _way_out(self) -> str:
        if not self.run.state_file.is_file():
            return "Nothing was saved yet: start again with a smaller --lr"
        return (
            f"The last good state is kept in {self.run.folder}; a smaller --lr or --clip-gradient=1 may help: "
            "add one of them, --resume and --adjust to the command, or start anew under another --out"
        )

    def _continue(self, saved: SavedState, rows: list[int | None] | None) -> None:
        self.history, self.epochs_before, self.extensions = saved.history, saved.epochs_before, saved.extensions
        if rows is None:
            restore(self.step, saved)
            self.done = saved.step
            return
        restore_extended(self.step, saved, rows)
        self.extensions += 1
        epochs_done = len(self.history) - self.epochs_before
        if epochs_done < self.config.epochs:
            self.done = epochs_done * self.steps_per_epoch
            self.step.count.fill_(self.done)
        else:
            self.epochs_before = len(self.history)

    def _steps_of(self, epoch: int) -> Iterator[Sizes]:
        """Sizes of the batches from where the epoch was left, in groups whose gradients are accumulated."""
        start = (self.done - epoch * self.steps_per_epoch) * self.config.accumulate
        self.loader.begin(epoch, start)
        sizes = iter(self.loader.sizes[start:])
        while group := tuple(itertools.islice(sizes, self.config.accumulate)):
            yield group

    def _now_and_then(self, epoch: int) -> None:
        now = time.monotonic()
        if now - self.shown_at > REFRESH_SECONDS and self.seen:
            self._check_finite()
            self.display.refresh(self.done, self.epochs_before + epoch, self.step.meter.means(), self._speed())
            self.shown_at = now
            self._say_what_it_takes()
        since = now - self.saved_at
        is_cheap = self.done % self.steps_per_epoch == 0 and self.saving_took < CHEAP_SAVING * since
        signal, save = self.interruption, is_cheap or since > self.config.checkpoint_seconds
        if self.exchange is not None:
            self.stopping, requeue, save = self.exchange(self.done, signal.requested, signal.wants_requeue, save)
            signal.wants_requeue |= requeue
        else:
            self.stopping = signal.requested
        if save:
            self.save()

    def _say_what_it_takes(self) -> None:
        """Once, where the rest takes long: the time, and the memory of a GPU, which the first steps have shown; to be
        called when the device has been waited for."""
        if self.timed_from is None:
            self.timed_from = time.monotonic(), self.done
        began, done = self.timed_from
        seconds, steps = time.monotonic() - began, self.done - done
        if self.has_told_time or steps == 0 or seconds < TIMED_SECONDS:
            return
        self.has_told_time = True
        to_go = self.total_steps - self.done
        left = seconds / steps * to_go
        if left <= LONG_SECONDS:
            return
        memory = ""
        if self.loader.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.loader.device)
            memory = f"; {(total - free) / 1e9:.1f} of {total / 1e9:.1f} GB of the GPU are in use"
        self.display.note(
            f"a step takes {format_step(seconds / steps)}, and the {counted(to_go, 'step')} to go "
            f"{either(to_go, 'takes', 'take')} {format_seconds(left)}{memory}"
        )

    def _end_epoch(self, epoch: int) -> None:
        self._check_finite()
        self._check_weights()  # before anything is measured on them
        row = {
            "epoch": self.epochs_before + epoch,
            **self.step.meter.means(),
            **{name: value.item() for name, value in self.step.method.epoch_metrics().items()},
            "lr": self.step.optimizer.param_groups[0]["lr"].item(),
            "seconds": round(time.monotonic() - self.epoch_began, 3),
            "instances_per_second": round(self._speed(), 3),
        }
        if not self.loader.resident:
            row["waiting"] = round(self.loader.waited / max(time.monotonic() - self.epoch_began, 1e-9), 4)
        with self.engine.uncompiled():
            for callback in self.callbacks:
                row |= callback.measure(epoch)
        self.history.append(row)
        self.step.meter.reset()
        self.loader.waited = 0.0
        self.epoch_began, self.seen = time.monotonic(), 0  # what callbacks took is no training time
        if self.writes:
            self.run.append_history(row)
        terms = {k: row[k] for k in self.step.meter.names}
        self.display.refresh(self.done, row["epoch"], terms, row["instances_per_second"])
        self.display.end_epoch(row)
        collapsed = None
        try:
            for callback in self.callbacks:
                callback.end_epoch(row)
        except CollapseError as error:
            collapsed = error
        if self.ranks is not None and self.ranks.highest(collapsed is not None)[0]:
            collapsed = collapsed or CollapseError("the features have collapsed")
        if collapsed is not None:
            raise collapsed

    def _speed(self) -> float:
        return self.seen / max(time.monotonic() - self.epoch_began, 1e-9)

    def _check_weights(self) -> None:
        weights = [*self.step.method.parameters(), *self.step.method.encoder.state_dict().values()]
        finite = all(torch.isfinite(t).all() for t in weights)
        if self.ranks is not None:
            finite = not self.ranks.highest(not finite)[0]
        if not finite:
            raise TrainingError(f"weights are not finite after step {self.done}. {self._way_out()}")

    def _check_finite(self) -> None:
        bad = int(self.step.meter.first_bad)
        if bad >= 0:
            terms = ", ".join(f"{name} {value:.4g}" for name, value in self.step.meter.bad().items())
            raise TrainingError(
                f"the loss is not finite at step {bad} (epoch {bad // self.steps_per_epoch}): {terms}. "
                f"{self._way_out()}"
            )


def fit(fits: Sequence[Fit]) -> None:
    """Train all runs to their end, a step of each in turn; on a GPU their steps run side by side.

    A run that fails is left, and the others go on; its error is raised at the end. All runs must lie on one GPU, or be
    one: on a CPU they would share their random numbers.
    """
    assert len(fits) == 1 or all(one.loader.device.type == "cuda" for one in fits)
    for one in fits:
        one.engine.alone = len(fits) == 1
    going = {one: one.steps() for one in fits}
    failed: list[InputError | TrainingError] = []
    with watch_signals(patient=any(one.ranks is not None for one in fits)) as interruption:
        for one in fits:
            one.interruption = interruption
        while going:
            for one in list(going):
                try:
                    with one.context.active():
                        next(going[one])
                except StopIteration:
                    del going[one]
                except (InputError, TrainingError) as error:
                    failed.append(error)
                    del going[one]
            if any(one.stopping for one in going):
                _stop(going, interruption)
    if failed:
        raise failed[0]


def _stop(going: dict[Fit, Iterator[None]], interruption: Interruption) -> None:
    for one, steps in going.items():
        with one.context.active():
            steps.close()  # type: ignore[attr-defined]
            one.save()
    where = ", ".join(f"step {one.done} of {one.total_steps}" for one in going)
    stopped = InterruptedRun(f"stopped after {where}; the state is saved")
    stopped.wants_requeue = interruption.wants_requeue
    raise stopped
