"""How the step is called. Here as it is written; `icone.cuda` captures it as a CUDA graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from icone.data import Loader
from icone.training.context import RunContext
from icone.training.step import TrainStep

Sizes = tuple[int, ...]
"""Samples in the batches of one step; more than one batch where gradients are accumulated."""


class Engine(ABC):
    """Runs the steps of one run."""

    alone = True
    """Whether no other run takes its steps at the same time; to be set before the first step."""

    def __init__(self, step: TrainStep, loader: Loader) -> None:
        self.step, self.loader = step, loader

    @abstractmethod
    def __call__(self, sizes: Sizes) -> None:
        """One step on batches of these sizes."""

    def uncompiled(self) -> AbstractContextManager[None]:
        """Around what uses the networks between steps: other shapes and modes, not worth compiling."""
        return nullcontext()

    def _step(self, sizes: Sizes) -> None:
        self.step([self.loader.take(number, size) for number, size in enumerate(sizes)])


class EagerEngine(Engine):
    """Calls every operation of the step from the host."""

    def __call__(self, sizes: Sizes) -> None:
        self._step(sizes)


EngineChoice = Callable[[TrainStep, Loader, RunContext, Callable[[str], None]], Engine]
"""From a step and its data to the engine that runs it; it may tell why it does not take a faster one."""


def eager(step: TrainStep, loader: Loader, context: RunContext, warn: Callable[[str], None]) -> Engine:
    """The engine that any device has."""
    return EagerEngine(step, loader)
