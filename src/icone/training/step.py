"""One optimizer step: views, method, backward, clipping, AdamW, schedules. It obeys the step contract."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from icone.config import PretrainConfig
from icone.data import Batch
from icone.methods import Method
from icone.training.meter import Meter
from icone.training.optimizer import build_optimizer, set_learning_rate
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
        self.meter = Meter(device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.clip = method.max_gradient_norm if config.clip_gradient is None else config.clip_gradient

    def __call__(self, batches: Sequence[Batch]) -> None:
        """Step on the mean over the instances of one batch, or of several whose gradients are accumulated."""
        progress = self.count.float() / self.total_steps
        set_learning_rate(self.optimizer, self.config.lr, progress)
        self.optimizer.zero_grad()
        instances = sum(len(batch.index) for batch in batches)
        for batch in batches:
            views = self.views(batch.images, self.config.views)
            terms = self.method(views, batch.index, batch.label, progress)
            (terms["loss"] * (len(batch.index) / instances)).backward()
            self.meter.add(terms, len(batch.index), self.count)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.method.parameters(), self.clip)
        self.optimizer.step()
        self.method.after_step(progress)
        self.count += 1
