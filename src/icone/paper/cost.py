"""Time and memory of a training step, measured on made-up samples: the runs of the experiment `memory`.

The samples themselves are left out (all N are one): every method holds the same ones. On a GPU peak memory is what
PyTorch had allocated at most. A CPU has no such counter; there the bytes of the tensors are added up that a step must
hold: weights, gradients, states of AdamW, and what autograd keeps for the backward pass.
"""

from __future__ import annotations

import copy
import functools
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.api.build import autocast_dtype
from icone.config import PretrainConfig
from icone.cuda import prepare_network
from icone.data import Loader
from icone.encoders import build_encoder
from icone.errors import UndefinedError, is_out_of_memory
from icone.methods import Setting, build_method
from icone.nn import convert_batch_norm
from icone.paper.outcome import Outcome
from icone.paper.spec import RunSpec
from icone.recipe import initial_scale
from icone.training.context import RunContext
from icone.training.engine import EagerEngine, Engine
from icone.training.step import TrainStep
from icone.views import build_views

LITERAL = "literal"
"""Ends the cost of a run that builds the whole N × N matrix."""
CHANNELS = 3
WARM_UPS = 2
ROUNDS = 3
ROUND_SECONDS = 0.1
ROUND_STEPS = (4, 25)
"""Steps of a round, at least and at most."""
LONG_STEP = 0.5
"""Seconds from which a round is one step: what disturbs a clock by milliseconds does not matter there."""


def literal_orthogonality(table: Tensor) -> Tensor:
    """The diversity loss as one would write it down, with the whole N × N matrix."""
    unit = F.normalize(table, dim=1)
    diagonal = torch.eye(len(table), dtype=torch.bool, device=table.device)
    return (unit @ unit.T).masked_fill(diagonal, 0).relu().square().sum() / (len(table) * (len(table) - 1))


class _Samples:
    """Stands in for a data set: N samples that are one, on the device, where they take no memory to speak of."""

    def __init__(self, count: int, shape: tuple[int, ...], device: torch.device) -> None:
        self.images = torch.randint(0, 256, (1, *shape), dtype=torch.uint8, device=device).expand(count, *shape)
        self.labels = torch.full((count,), -1)

    def __len__(self) -> int:
        return len(self.labels)


def measure_cost(spec: RunSpec, device: torch.device) -> Outcome:
    """Seconds of a step and memory; a step that does not fit is a result too: `out_of_memory`."""
    kind, _, form = spec.cost.partition(" ")
    device = torch.device("cpu") if kind == "cpu" else device
    if kind != "cpu" and device.type != "cuda":
        raise UndefinedError(f"the {kind} step of a GPU can be measured on a GPU only, and this run is on {device}")
    config = spec.config
    sample = f"{CHANNELS}x{config.size}x{config.size}"
    if device.type == "cuda":  # whoever calls has freed what earlier runs held
        torch.cuda.reset_peak_memory_stats(device)
    try:
        engine, context = _build(config, device, captured=kind == "captured", literal=form == LITERAL)
        with context.active():
            seconds, steps = _timed(engine, config.batch_size, device)
            metrics = {"seconds_per_step": seconds}
            if device.type == "cuda":
                metrics["step_peak_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
            else:
                metrics["tensor_gb"] = _tensor_bytes(engine, config.batch_size) / 1e9
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return Outcome(status="done", metrics={"out_of_memory": 1.0}, notes=["out of memory"], sample=sample)
    return Outcome(status="done", metrics=metrics, steps=steps, sample=sample)


def _build(config: PretrainConfig, device: torch.device, captured: bool, literal: bool) -> tuple[Engine, RunContext]:
    """The step of a configuration as `icone.pretrain` would build it, and what runs it."""
    assert config.subset is not None
    assert config.size is not None
    torch.manual_seed(config.seed)
    shape = (config.size, config.size)
    encoder = copy.deepcopy(_encoder(config.encoder, config.size))
    if config.recipe != "paper":
        encoder = convert_batch_norm(encoder, config.batch_size)
    setting = Setting(
        num_instances=config.subset,
        batch_size=config.batch_size,
        num_views=config.views,
        initial_scale=initial_scale(config.lr, config.recipe),
    )
    method = build_method(config.method, encoder, setting, config.options, config.recipe)
    if literal:
        method.objective.diversity = literal_orthogonality  # type: ignore[union-attr]
    method.autocast_dtype = autocast_dtype(config, device)
    if device.type == "cuda":
        prepare_network(method)
    views = build_views(config, spatial_dims=2, channels=CHANNELS, size=shape)
    loader = Loader(_Samples(config.subset, (CHANNELS, *shape), device), config.batch_size, seed=0, device=device)  # type: ignore[arg-type]
    loader.begin(0)
    step = TrainStep(method.to(device).train(), views.to(device), config, 10**6, device)
    context = RunContext(device, tf32=True)
    if not captured:
        return EagerEngine(step, loader), context
    from icone.cuda.graph import CapturedEngine

    return CapturedEngine(step, loader, context, None, compiled=False), context


@functools.lru_cache(1)
def _encoder(name: str, size: int) -> nn.Module:
    """Built once for all runs of a process: it takes longer than the steps that are measured."""
    return build_encoder(name, in_channels=CHANNELS, spatial_dims=2, size=size)


def _timed(engine: Engine, batch_size: int, device: torch.device) -> tuple[float, int]:
    """Seconds of a step, the median over rounds of several steps, and the number of steps behind them."""

    def round_of(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            engine((batch_size,))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - began) / steps

    for _ in range(WARM_UPS):
        one = round_of(1)
    least, most = ROUND_STEPS
    steps = 1 if one > LONG_STEP else min(most, max(least, round(ROUND_SECONDS / one)))
    return statistics.median(round_of(steps) for _ in range(ROUNDS)), ROUNDS * steps


def _tensor_bytes(engine: Engine, batch_size: int) -> int:
    """Bytes of the tensors that a step must hold, those that autograd keeps for the backward pass included."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        engine((batch_size,))
    for tensor in engine.step.tensors():
        keep(tensor)
    gradients = sum(p.numel() * p.element_size() for p in engine.step.method.parameters() if p.requires_grad)
    return sum(kept.values()) + gradients
