"""Copies of a network that follow it as an exponential moving average (EMA).

The key encoder of MoCo (He et al. 2019, arXiv:1911.05722), the target of BYOL (Grill et al. 2020, arXiv:2006.07733) and
the teacher of DINO (Caron et al. 2021, arXiv:2104.14294) are such copies.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


def ema_copy(network: Network) -> Network:
    """A copy that no gradient reaches. Its BatchNorm statistics are its own, gathered in its own passes."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def ema_update(follower: nn.Module, leader: nn.Module, momentum: float | Tensor) -> None:
    """Move every parameter of `follower` towards the leader's: f ← m·f + (1 − m)·l.

    All parameters move in three operations, however many there are; at batch size 1 the launches of a loop would
    count. `torch._foreach_lerp_` would be one, but reads a momentum that is a tensor back to the host.

    >>> slow, fast = nn.Linear(1, 1), nn.Linear(1, 1)
    >>> _ = nn.init.ones_(slow.weight), nn.init.zeros_(fast.weight)
    >>> ema_update(slow, fast, momentum=0.9)
    >>> slow.weight.item()
    0.8999999761581421
    """
    slow: list[Tensor] = list(follower.parameters())
    fast: list[Tensor] = list(leader.parameters())
    steps = list(torch._foreach_sub(fast, slow))
    torch._foreach_mul_(steps, 1 - momentum)
    torch._foreach_add_(slow, steps)
