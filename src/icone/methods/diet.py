"""DIET: a linear classifier tells which instance a view is of."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import Share
from icone.nn.losses import weighted_sum


class DIET(Method):
    """A linear classifier without bias tells which of the N instances a view is of, with smoothed labels.

    Balestriero 2023, arXiv:2302.10260.
    """

    name: ClassVar[str] = "diet"
    title: ClassVar[str] = "DIET"
    in_paper: ClassVar[bool] = True
    learning: ClassVar[Learning] = Learning(batch_size=4, gain=9)
    sums_over_samples = True
    prevents_collapse: ClassVar[str] = "classifying all instances against one another"
    per_instance: ClassVar[tuple[str, ...]] = ("classifier.weight",)

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        label_smoothing: Annotated[Share, "Share of the target that is spread over all samples."] = 0.8,
    ) -> None:
        super().__init__(encoder, setting)
        self.label_smoothing = label_smoothing
        self.classifier = nn.Linear(num_features(encoder), setting.num_instances, bias=False)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        logits = self.classifier(self.encode(views))
        instances = index[:, None].expand(logits.shape[:2])
        entropy = F.cross_entropy(logits.flatten(0, 1), instances.flatten(), label_smoothing=self.label_smoothing)
        return weighted_sum(instance_entropy=entropy)
