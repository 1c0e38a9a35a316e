"""Weights that are updated while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from icone.encoders import regions
from icone.methods import Method
from icone.training.adamw import Updates
from icone.training.weight_gradients import WeightGradients


class UpdatesBeside:
    """Updates every bucket of parameters as soon as it has all their gradients, on a stream of its own.

    An update moves memory, and a backward pass at batch 1 waits for small kernels: side by side they cost little more
    than one of them. The arithmetic is that of `optimizer.step()`.

    A run that is `alone` computes its weight gradients beside the backward pass as well. Several fill the chip without,
    and would be in each other's way.
    """

    def __init__(self, optimizer: torch.optim.AdamW, method: Method, device: torch.device, *, alone: bool) -> None:
        self.stream = torch.cuda.Stream(device)
        self.gradients = WeightGradients(device) if alone else None
        self.buckets = buckets(method)
        self.updates = [
            [
                Updates(optimizer, chosen, group)
                for group in optimizer.param_groups
                if (chosen := [p for p in bucket if any(p is other for other in group["params"])])
            ]
            for bucket in self.buckets
        ]

    @contextmanager
    def during_backward(self) -> Iterator[None]:
        """Around a backward pass, the only one of a step or the last; a gradient that never comes is left out."""
        missing = [set(bucket) for bucket in self.buckets]
        place = {p: number for number, bucket in enumerate(self.buckets) for p in bucket}

        def arrived(p: Tensor) -> None:
            number = place[cast(nn.Parameter, p)]
            missing[number].discard(cast(nn.Parameter, p))
            if not missing[number]:
                self._update(number)

        handles = [p.register_post_accumulate_grad_hook(arrived) for p in place]
        try:
            with self.gradients.during_backward() if self.gradients else nullcontext():
                yield
        finally:
            for handle in handles:
                handle.remove()
        if self.gradients:
            self.gradients.check(list(place))
        for number, waiting in enumerate(missing):
            if waiting:
                self._update(number)
        torch.cuda.current_stream().wait_stream(self.stream)

    def settle(self) -> None:
        """After a capture: give the captured updates their addresses."""
        for update in (update for group in self.updates for update in group):
            update.settle()

    @torch.no_grad()
    def _update(self, number: int) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        if self.gradients:
            self.stream.wait_stream(self.gradients.stream)
        with torch.cuda.stream(self.stream):
            for update in self.updates[number]:
                update.launch()


def buckets(method: Method) -> list[list[nn.Parameter]]:
    """The trained parameters in groups whose gradients arrive together: the encoder's regions, then by part."""
    places: dict[nn.Parameter, str] = {}
    for number, region in enumerate(regions(method.encoder)):
        if region.method == "forward" and region.module is not method.encoder:
            places |= dict.fromkeys(region.module.parameters(), f"region {number}")
    grouped: dict[str, list[nn.Parameter]] = {}
    for name, p in method.named_parameters():
        if p.requires_grad:
            grouped.setdefault(places.get(p, name.split(".")[0]), []).append(p)
    return list(grouped.values())
