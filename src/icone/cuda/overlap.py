"""A step whose work goes on side by side where nothing has to wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from icone.cuda.adamw import Updates
from icone.cuda.deferred_gradients import ConvertedWeights, WeightGradients
from icone.encoders import regions
from icone.methods import Method
from icone.training.step import InOrder


class OverlappedStep(InOrder):
    """Casts weights and updates the meter on a side stream, and there updates every bucket of parameters as
    soon as it has all their gradients.

    All this moves memory, and a step at batch 1 waits for small kernels: side by side they cost little more than one
    of them. The arithmetic of an update is that of `optimizer.step()`.

    A run that is `alone` computes its weight gradients beside the backward pass as well. Several fill the chip without,
    and would be in each other's way.
    """

    updates = True

    def __init__(self, optimizer: torch.optim.AdamW, method: Method, device: torch.device, *, alone: bool) -> None:
        self.stream = torch.cuda.Stream(device)
        self.gradients = WeightGradients(device) if alone else None
        self.weights = ConvertedWeights(method.encoders(), method.autocast_dtype)
        self.buckets = buckets(method)
        self.bucket_updates = [
            [
                Updates(optimizer, chosen, group)
                for group in optimizer.param_groups
                if (chosen := [p for p in bucket if any(p is other for other in group["params"])])
            ]
            for bucket in self.buckets
        ]

    def begin(self) -> None:
        with self.side_stream():
            self.weights.convert()

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    @contextmanager
    def forward(self) -> Iterator[None]:
        torch.cuda.current_stream().wait_stream(self.stream)
        with self.weights.used():
            yield

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """A gradient that never comes is left out."""
        missing = [set(bucket) for bucket in self.buckets]
        bucket_of = {p: number for number, bucket in enumerate(self.buckets) for p in bucket}

        def arrived(p: Tensor) -> None:
            number = bucket_of[cast(nn.Parameter, p)]
            missing[number].discard(cast(nn.Parameter, p))
            if not missing[number]:
                self._update(number)

        handles = [p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]
        try:
            with self.gradients.during_backward() if self.gradients else nullcontext():
                yield
        finally:
            for handle in handles:
                handle.remove()
        if self.gradients:
            self.gradients.check(list(bucket_of))
        for number, waiting in enumerate(missing):
            if waiting:
                self._update(number)
        torch.cuda.current_stream().wait_stream(self.stream)

    def settle(self) -> None:
        """After a capture: give the captured updates their addresses."""
        for update in (update for bucket in self.bucket_updates for update in bucket):
            update.settle()

    @torch.no_grad()
    def _update(self, number: int) -> None:
        if self.gradients:
            self.stream.wait_stream(self.gradients.stream)
        with self.side_stream():
            for update in self.bucket_updates[number]:
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
