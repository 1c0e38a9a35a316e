"""One optimizer step: views, method, backward, clipping, AdamW, schedules. It obeys the step contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from icone.config import PretrainConfig
from icone.data import Batch
from icone.encoders import checkpoint_activations
from icone.methods import Method
from icone.nn import AnchorTable, MovingStatistics
from icone.nn.recomputation import micro_batches
from icone.recipe import adamw_settings, continued_settings
from icone.training.optimizer import build_optimizer, learning_rates, set_learning_rate
from icone.views import Views
from icone.views.base import Part


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

    def load(self, state: dict[str, Tensor], order: Sequence[str] = ()) -> None:
        """Go on from a state; a file does not keep the `order` of the method's terms."""
        names = [name for name in state if name != "#instances"]
        self._begin(tuple(sorted(names, key=order.index) if set(names) == set(order) else names))
        for name, total in self.state().items():
            total.copy_(state[name])

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes."""
        return [self.sums, self.instances, self.first_bad, self.bad_terms]

    def _begin(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.sums = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        self.bad_terms = torch.zeros(len(names), device=self.device)


@torch.no_grad()
def clip_gradients(method: Method, longest: float) -> None:
    """Shorten the gradient of all parameters to this norm; of a table that ranks share, the rows of all count."""
    shares = [m for m in method.modules() if isinstance(m, AnchorTable) and m.share is not None]
    if method.ranks is None or not shares:
        torch.nn.utils.clip_grad_norm_(method.parameters(), longest)
        return
    gradients = {p: p.grad for p in method.parameters() if p.grad is not None}
    split = [gradients[table.weight] for table in shares if table.weight in gradients]
    others = [g for p, g in gradients.items() if all(p is not table.weight for table in shares)]
    squares = torch.stack([g.square().sum() for g in others]).sum()
    if split:
        squares = squares + method.ranks.sum(torch.stack([g.square().sum() for g in split]).sum())
    factor = (longest / (squares.sqrt() + 1e-6)).clamp(max=1)  # as PyTorch's clip_grad_norm_ does
    torch._foreach_mul_([*others, *split], factor)


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
        self.warmup = continued.warmup if continued.warmup * total_steps >= 1 else 0.0
        """Of less than one step nothing is left but a first step of length zero."""
        self.optimizer = build_optimizer(method, config, device, continued)
        self.rates = learning_rates(self.optimizer)
        self.lr = adamw_settings(config.lr, config.batch_size * config.accumulate, config.recipe).lr
        self.batch_norms = MovingStatistics(method)
        self.meter = Meter(device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.clip = method.max_gradient_norm if config.clip_gradient is None else config.clip_gradient
        self.last_backward: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around the last backward pass of a step. `icone.cuda` computes weight gradients on a side stream in it."""
        self.ranks = method.ranks
        self.is_checkpointed = False
        """Whether the backward pass computes activations of the encoder again."""

    @property
    def total_passes(self) -> int:
        """Passes of the encoder forward and back in all steps: a batch has one, or one for each micro-batch."""
        return self.total_steps * self.config.passes_per_step

    def checkpoint_activations(self) -> str | None:
        """Compute activations of the encoder again from now on; a note where that saves little memory."""
        self.is_checkpointed = True
        return checkpoint_activations(self.method.encoder)

    def __call__(self, batches: Sequence[Batch]) -> None:
        """Step on the mean over the instances of one batch, or of several whose gradients are accumulated."""
        progress = self.schedule()
        self.optimizer.zero_grad()
        self.method.before_step()
        self.batch_norms.begin()
        instances = sum(len(batch.index) for batch in batches)
        for views, index, label, is_last in self._passes(batches):
            terms = self.method(views, index, label, progress)
            self.meter.add(terms, len(index), self.count)
            with self.last_backward() if is_last else nullcontext():
                share = len(index) / instances
                (terms["loss"] if share == 1 else terms["loss"] * share).backward()
            self.batch_norms.update()
        if self.ranks is not None:
            self.ranks.sum_gradients(self.method.own_parameters())
        if self.clip is not None:
            clip_gradients(self.method, self.clip)
        self.optimizer.step()
        self.method.after_step(progress)
        self.count += 1

    def schedule(self) -> Tensor:
        """Set the learning rates of this step; returns progress."""
        progress = self.count.float() / self.total_steps
        set_learning_rate(self.rates, self.lr, progress, self.warmup, self.config.schedule)
        return progress

    def _passes(self, batches: Sequence[Batch]) -> Iterator[tuple[Tensor, Tensor, Tensor, bool]]:
        """Views, indices and labels of what has a backward pass of its own, and whether it is the last of the step.

        That is a batch, or one of its micro-batches if the loss is a sum over samples. Where ranks share a batch, views
        are those of this rank and the batch stays whole; only the encoder runs in micro-batches.
        """
        size = self.config.micro_batch
        for number, batch in enumerate(batches, 1):
            if self.ranks is not None:
                with self._sharing(len(batch.index)) as part:  # in the backward pass too, which may encode again
                    views = self.views(batch.images, self.config.views, part)
                    yield views, batch.index, batch.label, number == len(batches)
                continue
            views = self.views.in_parts(batch.images, self.config.views, size)
            at_once = len(batch.index) if size is None or not self.method.sums_over_samples else size
            each = list(zip(*(micro_batches(x, at_once) for x in (views, batch.index, batch.label)), strict=True))
            for position, (some_views, index, label) in enumerate(each, 1):
                yield some_views, index, label, number == len(batches) and position == len(each)

    @contextmanager
    def _sharing(self, samples: int) -> Iterator[Part]:
        """Around all that is done with a batch that ranks share; gives the samples of this rank."""
        assert self.ranks is not None
        with self.ranks.sharing(samples) as share:
            yield share.part

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes, but for random states and the position in the data."""
        return [
            *self.method.state_dict(keep_vars=True).values(),
            *(tensor for state in self.optimizer.state.values() for tensor in state.values()),
            *(rate for rate, _ in self.rates),
            *self.meter.tensors(),
            self.count,
        ]
