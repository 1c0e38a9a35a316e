"""Cross-entropy: a linear classifier tells the class of a view."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.nn.losses import weighted_sum


class CrossEntropy(Method):
    """A linear classifier on the features tells the class of every view."""

    name: ClassVar[str] = "cross_entropy"
    title: ClassVar[str] = "Cross-Entropy"
    in_paper: ClassVar[bool] = True
    learning: ClassVar[Learning] = Learning(batch_size=1, gain=37)
    sums_over_samples = True
    prevents_collapse: ClassVar[str] = "labels"
    needs_labels: ClassVar[bool] = True

    def __init__(self, encoder: nn.Module, setting: Setting) -> None:
        super().__init__(encoder, setting)
        self.classifier = nn.Linear(num_features(encoder), setting.num_classes)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        logits = self.classifier(self.encode(views))
        classes = label[:, None].expand(logits.shape[:2])
        return weighted_sum(cross_entropy=F.cross_entropy(logits.flatten(0, 1), classes.flatten()))
