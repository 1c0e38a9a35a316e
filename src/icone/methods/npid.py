"""NPID: a view recognises its instance in a memory bank of all."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import MOST, HeadOut, Range, Share, Temperature
from icone.nn.losses import memory_nce, memory_normaliser, memory_softmax, weighted_sum

Negatives = Annotated[int, Range(0, MOST, f"a whole number from 0 (all instances, exactly) to {MOST:,}")]


class NPID(Method):
    """A view recognises its instance in a memory bank, which holds a moving average of every instance's embedding.

    After a step the rows of its instances become `momentum`·old + (1 − momentum)·new, on the unit sphere; new is the
    mean over views. The softmax is over all N instances; with `negatives` > 0 it is estimated by noise-contrastive
    estimation from as many drawn ones (4096 in the paper), for data sets of millions. Wu, Xiong, Yu and Lin 2018,
    arXiv:1805.01978, without the proximal term, which the authors' own code has not either.
    """

    name: ClassVar[str] = "npid"
    title: ClassVar[str] = "NPID"
    small_options: ClassVar[dict[str, object]] = {"out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=4, gain=1)
    prevents_collapse: ClassVar[str] = "negatives from a memory bank of all instances"
    sums_over_samples = True
    per_instance: ClassVar[tuple[str, ...]] = ("memory",)

    memory: Tensor
    normaliser: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        temperature: Temperature = 0.07,
        momentum: Annotated[Share, "What a row of the memory bank keeps of itself when its sample is seen."] = 0.5,
        negatives: Annotated[
            Negatives,
            "Negatives drawn per view for noise-contrastive estimation; 0: the exact softmax over all samples.",
        ] = 0,
        out: HeadOut = 128,
    ) -> None:
        super().__init__(encoder, setting)
        self.temperature, self.momentum, self.negatives = temperature, momentum, negatives
        self.head = nn.Linear(num_features(encoder), out)
        self.register_buffer("memory", F.normalize(torch.randn(setting.num_instances, out), dim=1))
        self.register_buffer("normaliser", torch.zeros(()))
        self.new: list[tuple[Tensor, Tensor]] = []
        """Instances and their embeddings, for every pass of this step."""

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        z = F.normalize(self.head(self.encode(views)), dim=-1)
        self.new.append((index, z.detach().mean(dim=1)))
        rows, instances = z.flatten(0, 1), index.repeat_interleave(views.shape[1])
        if self.negatives:
            return weighted_sum(instance_entropy=self._estimated(rows, instances))
        return weighted_sum(instance_entropy=memory_softmax(rows, instances, self.memory, self.temperature))

    def _estimated(self, rows: Tensor, instances: Tensor) -> Tensor:
        count = len(self.memory)
        drawn = torch.randint(count, (len(rows), self.negatives), device=rows.device)
        noise = self.memory[drawn]
        # Z is estimated in the first step, and stays.
        first = memory_normaliser(rows, noise, count, self.temperature)
        self.normaliser.copy_(torch.where(self.normaliser == 0, first, self.normaliser))
        return memory_nce(rows, self.memory[instances], noise, self.normaliser.clone(), count, self.temperature)

    def before_step(self) -> None:
        self.new = []

    @torch.no_grad()
    def after_step(self, progress: Tensor) -> None:
        for index, new in self.new:
            moved = torch.lerp(F.normalize(new, dim=1), self.memory[index], self.momentum)
            self.memory.index_copy_(0, index, F.normalize(moved, dim=1))
        self.new = []
