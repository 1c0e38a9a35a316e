"""Sums of the loss terms on the device, read now and then, and the first step that was not finite."""

from __future__ import annotations

import torch
from torch import Tensor


class Meter:
    """Accumulates named terms without host synchronisation.

    `sums` are weighted by the number of instances, so that a short last batch counts for what it is.
    `first_bad` is the first step with a loss that is not finite (-1: none), `bad_terms` its terms.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sums: dict[str, Tensor] = {}
        self.instances = torch.zeros((), dtype=torch.int64, device=device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=device)
        self.bad_terms: dict[str, Tensor] = {}

    def add(self, terms: dict[str, Tensor], instances: int, step: Tensor) -> None:
        terms = {name: term.detach() for name, term in terms.items()}
        if not self.sums:
            self._begin(terms)
        self.instances += instances
        newly_bad = ~torch.isfinite(terms["loss"]) & (self.first_bad < 0)
        self.first_bad.copy_(torch.where(newly_bad, step, self.first_bad))
        for name, term in terms.items():
            self.sums[name].add_(term.double(), alpha=instances)
            self.bad_terms[name].copy_(torch.where(newly_bad, term, self.bad_terms[name]))

    def means(self) -> dict[str, float]:
        """Means since the last reset; waits for the device."""
        if not self.sums:
            return {}
        means = torch.stack(list(self.sums.values())) / self.instances.clamp(min=1)
        return dict(zip(self.sums, means.tolist(), strict=True))

    def reset(self) -> None:
        for total in (self.instances, *self.sums.values()):
            total.zero_()

    def state(self) -> dict[str, Tensor]:
        return {**self.sums, "#instances": self.instances}

    def load(self, state: dict[str, Tensor]) -> None:
        self._begin({name: total for name, total in state.items() if name != "#instances"})
        for name, total in self.state().items():
            total.copy_(state[name])

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        return [*self.state().values(), self.first_bad, *self.bad_terms.values()]

    def _begin(self, names: dict[str, Tensor]) -> None:
        self.sums = {name: torch.zeros((), dtype=torch.float64, device=self.device) for name in names}
        self.bad_terms = {name: torch.zeros((), device=self.device) for name in names}
