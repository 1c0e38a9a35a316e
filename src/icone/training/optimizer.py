"""AdamW over all parameters of a method, and its learning rate as a device tensor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icone.config import TrainingConfig
from icone.methods import Method


def build_optimizer(method: Method, config: TrainingConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW, dense and fused; its learning rate is one 0-d tensor that all groups share.

    Its moments exist from the start: a captured step must find them in their place.
    """
    trainable = [p for p in method.parameters() if p.requires_grad]
    spared = {id(p) for p in method.undecayed()}
    groups = [
        {"params": [p for p in trainable if id(p) not in spared], "weight_decay": config.weight_decay},
        {"params": [p for p in trainable if id(p) in spared], "weight_decay": 0.0},
    ]
    lr = torch.full((), config.lr, device=device)
    optimizer = torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=lr, fused=True, capturable=device.type == "cuda"
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
