"""AdamW over all parameters of a method, its learning rate as a device tensor, and updates beside the backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

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


@contextmanager
def updating_beside(
    optimizer: torch.optim.AdamW, buckets: Sequence[Sequence[nn.Parameter]], stream: torch.cuda.Stream
) -> Iterator[None]:
    """Within the block a backward pass updates every bucket of parameters as soon as it has all their gradients.

    The updates run on a stream of their own: they move memory while the backward pass waits for small kernels.
    A gradient that never comes leaves its bucket to the end of the block. The same arithmetic as `optimizer.step()`.
    """
    decay = {p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    missing = [set(bucket) for bucket in buckets]
    place = {p: number for number, bucket in enumerate(buckets) for p in bucket}

    def update(number: int) -> None:
        stream.wait_stream(torch.cuda.current_stream())
        ready = [p for p in buckets[number] if p.grad is not None]
        with torch.cuda.stream(stream), torch.no_grad():
            for amount in sorted({decay[p] for p in ready}):
                _update(optimizer, [p for p in ready if decay[p] == amount], amount)

    def arrived(p: Tensor) -> None:
        number = place[cast(nn.Parameter, p)]
        missing[number].discard(cast(nn.Parameter, p))
        if not missing[number]:
            update(number)

    handles = [p.register_post_accumulate_grad_hook(arrived) for p in place]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for number, waiting in enumerate(missing):
        if waiting:
            update(number)
    torch.cuda.current_stream().wait_stream(stream)


def _update(optimizer: torch.optim.AdamW, params: Sequence[nn.Parameter], decay: float) -> None:
    group = optimizer.param_groups[0]
    states = [optimizer.state[p] for p in params]
    adamw(
        list(params),
        [p.grad for p in params if p.grad is not None],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        fused=True,
        capturable=True,
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=group["lr"],
        weight_decay=decay,
        eps=group["eps"],
        maximize=False,
    )
