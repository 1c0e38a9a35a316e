"""DCL: SimCLR without the positive in the denominator."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import HeadHidden, HeadNorm, HeadOut, Temperature
from icone.nn.heads import ProjectionHead
from icone.nn.losses import decoupled_contrast, weighted_sum


class DCL(Method):
    """SimCLR whose denominator holds negatives only, so that easy positives do not shrink the gradient.

    Decoupled contrastive learning: Yeh, Hong, Hsu, Liu, Chen and LeCun 2021, arXiv:2110.06848.
    """

    name: ClassVar[str] = "dcl"
    title: ClassVar[str] = "DCL"
    small_options: ClassVar[dict[str, object]] = {"hidden": 32, "out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=10, options={"hidden": 512, "temperature": 0.5})
    prevents_collapse: ClassVar[str] = "negatives from the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = "DCL's negatives come from the batch: at batch size 1 its denominator is empty"

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        temperature: Temperature = 0.1,
        hidden: HeadHidden = 2048,
        out: HeadOut = 128,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting)
        self.temperature = temperature
        self.head = ProjectionHead([num_features(encoder), hidden, out], head_norm)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return weighted_sum(contrast=decoupled_contrast(self.head(self.encode(views)), self.temperature))
