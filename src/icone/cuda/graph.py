"""The step compiled, and captured whole as a CUDA graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from icone.cuda.compiler_process import CompilerProcess
from icone.cuda.deferred_gradients import WeightGradientStream, defer_weight_gradients
from icone.cuda.replacement import replace_layers
from icone.cuda.switches import ALL_ON, CudaOptions
from icone.data import Loader
from icone.encoders import Region, regions
from icone.errors import InputError, is_out_of_memory
from icone.methods import IConE
from icone.training.context import RunContext
from icone.training.engine import Engine, Sizes
from icone.training.step import TrainStep

WARM_UPS = 3
MAX_STEPS_AHEAD = 32
"""Steps that the host may be ahead of the GPU, so that progress and interruptions are about the present."""
CUDA_BYTES = 2**30
"""What a process takes on a GPU before its first tensor: half of it for CUDA, and libraries."""
MAX_RECOMPILES = 256
"""Variants of one function that are compiled: a block of a network has one for each of its shapes and batch sizes."""


class CapturedEngine(Engine):
    """Replays the step as one CUDA graph for each size of batch; the host does nothing in between.

    Networks and views may be `compiled` before they are captured. With a `compiler`, a process that fills the
    compiler's cache, the first steps are captured uncompiled, and the step is captured anew when that is done. `warn`
    is told why something is left out; without it that is an error. The networks of the step must be our own: some of
    their layers are replaced.
    """

    def __init__(
        self,
        step: TrainStep,
        loader: Loader,
        context: RunContext,
        warn: Callable[[str], None] | None,
        compiled: bool,
        options: CudaOptions = ALL_ON,
        compiler: CompilerProcess | None = None,
    ) -> None:
        super().__init__(step, loader)
        self.context, self.warn, self.options = context, warn, options
        self.graphs: dict[Sizes, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.failed = False
        self.events: list[torch.cuda.Event] = []
        self.steps = 0
        self.side_streams: list[WeightGradientStream] = []
        """They are part of the graphs and must live as long."""
        self.compiler = compiler if compiled else None
        self._prepare_step(compiled and compiler is None)

    def _prepare_step(self, compiled: bool) -> None:
        self.original_layers, self.options = prepare_step(self.step, self.options)
        self.parts = compile_parts(self.step, self.options) if compiled else []

    def __call__(self, sizes: Sizes) -> None:
        if self.compiler is not None:
            self._look_after(self.compiler)
        if sizes not in self.graphs and not self.failed:
            self._try(sizes)
        if sizes in self.graphs:
            self.graphs[sizes].replay()
        else:
            self._step(sizes)
        self._limit_steps_ahead()

    def uncompiled(self) -> AbstractContextManager[None]:
        """Other shapes and modes run uncompiled: compiling them would take longer than they do."""
        stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
        return stance

    def close(self) -> None:
        """End the process that compiles."""
        if self.compiler is not None:
            self.compiler.close()

    def _look_after(self, compiler: CompilerProcess) -> None:
        """Start the compiler after the first step, and go on compiled when it is done, or if it fails."""
        if not self.alone:  # every run would have a process of its own
            self._go_on_compiled()
        elif self.failed:
            self.compiler = None
        elif not self.graphs:
            return  # the first step comes before all else
        elif not compiler.is_started:
            if not self._has_memory_for_two():
                self.tell("the GPU has no memory for a process that compiles, so this one does, which takes a while")
                self._go_on_compiled()
                return
            compiler.start(
                {
                    "sizes": step_sizes(self.loader, self.step.config.accumulate),
                    "total_steps": self.step.total_steps,
                    "checkpointed": self.step.is_checkpointed,
                    "options": dataclasses.asdict(self.options),
                }
            )
        elif (succeeded := compiler.succeeded()) is not None:
            if not succeeded:
                self.tell(
                    f"the process that compiles has failed ({compiler.reason}), so this one does, which takes a while"
                )
            self._go_on_compiled()

    def _has_memory_for_two(self) -> bool:
        """Whether another process can take a step too: as much memory as this one has, and what CUDA itself takes."""
        free, _ = torch.cuda.mem_get_info(self.loader.device)
        return free > 1.2 * torch.cuda.max_memory_reserved(self.loader.device) + CUDA_BYTES

    def _go_on_compiled(self) -> None:
        """Forget the uncompiled graphs: the next steps are compiled, with what the cache has, and captured."""
        self.close()
        self.compiler = None
        self.context.synchronize()
        self._forget_graphs()
        self.step.optimizer.zero_grad()  # gradients lie in the memory of the graphs
        self.pool = torch.cuda.graph_pool_handle()
        torch.cuda.empty_cache()
        self.parts = compile_parts(self.step, self.options)

    def _forget_graphs(self) -> None:
        self.graphs.clear()
        self.side_streams.clear()
        self.events.clear()
        self.step.last_backward = nullcontext

    def _try(self, sizes: Sizes) -> None:
        """Capture the step, with activations that are computed again if it does not fit and may."""
        try:
            self._prepare(sizes)
            return
        except Exception as error:
            if not self._may_save_memory(error):
                raise
        self._forget_graphs()  # outside of the handler, because the error holds what the step had allocated
        undo(self.parts)
        replace_layers(self.step.method, self.original_layers.get)
        self._save_memory()
        self._prepare_step(compiled=bool(self.parts))
        self._prepare(sizes)

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
                raise InputError(f"the step cannot be captured ({reason}): --engine=eager does without") from error
            if self.parts:
                self.warn(f"networks and views run uncompiled, because compiling or capturing them failed ({reason})")
                undo(self.parts)
                self.parts = []
                self._prepare(sizes)
            else:
                self.warn(f"steps run uncaptured, many times slower at small batches, because of {reason}")
                self.failed, self.step.last_backward = True, nullcontext
                replace_layers(self.step.method, self.original_layers.get)

    def _capture(self, sizes: Sizes) -> torch.cuda.CUDAGraph:
        """Warm up, capture, and restore everything that these steps changed."""
        restore = self._snapshot()
        graph = torch.cuda.CUDAGraph()
        if self.original_layers and self.alone:  # several runs fill the GPU without it
            self.side_streams.append(WeightGradientStream(self.loader.device))
            trained = [p for p in self.step.method.parameters() if p.requires_grad]
            self.step.last_backward = partial(self.side_streams[-1].during_backward, trained)
        try:
            with many_recompiles():
                for _ in range(WARM_UPS):
                    self._step(sizes)
            # Threads that read data ahead allocate pinned memory meanwhile: only this one must not.
            with torch.cuda.graph(graph, self.pool, self.context.stream, capture_error_mode="thread_local"):
                self._step(sizes)
        except Exception:
            self.context.replace_generator()
            raise
        finally:
            restore()
        torch.cuda.empty_cache()  # the graph has memory of its own, and needs none of what the warm-up has left
        return graph

    def _limit_steps_ahead(self) -> None:
        """Wait now and then, so that the host is never far ahead."""
        self.steps += 1
        if self.steps % MAX_STEPS_AHEAD == 0:
            self.events.append(self.context.stream.record_event())
            if len(self.events) > 1:
                self.events.pop(0).synchronize()


def step_sizes(loader: Loader, accumulate: int) -> list[Sizes]:
    """The different sizes that steps of an epoch have."""
    sizes = iter(loader.sizes)
    groups = iter(lambda: tuple(itertools.islice(sizes, accumulate)), ())
    return list(dict.fromkeys(groups))


def compile_step(step: TrainStep, loader: Loader, sizes: Sequence[Sizes], options: CudaOptions = ALL_ON) -> None:
    """Take the steps for which a captured one would be compiled, so that the compiler's cache has what they need."""
    _, options = prepare_step(step, options)
    compile_parts(step, options)
    for group in sizes:
        with many_recompiles():
            for _ in range(WARM_UPS):
                step([loader.take(number, size) for number, size in enumerate(group)])


def prepare_step(step: TrainStep, options: CudaOptions) -> tuple[dict[nn.Module, nn.Module], CudaOptions]:
    """Replace layers of the step's networks as the options say: the old layer of every new one, and what is left on."""
    layers = _replace_layers(step, options)
    if not layers:  # nothing on a side stream reads buffers that could be used again
        options = dataclasses.replace(options, deferred_gradients=False)
    return layers, options


def _replace_layers(step: TrainStep, options: CudaOptions) -> dict[nn.Module, nn.Module]:
    if isinstance(step.method, IConE):
        step.method.side_stream.enabled = options.diversity_stream
    if not options.deferred_gradients or step.is_checkpointed:  # memory matters more there
        return {}
    if step.config.accumulate > 1 or step.config.micro_batch is not None:  # which would add up gradients in order
        return {}
    return defer_weight_gradients(step.method, column_sum_kernel=options.column_sum_kernel)


def compile_options(options: CudaOptions) -> dict[str, Any]:
    """Options of torch.compile."""
    chosen: dict[str, Any] = {
        "combo_kernels": options.combo_kernels,
        "fallback_random": True,  # the random numbers of the uncompiled code
    }
    if options.deferred_gradients:  # a side stream may still read memory that the compiler would use again
        chosen |= {"allow_buffer_reuse": False, "inplace_buffers": False}
    return chosen


def compile_parts(step: TrainStep, options: CudaOptions = ALL_ON) -> list[Region]:
    """Compile the views, the regions of the encoder and of its EMA copies, parts of the method, schedule and meter.

    The compiler runs at the first call of each.
    """
    method, views = step.method, step.views
    encoders = [region for network in method.encoders() for region in regions(network)]
    # Views of micro-batches are made in parts.
    in_parts = method.micro_batch is not None and hasattr(views, "transform")
    parts = [
        Region(views, "transform" if in_parts else "forward"),
        *encoders,
        *method.compiled_parts(),
        Region(step, "schedule"),
        Region(step.meter, "add"),
    ]
    for region in parts:
        region.replace_function(partial(torch.compile, dynamic=False, options=compile_options(options)))
    return parts


def undo(parts: list[Region]) -> None:
    """Let compiled parts be uncompiled again."""
    for region in parts:
        region.restore()


@contextmanager
def many_recompiles() -> Iterator[None]:
    """Allow as many variants as a deep network has; one more is an error, not a function that stays uncompiled."""
    with torch._dynamo.config.patch(
        recompile_limit=MAX_RECOMPILES,
        accumulated_recompile_limit=16 * MAX_RECOMPILES,
        fail_on_recompile_limit_hit=True,
    ):
        yield
