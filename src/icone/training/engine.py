"""How the step is called: as it is written, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from icone.data import Loader
from icone.errors import InputError
from icone.training.context import Place
from icone.training.step import TrainStep

WORTHWHILE_STEPS = 100
"""Steps from which capturing pays: it takes a second or two, and an eager step 20 to 50 ms."""
COMPILED_STEPS = {0: 20_000, 2: 20_000, 3: 5_000}
"""Steps from which compiling pays as well, by dimensions of a sample. It takes 16 to 47 s for a ViT-S, and then saves
0.7 of 2.5 ms a step; 20 to 80 s for a 3D ResNet-18, and then saves 2.4 of 4.0 ms at batch 1, 10 of 16 at batch 16."""
Sizes = tuple[int, ...]
"""Instances in the batches of one step; more than one batch where gradients are accumulated."""


def choose_engine(name: str, step: TrainStep, loader: Loader, place: Place, warn: Callable[[str], None]) -> Engine:
    """The engine of this name; on CUDA `auto` captures where that pays, or goes on eagerly and says why not."""
    if loader.device.type != "cuda":
        if name == "captured":
            raise InputError(f"--engine captured needs a CUDA device, and this run is on {loader.device}")
        return EagerEngine(step, loader)
    if name == "eager" or (name == "auto" and step.total_steps < WORTHWHILE_STEPS):
        return EagerEngine(step, loader)
    try:
        from icone.cuda.graph import CapturedEngine
    except ImportError as error:  # its kernels need Triton
        if name == "captured":
            raise InputError(f"--engine captured needs a package that is not installed: {error}") from error
        warn(f"steps run uncaptured, many times slower at small batches, because {error}")
        return EagerEngine(step, loader)
    compiled = name == "captured" or step.total_steps >= COMPILED_STEPS[len(loader.dataset.preparation.size)]
    return CapturedEngine(step, loader, place, warn if name == "auto" else None, compiled)


class Engine(ABC):
    """Runs the steps of one run."""

    alone = True
    """Whether no other run takes its steps meanwhile; to be set before the first."""

    def __init__(self, step: TrainStep, loader: Loader) -> None:
        self.step, self.loader = step, loader

    @abstractmethod
    def __call__(self, sizes: Sizes) -> None:
        """One step on batches of these sizes."""

    def aside(self) -> AbstractContextManager[None]:
        """Around what uses the networks between steps."""
        return nullcontext()

    def _step(self, sizes: Sizes) -> None:
        self.step([self.loader.take(slot, size) for slot, size in enumerate(sizes)])


class EagerEngine(Engine):
    """Calls every operation of the step from the host."""

    def __call__(self, sizes: Sizes) -> None:
        self._step(sizes)
