"""One optimizer step: views, method, backward, clipping, AdamW, schedules. It obeys the step contract."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from icone.config import PretrainConfig
from icone.data import Batch
from icone.methods import Method
from icone.nn import MovingStatistics
from icone.recipe import adamw_settings, continued_settings
from icone.training.optimizer import build_optimizer, learning_rates, set_learning_rate
from icone.views import Views


class StepHooks:
    """What is done around the phases of a step: nothing. `icone.cuda` moves work to side streams here."""

    updates_weights = False
    """Whether the last backward pass updates the weights too."""

    def begin(self) -> None:
        """Called at the start of a step."""

    def side_stream(self) -> AbstractContextManager[None]:
        """Around work that only the update and the next step wait for."""
        return nullcontext()

    def forward(self) -> AbstractContextManager[None]:
        """Around a forward pass."""
        return nullcontext()

    def last_backward(self) -> AbstractContextManager[None]:
        """Around the last backward pass of a step. All work on side streams is done after it."""
        return nullcontext()


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


class TrainStep:
    """Everything between a batch and the updated weights.

    `count` is the number of finished optimizer steps, on the device; progress = count / total_steps.
    """

    def __init__(
        self, method: Method, views: Views, config: PretrainConfig, total_steps: int, device: torch.device
    ) -> None:
        self.method = method
        self.views = views
        self.config = config
        self.total_steps = total_steps
        continued = continued_settings(config.weights is not None, config.layer_decay, config.warmup, config.recipe)
        self.warmup = continued.warmup
        self.optimizer = build_optimizer(method, config, device, continued)
        self.lr = adamw_settings(config.lr, config.batch_size * config.accumulate, config.recipe).lr
        self.batch_norms = MovingStatistics(method)
        self.meter = Meter(device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.clip = method.max_gradient_norm if config.clip_gradient is None else config.clip_gradient
        self.hooks = StepHooks()

    def __call__(self, batches: Sequence[Batch]) -> None:
        """Step on the mean over the instances of one batch, or of several whose gradients are accumulated."""
        self.hooks.begin()
        progress = self.count.float() / self.total_steps
        with self.hooks.side_stream():
            set_learning_rate(self.optimizer, self.lr, progress, self.warmup)
        self.optimizer.zero_grad()
        self.method.before_step()
        self.batch_norms.begin()
        instances = sum(len(batch.index) for batch in batches)
        outputs = []  # referenced until the end, because a side stream reads them
        for number, batch in enumerate(batches, 1):
            views = self.views(batch.images, self.config.views)
            with self.hooks.forward():
                terms = self.method(views, batch.index, batch.label, progress)
            outputs.append(terms)
            with self.hooks.side_stream():
                self.meter.add(terms, len(batch.index), self.count)
            with self.hooks.last_backward() if number == len(batches) else nullcontext():
                share = len(batch.index) / instances
                (terms["loss"] if share == 1 else terms["loss"] * share).backward()
            self.batch_norms.update()
        if not self.hooks.updates_weights:
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.method.parameters(), self.clip)
            self.optimizer.step()
        self.method.after_step(progress)
        self.count += 1

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes, but for random states and the position in the data."""
        return [
            *self.method.state_dict(keep_vars=True).values(),
            *(tensor for state in self.optimizer.state.values() for tensor in state.values()),
            *(rate for rate, _ in learning_rates(self.optimizer)),
            *self.meter.tensors(),
            self.count,
        ]
