"""SogCLR: every view remembers its denominator from earlier batches."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import HeadHidden, HeadNorm, HeadOut, Share, Temperature
from icone.nn.heads import ProjectionHead
from icone.nn.losses import dynamic_contrast, weighted_sum


class SogCLR(Method):
    """Contrast with a denominator that every view of every instance remembers as a moving average over batches.

    Yuan, Wu, Qiu, Du, Zhang, Zhou and Yang 2022, arXiv:2202.12387. `gamma` is the share of the new batch.
    """

    name: ClassVar[str] = "sogclr"
    title: ClassVar[str] = "SogCLR"
    small_options: ClassVar[dict[str, object]] = {"hidden": 32, "out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=10, options={"hidden": 512, "temperature": 0.5})
    prevents_collapse: ClassVar[str] = "negatives from the batch, weighted by a remembered denominator"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "SogCLR remembers how much negatives weigh, but they come from the batch: at batch size 1 there are none"
    )
    per_instance: ClassVar[tuple[str, ...]] = ("denominators",)

    denominators: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        temperature: Temperature = 0.1,
        gamma: Annotated[Share, "Share of the new batch in the moving average of the denominators."] = 0.9,
        hidden: HeadHidden = 2048,
        out: HeadOut = 128,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting)
        self.temperature, self.gamma = temperature, gamma
        self.head = ProjectionHead([num_features(encoder), hidden, out], head_norm)
        self.register_buffer("denominators", torch.zeros(setting.num_instances, setting.num_views))
        self.moved: list[tuple[Tensor, Tensor]] = []
        """Instances and their new denominators, for every pass of this step."""

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        z = self.head(self.encode(views))
        loss, moved = dynamic_contrast(z, self.denominators[index], self.gamma, self.temperature)
        self.moved.append((index, moved))
        return weighted_sum(contrast=loss)

    def before_step(self) -> None:
        self.moved = []

    @torch.no_grad()
    def after_step(self, progress: Tensor) -> None:
        for index, moved in self.moved:
            self.denominators.index_copy_(0, index, moved)
        self.moved = []
