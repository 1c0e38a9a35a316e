"""How the step is called. Here as it is written; `icone.cuda` captures it as a CUDA graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from icone.data import Loader
from icone.errors import is_out_of_memory
from icone.training.context import RunContext
from icone.training.step import TrainStep

Sizes = tuple[int, ...]
"""Samples in the batches of one step; more than one batch where gradients are accumulated."""


class Engine(ABC):
    """Runs the steps of one run."""

    alone = True
    """Whether no other run takes its steps at the same time; to be set before the first step."""

    tell: Callable[[str], None] = staticmethod(lambda text: None)
    """Told what the engine has decided by itself."""

    def __init__(self, step: TrainStep, loader: Loader) -> None:
        self.step, self.loader = step, loader

    @abstractmethod
    def __call__(self, sizes: Sizes) -> None:
        """One step on batches of these sizes."""

    def uncompiled(self) -> AbstractContextManager[None]:
        """Around what uses the networks between steps: other shapes and modes, not worth compiling."""
        return nullcontext()

    def close(self) -> None:
        """No more steps are taken: end what the engine has begun besides."""
        return

    def _may_save_memory(self, error: Exception) -> bool:
        """Whether a step that failed did not fit, and may be tried again with less memory."""
        settled = self.step.is_checkpointed or self.step.config.checkpoint_activations != "auto"
        return is_out_of_memory(error) and not settled

    def _save_memory(self) -> None:
        """Compute activations again from now on; to be called when nothing refers to the failed step any more."""
        self.step.optimizer.zero_grad()
        if self.loader.device.type == "cuda":
            torch.cuda.empty_cache()
        note = self.step.checkpoint_activations()
        self.tell(
            "a step does not fit in memory, so activations of the encoder are computed again in the backward pass "
            f"(--checkpoint-activations=on){f'; {note}' if note else ''}"
        )

    def _snapshot(self) -> Callable[[], None]:
        """Copy everything that a step changes; the result restores it."""
        device = self.loader.device
        on_gpu, fresh = device.type == "cuda", not self.step.meter.names
        random_state = torch.cuda.get_rng_state(device) if on_gpu else torch.get_rng_state()
        tensors: list[Tensor] = [*self.step.tensors(), self.loader.position]
        copies = [tensor.detach().clone() for tensor in tensors]

        @torch.no_grad()
        def restore() -> None:
            torch._foreach_copy_(tensors, copies)
            if fresh:
                self.step.meter.reset()
            if on_gpu:
                torch.cuda.set_rng_state(random_state, device)
            else:
                torch.set_rng_state(random_state)

        return restore

    def _step(self, sizes: Sizes) -> None:
        self.step([self.loader.take(number, size) for number, size in enumerate(sizes)])


class EagerEngine(Engine):
    """Calls every operation of the step from the host."""

    def __init__(self, step: TrainStep, loader: Loader) -> None:
        super().__init__(step, loader)
        self.tried: set[Sizes] = set()

    def __call__(self, sizes: Sizes) -> None:
        if sizes in self.tried or self.loader.device.type != "cuda" or self.step.is_checkpointed:
            self._step(sizes)
        else:
            self._try(sizes)
            self.tried.add(sizes)

    def _try(self, sizes: Sizes) -> None:
        restore = self._snapshot()
        try:
            self._step(sizes)
            return
        except Exception as error:
            if not self._may_save_memory(error):
                raise
        restore()  # outside of the handler, because the error holds what the step had allocated
        self._save_memory()
        self._step(sizes)


EngineChoice = Callable[[TrainStep, Loader, RunContext, Callable[[str], None]], Engine]
"""From a step and its data to the engine that runs it; it may tell why it does not take a faster one."""


def eager(step: TrainStep, loader: Loader, context: RunContext, warn: Callable[[str], None]) -> Engine:
    """The engine that any device has."""
    return EagerEngine(step, loader)
