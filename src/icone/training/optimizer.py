"""AdamW over all parameters of a method, and its learning rate as a device tensor."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from icone.config import REFERENCE_INSTANCES, TrainingConfig
from icone.methods import Method


class Pace(NamedTuple):
    """The settings of AdamW that depend on the number of instances in a step."""

    lr: float
    betas: tuple[float, float]
    eps: float


def pace(config: TrainingConfig) -> Pace:
    """AdamW's settings at which an epoch does the same at any batch size, by the square-root rule.

    The gradient of a small batch is mostly noise, with a variance of 1/B. Adam divides by its size, so that a step has
    a length of lr whatever B is, and the signal in it grows with √B. An epoch has N/B steps; over an epoch signal and
    noise are those of another batch size if lr grows with √B. The moments must forget after as many instances, not
    steps: 1 − β grows with B. The recipe of the paper keeps all of them constant.

    >>> pace(TrainingConfig(lr=1e-4, batch_size=16)) == pace(TrainingConfig(lr=1e-4, batch_size=1, recipe="paper"))
    True
    >>> small = pace(TrainingConfig(lr=1e-4, batch_size=1))
    >>> f"{small.lr:g} {small.betas[0]:g}"
    '2.5e-05 0.99375'
    """
    scale = 1.0 if config.recipe == "paper" else config.batch_size * config.accumulate / REFERENCE_INSTANCES
    betas = (1 - min(0.1 * scale, 1.0), 1 - min(0.001 * scale, 1.0))
    return Pace(config.lr * math.sqrt(scale), betas, 1e-8 / math.sqrt(scale))


def build_optimizer(method: Method, config: TrainingConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW, dense and fused; its learning rate is one 0-d tensor that all groups share.

    Its moments exist from the start: a captured step must find them in their place.
    """
    lr, betas, eps = pace(config)
    trainable = [p for p in method.parameters() if p.requires_grad]
    spared = set(method.undecayed())
    least = {} if config.recipe == "paper" else method.usual_gradients(config.batch_size * config.accumulate)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for p in trainable:
        groups.setdefault((0.0 if p in spared else config.weight_decay, max(eps, least.get(p, 0.0))), []).append(p)
    optimizer = torch.optim.AdamW(
        [{"params": params, "weight_decay": decay, "eps": own} for (decay, own), params in groups.items()],
        lr=torch.full((), lr, device=device),
        betas=betas,
        fused=True,
        capturable=device.type == "cuda",
    )
    for p in trainable:
        optimizer.state[p] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, base: float, progress: Tensor) -> None:
    """Cosine from `base` at progress 0 to zero at progress 1, written into the shared tensor."""
    optimizer.param_groups[0]["lr"].copy_(0.5 * base * (1 + torch.cos(math.pi * progress)))
