"""AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) of a method, and its learning rate as a device tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from icone.config import TrainingConfig
from icone.encoders.regions import layer_depths
from icone.methods import Method
from icone.recipe import FROM_NOTHING, ContinuedSettings, adamw_settings, parameter_groups


def build_optimizer(
    method: Method, config: TrainingConfig, device: torch.device, continued: ContinuedSettings = FROM_NOTHING
) -> torch.optim.AdamW:
    """AdamW, dense and fused; its learning rate is one 0-d tensor that all groups share.

    Where the encoder starts from weights, every depth of it has a tensor of its own, `lr_scale` times the first.
    Its moments exist from the start: a captured step must find them in their place.
    """
    groups = parameter_groups(
        method,
        batch_size=config.batch_size * config.accumulate,
        lr=config.lr,
        weight_decay=config.weight_decay,
        undecayed=method.undecayed(),
        recipe=config.recipe,
        lr_scales=encoder_scales(method.encoder, continued),
    )
    base = adamw_settings(config.lr, config.batch_size * config.accumulate, config.recipe).lr
    return build_adamw(groups, base, device)


def build_adamw(groups: list[dict[str, Any]], base: float, device: torch.device) -> torch.optim.AdamW:
    """AdamW of parameter groups, whose learning rates become tensors; `base` is the whole rate."""
    rates = {group["lr"]: torch.full((), group["lr"], device=device) for group in groups}
    groups = [{**group, "lr": rates[group["lr"]], "lr_scale": group["lr"] / base} for group in groups]
    optimizer = torch.optim.AdamW(groups, lr=groups[0]["lr"], fused=True, capturable=device.type == "cuda")
    for p in (p for group in groups for p in group["params"]):
        optimizer.state[p] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
    return optimizer


def encoder_scales(encoder: nn.Module, continued: ContinuedSettings) -> dict[nn.Parameter, float]:
    """What the learning rate of each of the encoder's parameters is multiplied by, where that is not one."""
    if continued.lr_scale == continued.layer_decay == 1:
        return {}
    depths = layer_depths(encoder)
    deepest = max(depths.values(), default=0)
    return {p: continued.lr_scale * continued.layer_decay ** (deepest - depth) for p, depth in depths.items()}


def learning_rates(optimizer: torch.optim.Optimizer) -> list[tuple[Tensor, float]]:
    """The tensors that hold learning rates, and by what each is multiplied; the whole rate comes first."""
    return list({id(group["lr"]): (group["lr"], group["lr_scale"]) for group in optimizer.param_groups}.values())


def set_learning_rate(
    rates: Sequence[tuple[Tensor, float]],
    base: float,
    progress: Tensor,
    warmup: float = 0.0,
    schedule: str = "cosine",
) -> None:
    """Cosine from `base` at progress 0 to zero at progress 1, or "constant", written into the `learning_rates`.

    With a warm-up it is multiplied by progress / warmup until that is one.
    """
    lr = 0.5 * base * (1 + torch.cos(math.pi * progress)) if schedule == "cosine" else torch.full_like(progress, base)
    if warmup:
        lr = lr * (progress / warmup).clamp(max=1)
    for rate, scale in rates:
        rate.copy_(lr if scale == 1 else lr * scale)
