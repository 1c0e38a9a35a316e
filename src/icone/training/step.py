"""One optimizer step: views, method, backward, clipping, AdamW, schedules. It obeys the step contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from icone.config import PretrainConfig
from icone.data import Batch
from icone.encoders import Windows
from icone.methods import Method
from icone.training.meter import Meter
from icone.training.optimizer import build_optimizer, pace, set_learning_rate
from icone.views import Views


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
        self.optimizer = build_optimizer(method, config, device)
        self.lr = pace(config).lr
        self.windows = Windows(method)
        self.meter = Meter(device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.clip = method.max_gradient_norm if config.clip_gradient is None else config.clip_gradient
        self.updating: Callable[[], AbstractContextManager[None]] | None = None
        """Where set, the context of the last backward pass, which then updates the weights too."""

    def __call__(self, batches: Sequence[Batch]) -> None:
        """Step on the mean over the instances of one batch, or of several whose gradients are accumulated."""
        progress = self.count.float() / self.total_steps
        set_learning_rate(self.optimizer, self.lr, progress)
        self.optimizer.zero_grad()
        instances = sum(len(batch.index) for batch in batches)
        for number, batch in enumerate(batches, 1):
            views = self.views(batch.images, self.config.views)
            terms = self.method(views, batch.index, batch.label, progress)
            with self.updating() if self.updating and number == len(batches) else nullcontext():
                (terms["loss"] * (len(batch.index) / instances)).backward()
            self.windows.take()
            self.meter.add(terms, len(batch.index), self.count)
        if self.updating is None:
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.method.parameters(), self.clip)
            self.optimizer.step()
        self.method.after_step(progress)
        self.count += 1

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes, random generators and the place in the data aside."""
        return [
            *self.method.state_dict(keep_vars=True).values(),
            *self.windows.tensors().values(),
            *(tensor for state in self.optimizer.state.values() for tensor in state.values()),
            self.optimizer.param_groups[0]["lr"],
            *self.meter.tensors(),
            self.count,
        ]
