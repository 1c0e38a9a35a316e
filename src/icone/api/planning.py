"""Does a run fit into memory, and how long does it take? A few steps of it on random samples say so."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from rich.table import Table

from icone import cuda
from icone.api.batching import check_accumulation
from icone.api.random_data import DataShape
from icone.config import PretrainConfig
from icone.data import Data, Loader
from icone.data.loader import DEVICE_SHARE, batch_sizes
from icone.data.memory import GB, PeakMemory, free_bytes
from icone.errors import InputError, is_out_of_memory
from icone.methods import Method, method_class
from icone.readable import Part
from icone.terminal import counted, either
from icone.training.context import RunContext, kept_random_state
from icone.training.engine import EagerEngine, Engine, Sizes
from icone.training.progress import format_seconds, format_step
from icone.training.step import TrainStep
from icone.views import Views

PLAN_SECONDS = 20.0
"""A plan takes no longer, unless a single step does."""
USABLE = 0.9
"""Share of the free memory that a step may take; probes and other processes need some too."""
LONG_STEP = 0.5
"""Seconds from which a step is not captured to be timed: what the host adds does not count any more."""
TIMED_SECONDS, TIMED_STEPS = 0.5, 50
"""A timing ends with the first of the two."""
ENCODED_TWICE = 4 / 3
"""By how much a step takes longer whose forward pass is computed twice, where that is not measured."""

Build = Callable[[PretrainConfig, Data], tuple[Method, Views, Loader]]
"""From a configuration and data to what trains."""


class Way(NamedTuple):
    """One way to compute the step of a batch."""

    at_once: int
    """Samples that pass through the encoder at a time."""
    checkpointed: bool


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one way takes, measured or estimated."""

    micro_batch: int | None
    checkpoint_activations: bool
    fits: bool
    memory: int | None
    """Bytes that a step takes at most, without the samples; None where it did not fit or cannot be built."""
    step_seconds: float | None
    measured: bool
    """Whether this step was taken; else it was estimated from smaller ones."""
    reason: str = ""
    """Why it cannot be built."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a configuration is trained on a device: all ways that were tried, of which the last one fits if any does."""

    batch_size: int
    device: str
    free: int
    """Bytes that were free on the device, before samples are put there."""
    samples: int
    """Bytes of the samples that are kept on it; 0 where they are read while it trains."""
    epochs: int
    steps_per_epoch: int
    trials: list[Trial]
    notes: list[str]

    @property
    def chosen(self) -> Trial | None:
        return self.trials[-1] if self.trials and self.trials[-1].fits else None

    @property
    def seconds(self) -> float | None:
        """Time of all steps; reading files and measuring features come on top."""
        one = self.chosen
        return (
            None if one is None or one.step_seconds is None else self.epochs * self.steps_per_epoch * one.step_seconds
        )

    @property
    def flags(self) -> list[str]:
        """The flags of the way that fits."""
        return [word for name, value in self._settings for word in (name, value)]

    @property
    def said(self) -> str:
        """The settings of the way that fits, as a text (`icone.wording`)."""
        return ", ".join(f"{name}={value}" for name, value in self._settings)

    @property
    def _settings(self) -> list[tuple[str, str]]:
        one, settings = self.chosen, [("--batch-size", str(self.batch_size))]
        if one is not None and one.micro_batch is not None:
            settings.append(("--micro-batch", str(one.micro_batch)))
        if one is not None and one.checkpoint_activations:
            settings.append(("--checkpoint-activations", "on"))
        return settings

    def apply(self, config: PretrainConfig) -> PretrainConfig:
        """The configuration with the numbers of the plan."""
        if self.chosen is None:
            least = min((trial.memory for trial in self.trials if trial.memory is not None), default=None)
            needed = "" if least is None else f", and the least that was tried takes {least / GB:.1f} GB"
            raise InputError(
                f"no way to train fits into the {USABLE * (self.free - self.samples) / GB:.1f} GB that a step may take "
                f"on {self.device}{needed}. What helps: a smaller --size or encoder, --precision=bf16 on a GPU"
            )
        checkpointing = "on" if self.chosen.checkpoint_activations else config.checkpoint_activations
        return dataclasses.replace(
            config,
            batch_size=self.batch_size,
            micro_batch=self.chosen.micro_batch,
            checkpoint_activations=checkpointing,
        )

    def sentences(self) -> list[str]:
        """What it comes to, for a person."""
        one = self.chosen
        if one is None:
            text = f"no way to train with batches of {self.batch_size} fits into the memory of {self.device}"
            return [text, *self.notes]
        how = "" if one.micro_batch is None else f", {one.micro_batch} at a time"
        how += ", activations computed again" if one.checkpoint_activations else ""
        memory = "" if one.memory is None else f" {one.memory / GB:.2f} of {(self.free - self.samples) / GB:.1f} GB"
        about = "takes" if one.measured else "takes about"
        text = f"a step on {counted(self.batch_size, 'sample')}{how} {about}{memory}"
        if one.step_seconds is not None and self.seconds is not None:
            text += (
                f" and {format_step(one.step_seconds)}: {counted(self.epochs, 'epoch')} of "
                f"{counted(self.steps_per_epoch, 'step')} {either(self.epochs, 'takes', 'take')} "
                f"{format_seconds(self.seconds)}"
            )
        return [text, *self.notes]

    def table(self) -> Table:
        """All ways that were tried."""
        table = Table("batch", "micro-batch", "checkpointed", "GB", "a step", "fits")
        for one in self.trials:
            mark = "" if one.measured else "≈ "
            table.add_row(
                str(self.batch_size),
                str(one.micro_batch or "–"),
                "on" if one.checkpoint_activations else "off",
                "–" if one.memory is None else f"{mark}{one.memory / GB:.2f}",
                "–" if one.step_seconds is None else mark + format_step(one.step_seconds),
                one.reason or ("yes" if one.fits else "no"),
            )
        return table

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary that JSON can hold."""
        found = {"fits": self.chosen is not None, "seconds": self.seconds, "flags": self.flags}
        return {**dataclasses.asdict(self), **found}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Plan:
        """The plan of such a dictionary."""
        own = {field.name: found[field.name] for field in dataclasses.fields(cls)}
        return cls(**own | {"trials": [Trial(**trial) for trial in found["trials"]]})


def plan_parts(found: dict[str, Any]) -> list[Part]:
    """What is said about a plan: the ways that were tried, what it comes to, and the settings of the way that fits."""
    plan = Plan.from_json(found)
    return [plan.table(), *plan.sentences(), *([] if plan.chosen is None else [f"settings: {plan.said}"])]


def make_plan(
    config: PretrainConfig, shape: DataShape, device: torch.device, build: Build, in_memory: int | None = None
) -> Plan:
    """Find the way with the fewest micro-batches that fits, without checkpointing if that is possible.

    On a GPU ways are tried until one fits. A CPU has no error to recover from when its memory is out, so that there two
    small batches are measured, and what would not fit is not tried. Random states are left as they were. `in_memory`
    are the bytes of the samples that are in main memory already; None: nothing was read yet.
    """
    with kept_random_state(device):
        return _Planner(config, shape, device, build, in_memory).plan()


class _Planner:
    def __init__(
        self, config: PretrainConfig, shape: DataShape, device: torch.device, build: Build, in_memory: int | None
    ) -> None:
        self.config, self.shape, self.device, self.build = config, shape, device, build
        self.deadline: float | None = None
        """Begins to count when the first encoder is built: what that imports, the run imports too."""
        on_host = free_bytes() + (in_memory or 0)
        self.free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else on_host
        most = DEVICE_SHARE * on_host if config.memory_gb is None else config.memory_gb * GB
        is_kept = shape.nbytes <= most if in_memory is None else shape.nbytes <= in_memory
        self.is_resident = is_kept and (device.type != "cuda" or shape.nbytes <= DEVICE_SHARE * self.free)
        self.samples = shape.nbytes if self.is_resident else 0
        self.usable = USABLE * (self.free - self.samples)
        self.notes: list[str] = []
        self.steps_per_epoch = 0
        self.peak = None if device.type == "cuda" else PeakMemory()

    def plan(self) -> Plan:
        trials: list[Trial] = []
        predict = self._prediction() if self.device.type != "cuda" else None
        for way in ways(self.config):
            expected = predict(way) if predict else None
            trials.append(self._try(way, expected, can_be_refused=bool(trials)))
            if trials[-1].fits:
                break
        if self.config.micro_batch is not None and self.config.micro_batch > self.config.batch_size:  # which was "auto"
            self.notes.append(
                f"--micro-batch={self.config.micro_batch} is larger than the batch of "
                f"{counted(self.config.batch_size, 'sample')}, which is encoded at once"
            )
        if not self.is_resident:
            self.notes.append("the samples are not kept on the device: to read them may take longer than the steps")
        if self.device.type == "cuda" and self.config.engine != "eager":
            self.notes.append("steps were timed uncompiled; long runs are compiled too, which makes them faster")
        return Plan(
            batch_size=self.config.batch_size,
            device=str(self.device),
            free=self.free,
            samples=self.samples,
            epochs=self.config.epochs,
            steps_per_epoch=self.steps_per_epoch,
            trials=trials,
            notes=list(dict.fromkeys(self.notes)),
        )

    def _try(self, way: Way, expected: _Cost | None, *, can_be_refused: bool) -> Trial:
        batch = self.config.batch_size
        trial = partial(
            Trial, micro_batch=way.at_once if way.at_once < batch else None, checkpoint_activations=way.checkpointed
        )
        if expected is not None:
            fits = expected.memory <= self.usable
            too_long = self._is_late(2 * expected.seconds)
            if not fits or too_long:
                return trial(fits=fits, memory=expected.memory, step_seconds=expected.seconds, measured=False)
        try:
            cost = self._measure(batch, way)
        except InputError as error:
            if not can_be_refused:
                raise
            return trial(fits=False, memory=None, step_seconds=None, measured=False, reason=str(error))
        if cost is None:
            return trial(fits=False, memory=None, step_seconds=None, measured=True)
        fits = cost.memory <= self.usable
        return trial(fits=fits, memory=cost.memory, step_seconds=cost.seconds, measured=True)

    def _prediction(self) -> Callable[[Way], _Cost | None] | None:
        """What ways take by the costs of two small batches, in which both are linear; None where batches are small."""
        few = max(1, method_class(self.config.method).min_batch_size)
        if self.config.batch_size <= 2 * few:
            return None
        try:
            found = [self._measure(samples, Way(samples, checkpointed=False)) for samples in (few, 2 * few)]
        except InputError:  # a method that was built for another batch size
            return None
        one, two = found
        if one is None or two is None:
            return None
        memory, seconds = ((b - a) / few for a, b in zip(one, two, strict=True))

        def predict(way: Way) -> _Cost | None:
            if way.checkpointed:
                return None  # nothing is known about it
            more = way.at_once - few
            passes = self.config.batch_size / way.at_once
            again = 1.0 if passes == 1 else ENCODED_TWICE
            return _Cost(int(one.memory + more * memory), again * passes * (one.seconds + more * max(seconds, 0.0)))

        return predict

    def _measure(self, batch: int, way: Way) -> _Cost | None:
        """What a step takes; None if it does not fit."""
        config = dataclasses.replace(
            self.config,
            batch_size=batch,
            micro_batch=way.at_once if way.at_once < batch else None,
            checkpoint_activations="on" if way.checkpointed else "off",
        )
        try:
            return self._take_steps(config)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        finally:
            gc.collect()  # engines and steps refer to each other
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return None

    def _take_steps(self, config: PretrainConfig) -> _Cost:
        device, on_gpu = self.device, self.device.type == "cuda"
        place = torch.empty(self.samples if on_gpu else 0, dtype=torch.uint8, device=device)  # for those of the run
        before = torch.cuda.memory_reserved(device) if on_gpu else 0
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
        method, views, loader = self.build(config, self.shape.random(device, config.views))
        self.deadline = self.deadline or time.monotonic() + PLAN_SECONDS
        batches = batch_sizes(self.shape.samples, self.config.batch_size, method.smallest_batch)
        check_accumulation(self.config, len(batches))
        self.steps_per_epoch = math.ceil(len(batches) / config.accumulate)
        step = TrainStep(method.train(), views, config, config.epochs * self.steps_per_epoch, device)
        if config.checkpoint_activations == "on" and (note := step.checkpoint_activations()):
            self.notes.append(note)
        sizes: Sizes = tuple(itertools.islice(loader.sizes, config.accumulate))
        context = RunContext(device, tf32=method.autocast_dtype is not None)
        with context.active():
            loader.begin(0)
            engine: Engine = EagerEngine(step, loader)
            first = self._seconds(engine, sizes, most=1)
            if first > LONG_STEP and self._is_late(first):
                seconds = first
            else:
                seconds = self._seconds(engine, sizes, most=1 if on_gpu else TIMED_STEPS)
            if on_gpu and seconds < LONG_STEP:
                engine = cuda.accelerate(step, loader, context, self.notes.append, engine=config.engine, compiled=False)
                self._seconds(engine, sizes, most=1)
                seconds = self._seconds(engine, sizes)
        del place
        return _Cost(torch.cuda.max_memory_reserved(device) - before if on_gpu else self._host_peak(), seconds)

    def _is_late(self, seconds: float) -> bool:
        """Whether so many more would be too many."""
        return self.deadline is not None and time.monotonic() + seconds > self.deadline

    def _seconds(self, engine: Engine, sizes: Sizes, most: int = TIMED_STEPS) -> float:
        """Seconds of a step, the mean over some."""
        began, steps = time.perf_counter(), 0
        while steps < most and (steps == 0 or time.perf_counter() - began < TIMED_SECONDS):
            engine(sizes)
            steps += 1
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return (time.perf_counter() - began) / steps

    def _host_peak(self) -> int:
        assert self.peak is not None
        return self.peak.bytes()


class _Cost(NamedTuple):
    memory: int
    seconds: float


def ways(config: PretrainConfig) -> Iterator[Way]:
    """Ways to compute a batch, from the fastest to the one with the least memory.

    >>> [way.at_once for way in ways(PretrainConfig(source="", batch_size=16))]
    [16, 8, 4, 2, 1, 1]
    """
    sizes = [config.micro_batch or config.batch_size]
    while config.micro_batch is None and sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    choice = config.checkpoint_activations
    yield from (Way(min(size, config.batch_size), choice == "on") for size in sizes)
    if choice == "auto":
        yield Way(min(sizes[-1], config.batch_size), checkpointed=True)
