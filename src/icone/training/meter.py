"""Sums of the loss terms on the device, read now and then, and the first step that was not finite."""

from __future__ import annotations

import torch
from torch import Tensor


class Meter:
    """Accumulates named terms without host synchronisation, all of them by the same few operations.

    `sums` are weighted by the number of instances, so that a short last batch counts for what it is.
    `first_bad` is the first step with a loss that is not finite (-1: none), `bad_terms` its terms.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.names: tuple[str, ...] = ()
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)
        self.instances = torch.zeros((), dtype=torch.int64, device=device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=device)
        self.bad_terms = torch.zeros(0, device=device)

    def add(self, terms: dict[str, Tensor], instances: int, step: Tensor) -> None:
        if not self.names:
            self._begin(tuple(terms))
        values = torch.stack([terms[name].detach() for name in self.names])
        self.instances += instances
        newly_bad = ~torch.isfinite(terms["loss"].detach()) & (self.first_bad < 0)
        self.first_bad.copy_(torch.where(newly_bad, step, self.first_bad))
        self.bad_terms.copy_(torch.where(newly_bad, values, self.bad_terms))
        self.sums.add_(values, alpha=instances)

    def means(self) -> dict[str, float]:
        """Means since the last reset; waits for the device."""
        means = self.sums / self.instances.clamp(min=1)
        return dict(zip(self.names, means.tolist(), strict=True))

    def bad(self) -> dict[str, float]:
        """The terms of the first bad step; waits for the device."""
        return dict(zip(self.names, self.bad_terms.tolist(), strict=True))

    def reset(self) -> None:
        for total in (self.instances, self.sums):
            total.zero_()

    def state(self) -> dict[str, Tensor]:
        return {**dict(zip(self.names, self.sums.unbind(), strict=True)), "#instances": self.instances}

    def load(self, state: dict[str, Tensor]) -> None:
        self._begin(tuple(name for name in state if name != "#instances"))
        for name, total in self.state().items():
            total.copy_(state[name])

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        return [self.sums, self.instances, self.first_bad, self.bad_terms]

    def _begin(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.sums = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        self.bad_terms = torch.zeros(len(names), device=self.device)
