"""A step that overlaps its chain of small kernels with work on side streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from icone.cuda.deferred_gradients import CastWeights, WeightGradientStream
from icone.cuda.switches import CudaOptions
from icone.encoders import regions
from icone.methods import Method
from icone.training.step import StepHooks, encoder_parameters


class OverlapHooks(StepHooks):
    """Casts weights, updates the meter and updates every bucket of parameters on a side stream.

    A bucket is updated as soon as it has all its gradients. All this moves memory, while a step at batch 1 waits for
    small kernels: overlapped, both cost little more than one of them. An update computes what `optimizer.step()` does.

    A run that is `alone` on the GPU defers its weight gradients as well. Several runs fill the GPU without that, and
    would be in each other's way. `options` switches each of these off.
    """

    def __init__(
        self,
        optimizer: torch.optim.AdamW,
        method: Method,
        device: torch.device,
        options: CudaOptions,
        *,
        alone: bool,
    ) -> None:
        self.options = options
        self.stream = torch.cuda.Stream(device)
        self.weight_gradients = WeightGradientStream(device) if alone and options.deferred_gradients else None
        self.weights = CastWeights(method.encoders(), method.autocast_dtype if options.cast_weights else None)
        self.buckets = buckets(method)
        self.trained = [p for bucket in self.buckets for p in bucket]
        if not options.bucketed_updates:  # one update at the end, by our kernel, or by the optimizer itself
            self.buckets = [self.trained] if options.adamw_kernel else []
        self.updates_weights = bool(self.buckets)
        self.ranks = method.ranks
        self.summed = set(encoder_parameters(method)) if self.ranks else set()
        """Parameters whose gradients are summed over all ranks before their update."""
        self.bucket_updates = [
            bucket_updates(optimizer, bucket, kernel=options.adamw_kernel) for bucket in self.buckets
        ]

    def begin(self) -> None:
        with self._on_side_stream():
            self.weights.update()

    def side_stream(self) -> AbstractContextManager[None]:
        return self._on_side_stream() if self.options.metrics_stream else nullcontext()

    @contextmanager
    def forward(self) -> Iterator[None]:
        torch.cuda.current_stream().wait_stream(self.stream)
        with self.weights.in_use():
            yield

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """A parameter that gets no gradient is not updated."""
        missing = [set(bucket) for bucket in self.buckets]
        bucket_of = {p: number for number, bucket in enumerate(self.buckets) for p in bucket}

        def has_gradient(p: Tensor) -> None:
            number = bucket_of[cast(nn.Parameter, p)]
            missing[number].discard(cast(nn.Parameter, p))
            if not missing[number]:
                self._update(number)

        handles = [p.register_post_accumulate_grad_hook(has_gradient) for p in bucket_of]
        try:
            with self.weight_gradients.during_backward() if self.weight_gradients else nullcontext():
                yield
        finally:
            for handle in handles:
                handle.remove()
        if self.weight_gradients:
            self.weight_gradients.check(self.trained)
        for number, waiting in enumerate(missing):
            if waiting:
                self._update(number)
        torch.cuda.current_stream().wait_stream(self.stream)

    def after_capture(self) -> None:
        """Give the captured updates their addresses."""
        for update in (update for updates in self.bucket_updates for update in updates):
            update.after_capture()

    @contextmanager
    def _on_side_stream(self) -> Iterator[None]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    @torch.no_grad()
    def _update(self, number: int) -> None:
        if self.weight_gradients:
            self.stream.wait_stream(self.weight_gradients.stream)
        with self._on_side_stream():
            if self.ranks is not None:
                self.ranks.sum_gradients([p for p in self.buckets[number] if p in self.summed])
            for update in self.bucket_updates[number]:
                update.launch()


class FusedUpdate:
    """The update of a bucket of parameters by PyTorch's fused AdamW, with the state of another optimizer."""

    def __init__(self, optimizer: torch.optim.AdamW, params: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        self.optimizer = torch.optim.AdamW([{**group, "params": params}], lr=group["lr"])
        for p in params:
            self.optimizer.state[p] = optimizer.state[p]

    def launch(self) -> None:
        self.optimizer.step()

    def after_capture(self) -> None:
        """There is nothing to do."""


def bucket_updates(optimizer: torch.optim.AdamW, bucket: Sequence[nn.Parameter], *, kernel: bool) -> Sequence[Any]:
    """The updates of a bucket, one for each of the optimizer's groups that its parameters are in."""
    kind: Any = FusedUpdate
    if kernel:
        from icone.cuda.adamw import KernelUpdate  # Triton is there only where CUDA is

        kind = KernelUpdate
    return [
        kind(optimizer, params, group)
        for group in optimizer.param_groups
        if (params := [p for p in bucket if any(p is other for other in group["params"])])
    ]


def buckets(method: Method) -> list[list[nn.Parameter]]:
    """The trained parameters in buckets that get their gradients together: the encoder's regions, then the modules."""
    region_of: dict[nn.Parameter, str] = {}
    for number, region in enumerate(regions(method.encoder)):
        if region.method == "forward" and region.module is not method.encoder:
            region_of |= dict.fromkeys(region.module.parameters(), f"region {number}")
    grouped: dict[str, list[nn.Parameter]] = {}
    for name, p in method.named_parameters():
        if p.requires_grad:
            grouped.setdefault(region_of.get(p, name.split(".")[0]), []).append(p)
    return list(grouped.values())
