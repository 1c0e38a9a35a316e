"""IConE-Instance: views are pulled to the anchors of their class; anchors of different classes repel."""

from __future__ import annotations

from typing import Annotated, ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.errors import InputError
from icone.methods.base import Learning, Setting
from icone.methods.icone import Anchored
from icone.methods.ranges import AnchorWeight, DiversityWeight, InitStd, Normalisation, Share, StartAt, ViewWeight
from icone.nn.anchors import AnchorTable, diversity_function
from icone.nn.losses import anchor_alignment, class_alignment, view_consistency, weighted_sum
from icone.nn.ranks import Ranks
from icone.recipe import CLASS_SHARE, PAPER_OPTIONS, VIEW_WEIGHT


class IConEInstance(Anchored):
    """Views are pulled to the anchors of their class; anchors of different classes repel.

    A view is pulled to its own anchor with weight 1 − `class_share`, and with `class_share` to all anchors of
    its class alike, its own among them. As printed ("pulls views toward same-class anchors") `class_share` is 1.

    Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
    Learning", 2026, arXiv:2603.15263.
    """

    name: ClassVar[str] = "icone_instance"
    title: ClassVar[str] = "IConE-Instance"
    in_paper: ClassVar[bool] = True
    learning: ClassVar[Learning] = Learning(batch_size=1, gain=31)
    prevents_collapse: ClassVar[str] = "diversity loss over anchors of different classes"
    needs_labels: ClassVar[bool] = True
    keeps_classes: ClassVar[bool] = False
    per_instance: ClassVar[tuple[str, ...]] = ("anchors.weight",)
    paper_options: ClassVar[dict[str, object]] = PAPER_OPTIONS["icone_instance"]

    labels: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        class_share: Annotated[
            Share, "Share of the pull that goes to all anchors of the class; the rest goes to the own anchor."
        ] = CLASS_SHARE,
        normalisation: Normalisation = "anchor",
        view_weight: ViewWeight = VIEW_WEIGHT,
        anchor_weight: AnchorWeight = 1.0,
        diversity_weight: DiversityWeight = 1.0,
        init_std: InitStd = 0.02,
        start_at: StartAt = "features",
    ) -> None:
        super().__init__(encoder, setting, start_at)
        if not 0 <= class_share <= 1:
            raise InputError(f"class_share must lie between 0 and 1, got {class_share}")
        self.class_share = class_share
        self.weights = {
            "view_consistency": view_weight,
            "own_alignment": anchor_weight * (1 - class_share),
            "class_alignment": anchor_weight * class_share,
            "diversity": diversity_weight,
        }
        self.diversity = diversity_function("orthogonality", normalisation)
        self.anchors = AnchorTable(setting.num_instances, num_features(encoder), init_std * setting.initial_scale)
        # Known again from the data when a run is resumed, or extended.
        self.register_buffer("labels", setting.labels, persistent=False)

    @property
    def table(self) -> AnchorTable:
        return self.anchors

    def share(self, ranks: Ranks) -> None:
        super().share(ranks)
        self.anchors.split(ranks)
        self.diversity = self.anchors.of_whole(self.diversity)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        z = self.encode(views)
        return weighted_sum(
            self.weights,
            view_consistency=view_consistency(z),
            own_alignment=anchor_alignment(z, self.anchors(index)),
            class_alignment=class_alignment(z, self.anchors.whole(), label, self.labels),
            diversity=self.diversity(self.anchors.weight, labels=self.labels),
        )
