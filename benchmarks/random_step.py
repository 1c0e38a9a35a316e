"""The time of a training step on random samples, captured on a GPU without the compiler: what several tables share."""

from __future__ import annotations

import statistics
import time

import torch

from icone.api.random_data import DataShape
from icone.api.training_parts import Parts, build_parts
from icone.config import PretrainConfig
from icone.data import Preparation
from icone.training.context import RunContext
from icone.training.engine import EagerEngine, Engine
from icone.training.step import TrainStep

WARM_UPS, ROUNDS, ROUND_SECONDS = 3, 3, 0.5


def preparation_of(size: tuple[int, ...], channels: int) -> Preparation:
    """Samples of bytes, as images and MedMNIST's volumes are kept."""
    return Preparation(
        spatial_dims=len(size), channels=channels, size=size, fit="stretch", spacing=None, low=(0.0,) * channels,
        high=(1.0,) * channels, dtype="uint8",
    )  # fmt: skip


def step_seconds(config: PretrainConfig, preparation: Preparation, samples: int) -> tuple[float, Parts]:
    """Seconds of a step, the median of some rounds, and what was trained."""
    device = torch.device(config.device)
    parts = build_parts(config, DataShape(preparation, samples).random(device, config.views))
    step = TrainStep(parts.method.train(), parts.views, config, 10**6, device)
    context = RunContext(device, tf32=True)
    engine: Engine = EagerEngine(step, parts.loader)
    if device.type == "cuda":
        from icone.cuda.graph import CapturedEngine

        engine = CapturedEngine(step, parts.loader, context, None, compiled=False)

    def seconds_of(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            engine((config.batch_size,))
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / steps

    with context.active():
        parts.loader.begin(0)
        one = min(seconds_of(1) for _ in range(WARM_UPS))
        steps = max(2, min(200, round(ROUND_SECONDS / one)))
        return statistics.median(seconds_of(steps) for _ in range(ROUNDS)), parts
