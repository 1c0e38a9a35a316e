"""IConE-Class: views are pulled to the prototype of their class; prototypes repel one another."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import AnchorWeight, DiversityWeight, InitStd, Normalisation, ViewWeight
from icone.nn import IConELoss
from icone.recipe import PAPER_OPTIONS, VIEW_WEIGHT


class IConEClass(Method):
    """Views are pulled to the prototype of their class; prototypes repel one another.

    It is IConE with a table of C anchors that is addressed by label.

    Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
    Learning", 2026, arXiv:2603.15263.
    """

    name: ClassVar[str] = "icone_class"
    title: ClassVar[str] = "IConE-Class"
    in_paper: ClassVar[bool] = True
    learning: ClassVar[Learning] = Learning(batch_size=1, gain=26)
    sums_over_samples = True
    prevents_collapse: ClassVar[str] = "diversity loss over prototypes, one per class"
    needs_labels: ClassVar[bool] = True
    paper_options: ClassVar[dict[str, object]] = PAPER_OPTIONS["icone_class"]

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        normalisation: Normalisation = "anchor",
        view_weight: ViewWeight = VIEW_WEIGHT,
        anchor_weight: AnchorWeight = 1.0,
        diversity_weight: DiversityWeight = 1.0,
        init_std: InitStd = 0.02,
    ) -> None:
        super().__init__(encoder, setting)
        self.objective = IConELoss(
            setting.num_classes,
            num_features(encoder),
            normalisation=normalisation,
            view_weight=view_weight,
            anchor_weight=anchor_weight,
            diversity_weight=diversity_weight,
            init_std=init_std * setting.initial_scale,
        )

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return self.objective.terms(self.encode(views), label)

    def epoch_metrics(self) -> dict[str, Tensor]:
        return {"prototype_cosine": self.objective.anchors.mean_cosine()}
