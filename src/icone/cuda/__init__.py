"""Everything that makes training fast on an NVIDIA GPU: graph capture, compilation, side streams, Triton kernels.

Two functions are all that the rest of the package uses: `prepare_network`, before training, and `accelerate`. Nothing
here is imported before a run is on a CUDA device. `CudaOptions` switches parts of it off.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import nn

from icone.cuda.compiler_process import CompilerProcess
from icone.cuda.switches import ALL_ON, CudaOptions
from icone.data import Loader
from icone.errors import InputError
from icone.nn.diversity.orthogonality import TESTED_TORCH, is_tested_torch
from icone.training.context import RunContext
from icone.training.engine import EagerEngine, Engine
from icone.training.step import TrainStep

__all__ = ["ALL_ON", "CompilerProcess", "CudaOptions", "accelerate", "free_gpu_memory", "prepare_network"]

WORTHWHILE_STEPS = 100
"""Steps from which capturing pays: it takes a second or two, and an eager step 20 to 50 ms."""
COMPILED_STEPS = {0: 20_000, 2: 20_000, 3: 5_000}
"""Steps from which compiling pays as well, by dimensions of a sample; a step in micro-batches counts for as many steps.
It takes 16 to 47 s for a ViT-S, and then saves 0.7 of 2.5 ms a step; 20 to 80 s for a 3D ResNet-18, and then saves 2.4
of 4.0 ms at batch 1, 10 of 16 at batch 16."""


def accelerate(
    step: TrainStep,
    loader: Loader,
    context: RunContext,
    warn: Callable[[str], None],
    *,
    engine: str = "auto",
    options: CudaOptions = ALL_ON,
    compiler: CompilerProcess | None = None,
    compiled: bool = True,
) -> Engine:
    """The engine of this name for a step, whose networks must be our own.

    `auto` captures on CUDA where that pays, or goes on eagerly and says why not; where compiling pays too, it compiles
    before the first step. `ahead` is the same, but begins uncompiled while the `compiler` is at work, if there is one.
    `captured` always compiles before the first step. Nothing is compiled without `compiled`.
    """
    if loader.device.type != "cuda":
        if engine == "captured":
            raise InputError(f"--engine=captured needs a CUDA device, and this run is on {loader.device}")
        return EagerEngine(step, loader)
    if engine == "eager" or (engine != "captured" and step.total_steps < WORTHWHILE_STEPS):
        return EagerEngine(step, loader)
    if not is_tested_torch():
        needs = f"needs torch {'.'.join(map(str, TESTED_TORCH))} or later, and this is {torch.__version__}"
        if engine == "captured":
            raise InputError(f"--engine=captured {needs}")
        warn(f"steps run uncaptured, many times slower at small batches, because capturing {needs}")
        return EagerEngine(step, loader)
    if find_spec("triton") is None:
        if engine == "captured":
            raise InputError("--engine=captured needs the package triton, which is not installed")
        warn("steps run uncaptured, many times slower at small batches, because the package triton is not installed")
        return EagerEngine(step, loader)
    from icone.cuda.graph import CapturedEngine

    pays = engine == "captured" or step.total_passes >= COMPILED_STEPS[len(loader.dataset.preparation.size)]
    told = None if engine == "captured" else warn
    ahead = compiler if engine == "ahead" else None
    return CapturedEngine(step, loader, context, told, compiled and pays, options, ahead)


def prepare_network(network: nn.Module, options: CudaOptions = ALL_ON) -> None:
    """Replace layers of a network of our own by layers that suit a GPU.

    Parameters and their names stay the same, and so do the results. The network is changed in place: it must be a copy
    that we train, never a module that belongs to the user.
    """
    from icone.cuda.attention import use_short_attention
    from icone.cuda.replacement import replace_classes
    from icone.encoders.layers import HalvingMaxPool3d, PatchConv2d, StemConv3d, use_channels_last

    if not options.patch_conv:
        replace_classes(network, {PatchConv2d: nn.Conv2d})
    if not options.stem_conv:
        replace_classes(network, {StemConv3d: nn.Conv3d})
    if not options.halving_pool:
        replace_classes(network, {HalvingMaxPool3d: nn.MaxPool3d})
    if options.channels_last:
        use_channels_last(network)
    if options.attention_kernels and is_tested_torch():
        use_short_attention(network)


def free_gpu_memory() -> None:
    """Free what runs that are over held on the GPU; no captured step may be replayed after.

    Captured steps refer to each other. And PyTorch keeps the workspaces of cuBLAS for every stream that ever used it,
    32 MiB each on recent GPUs: 129 MiB for every run, which has streams of its own.
    """
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # there is no public name for it
    torch.cuda.empty_cache()
