"""SimCLR: the views of an instance recognise one another among the rest of the batch."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import HeadHidden, HeadNorm, HeadOut, Temperature
from icone.nn.heads import ProjectionHead
from icone.nn.losses import nt_xent, weighted_sum


class SimCLR(Method):
    """The views of an instance recognise one another among the rest of the batch.

    Chen, Kornblith, Norouzi and Hinton 2020, arXiv:2002.05709.
    """

    name: ClassVar[str] = "simclr"
    title: ClassVar[str] = "SimCLR"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"hidden": 32, "out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=23, options={"hidden": 512})
    prevents_collapse: ClassVar[str] = "negatives from the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "SimCLR's negatives come from the batch: at batch size 1 its loss and gradient are exactly zero"
    )

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        temperature: Temperature = 0.5,
        hidden: HeadHidden = 2048,
        out: HeadOut = 128,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting)
        self.temperature = temperature
        self.head = ProjectionHead([num_features(encoder), hidden, out], head_norm)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return weighted_sum(contrast=nt_xent(self.head(self.encode(views)), self.temperature))
