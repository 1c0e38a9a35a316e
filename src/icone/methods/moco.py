"""MoCo v2: a view recognises another view of its instance among a queue of earlier keys."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import num_features
from icone.errors import InputError
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import Count, HeadOut, Momentum, Temperature
from icone.nn.ema import ema_copy, ema_update
from icone.nn.heads import ProjectionHead
from icone.nn.losses import info_nce, weighted_sum


class MoCo(Method):
    """A view recognises another view of its instance among a queue of earlier keys.

    The first view asks; the others, through an EMA copy of the network, are its keys. A queue longer
    than the dataset (4096 by default) holds stale keys of the query's own instance among its negatives.

    Chen, Fan, Girshick and He 2020, arXiv:2003.04297 (v2); He, Fan, Wu, Xie and Girshick 2019, arXiv:1911.05722.
    """

    name: ClassVar[str] = "moco"
    title: ClassVar[str] = "MoCo v2"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"queue_size": 32, "out": 16}
    # A queue longer than the dataset would hold stale keys of the query's own instance; and it starts with random
    # vectors, which teach nothing until they are replaced.
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=11, options={"queue_size": 64, "temperature": 0.1})
    sums_over_samples = True
    prevents_collapse: ClassVar[str] = "negatives from a queue"

    queue: Tensor
    pointer: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        temperature: Temperature = 0.2,
        momentum: Momentum = 0.99,
        queue_size: Annotated[
            Count, "Keys of earlier batches that are kept as negatives; best below the number of samples."
        ] = 4096,
        out: HeadOut = 128,
    ) -> None:
        super().__init__(encoder, setting)
        if queue_size < 1:
            raise InputError(f"queue_size must be at least 1 key, got {queue_size}")
        self.temperature = temperature
        self.momentum = momentum
        dim = num_features(encoder)
        self.head = ProjectionHead([dim, dim, out], "none")
        self.key_encoder, self.key_head = ema_copy(encoder), ema_copy(self.head)
        self.register_buffer("queue", F.normalize(torch.randn(queue_size, out), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self.new_keys: list[Tensor] = []
        """Of this step: they enter the queue after it, so that accumulated batches see the queue of one large batch."""

    def encoders(self) -> list[nn.Module]:
        return [self.encoder, self.key_encoder]

    @classmethod
    def encoder_rows(cls, batch_size: int, num_views: int) -> int:
        return batch_size  # queries and keys pass on their own

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        keys = self._keys(views[:, 1:])
        queries = self.head(self.run_encoder(self.encoder, views[:, :1])).expand_as(keys)
        self.new_keys.append(keys.flatten(0, 1))
        return weighted_sum(contrast=info_nce(queries.flatten(0, 1), self.new_keys[-1], self.queue, self.temperature))

    def before_step(self) -> None:
        self.new_keys = []

    def after_step(self, progress: Tensor) -> None:
        self._enqueue(torch.cat(self.new_keys))
        self.new_keys = []
        ema_update(self.key_encoder, self.encoder, self.momentum)
        ema_update(self.key_head, self.head, self.momentum)

    @torch.no_grad()
    def _keys(self, views: Tensor) -> Tensor:
        return F.normalize(self.key_head(self.run_encoder(self.key_encoder, views)), dim=-1)

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        """Overwrite the oldest keys, around the end of the queue; of more keys than fit, the last remain."""
        size = len(self.queue)
        positions = (self.pointer + torch.arange(len(keys), device=keys.device)) % size
        self.queue.index_copy_(0, positions[-size:], keys[-size:])
        self.pointer.copy_((self.pointer + len(keys)) % size)
