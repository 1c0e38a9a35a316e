"""SupCon: views recognise the views of their class among the rest of the batch."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import HeadOut, Temperature
from icone.nn.heads import ProjectionHead
from icone.nn.losses import sup_con, weighted_sum


class SupCon(Method):
    """Views recognise the views of their class among the rest of the batch.

    Khosla et al. 2020, arXiv:2004.11362.
    """

    name: ClassVar[str] = "supcon"
    title: ClassVar[str] = "SupCon"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=22)
    prevents_collapse: ClassVar[str] = "other classes in the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "SupCon contrasts classes within the batch: at batch size 1 its loss and gradient are exactly zero"
    )
    needs_labels: ClassVar[bool] = True
    keeps_classes: ClassVar[bool] = False

    def __init__(
        self, encoder: nn.Module, setting: Setting, *, temperature: Temperature = 0.1, out: HeadOut = 128
    ) -> None:
        super().__init__(encoder, setting)
        self.temperature = temperature
        dim = num_features(encoder)
        self.head = ProjectionHead([dim, dim, out], "none")

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return weighted_sum(contrast=sup_con(self.head(self.encode(views)), label, self.temperature))
