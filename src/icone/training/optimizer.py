"""AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) of a method, and its learning rate as a device tensor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icone.config import TrainingConfig
from icone.methods import Method
from icone.recipe import parameter_groups


def build_optimizer(method: Method, config: TrainingConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW, dense and fused; its learning rate is one 0-d tensor that all groups share.

    Its moments exist from the start: a captured step must find them in their place.
    """
    groups = parameter_groups(
        method,
        batch_size=config.batch_size * config.accumulate,
        lr=config.lr,
        weight_decay=config.weight_decay,
        undecayed=method.undecayed(),
        recipe=config.recipe,
    )
    lr = torch.full((), groups[0]["lr"], device=device)
    groups = [{**group, "lr": lr} for group in groups]
    optimizer = torch.optim.AdamW(groups, lr=lr, fused=True, capturable=device.type == "cuda")
    for p in (p for group in groups for p in group["params"]):
        optimizer.state[p] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, base: float, progress: Tensor) -> None:
    """Cosine from `base` at progress 0 to zero at progress 1, written into the shared tensor."""
    optimizer.param_groups[0]["lr"].copy_(0.5 * base * (1 + torch.cos(math.pi * progress)))
