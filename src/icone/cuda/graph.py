"""The step captured whole as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from icone.cuda.compilation import compile_parts, compiling, undo
from icone.cuda.deferred_gradients import defer_weight_gradients
from icone.cuda.overlap import OverlappedStep
from icone.data import Loader
from icone.errors import InputError, is_out_of_memory
from icone.training.context import RunContext
from icone.training.engine import Engine, Sizes
from icone.training.step import InOrder, TrainStep

WARM_UPS = 3
AHEAD = 32
"""Steps that the host may be ahead of a GPU, so that progress and interruptions mean the present."""


class CapturedEngine(Engine):
    """Replays the step as one CUDA graph for each kind of batch; the host does nothing in between.

    Networks and views may be `compiled` before they are captured. `warn` is told why something is left out; without it
    that is an error.
    """

    def __init__(
        self,
        step: TrainStep,
        loader: Loader,
        context: RunContext,
        warn: Callable[[str], None] | None,
        compiled: bool,
    ) -> None:
        super().__init__(step, loader)
        self.context, self.warn = context, warn
        self.graphs: dict[Sizes, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.failed = False
        self.marks: list[torch.cuda.Event] = []
        self.steps = 0
        if step.clip is None and step.config.accumulate == 1:
            defer_weight_gradients(step.method)
        self.parts = compile_parts(step.method, step.views) if compiled else []
        self.held: list[OverlappedStep] = []
        """What the graphs refer to and must outlive them."""

    def __call__(self, sizes: Sizes) -> None:
        if sizes not in self.graphs and not self.failed:
            self._prepare(sizes)
        if sizes in self.graphs:
            self.graphs[sizes].replay()
        else:
            self._step(sizes)
        self._keep_pace()

    def uncompiled(self) -> AbstractContextManager[None]:
        """Other shapes and modes run uncompiled: compiling them would take longer than they do."""
        stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
        return stance

    def _prepare(self, sizes: Sizes) -> None:
        """Capture the step; without compiled networks if those fail, and not at all if that fails too."""
        try:
            self.graphs[sizes] = self._capture(sizes)
        except InputError:
            raise
        except Exception as error:  # compilers raise anything
            if is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            if self.warn is None:
                raise InputError(f"the step cannot be captured ({reason}): --engine eager does without") from error
            if self.parts:
                self.warn(f"networks and views run uncompiled, because compiling or capturing them failed ({reason})")
                undo(self.parts)
                self.parts = []
                self._prepare(sizes)
            else:
                self.warn(f"steps run uncaptured, many times slower at small batches, because of {reason}")
                self.failed, self.step.arranged = True, InOrder()

    def _capture(self, sizes: Sizes) -> torch.cuda.CUDAGraph:
        """Warm up, capture, and put everything back to where it was."""
        restore = self._remember()
        graph = torch.cuda.CUDAGraph()
        if self.step.clip is None:  # clipping needs all gradients before the first update
            arranged = OverlappedStep(self.step.optimizer, self.step.method, self.loader.device, alone=self.alone)
            self.step.arranged = arranged
            self.held.append(arranged)
        try:
            with compiling():
                for _ in range(WARM_UPS):
                    self._step(sizes)
            # Threads that read data ahead allocate pinned memory meanwhile: only this one must not.
            with torch.cuda.graph(graph, self.pool, self.context.stream, capture_error_mode="thread_local"):
                self._step(sizes)
            for arranged in self.held[-1:]:
                arranged.settle()
        except Exception:
            self.context.renew_randomness()
            raise
        finally:
            restore()
        return graph

    def _remember(self) -> Callable[[], None]:
        """Copy all that a step changes; the result puts it back."""
        random, fresh = self.context.random_state(), not self.step.meter.names
        tensors: list[Tensor] = [*self.step.tensors(), self.loader.position]
        copies = [tensor.detach().clone() for tensor in tensors]

        @torch.no_grad()
        def restore() -> None:
            torch._foreach_copy_(tensors, copies)
            if fresh:
                self.step.meter.reset()
            self.context.set_random_state(random)

        return restore

    def _keep_pace(self) -> None:
        """Wait now and then, so that the host is never far ahead."""
        self.steps += 1
        if self.steps % AHEAD == 0:
            self.marks.append(self.context.stream.record_event())
            if len(self.marks) > 1:
                self.marks.pop(0).synchronize()
