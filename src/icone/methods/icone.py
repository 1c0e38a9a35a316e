"""IConE: views are pulled to their instance's anchor; anchors repel one another over the whole dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar

from torch import Tensor, nn

from icone.encoders import Region, num_features
from icone.errors import unknown_name
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import (
    AnchorWeight,
    DiversityWeight,
    HeadHidden,
    InitStd,
    Names,
    Normalisation,
    StartAt,
    ViewWeight,
    Weight,
    Width,
)
from icone.nn import AnchorTable, CenterLoss, IConELoss, convert_batch_norm
from icone.nn.batchnorm import REFERENCE_SAMPLES
from icone.nn.diversity import DIVERSITY, SideStream, affordable_orthogonality
from icone.nn.heads import ProjectionHead
from icone.nn.ranks import Ranks
from icone.recipe import (
    ANCHOR_STD,
    HEAD_HIDDEN,
    HEAD_OUT,
    HEAD_SAMPLES,
    PAPER_OPTIONS,
    VIEW_WEIGHT,
    anchor_epsilon_floor,
)


class Anchored(Method):
    """A method with one anchor per instance, which start at random or where the encoder puts their instances."""

    def __init__(self, encoder: nn.Module, setting: Setting, start_at: str) -> None:
        super().__init__(encoder, setting)
        if start_at not in ("features", "random"):
            raise unknown_name("start_at", start_at, ("features", "random"))
        self.start_at = start_at

    @property
    @abstractmethod
    def table(self) -> AnchorTable:
        """The anchors."""

    @property
    def starts_from_features(self) -> bool:
        return self.start_at == "features"

    def start(self, features: Tensor, rows: Tensor) -> None:
        self.table.start_from(features, rows)


class IConE(Anchored):
    """Views are pulled to their instance's anchor; anchors repel one another over the whole dataset.

    Both happen in the space of a projection head, as in SimCLR; with `out` = 0 in that of the features, as printed.
    `diversity` is the name of a term of `icone.nn.diversity`; "auto" is "orthogonality", or "sampled_orthogonality"
    where a step on this device cannot afford all pairs. `center_weight` adds `icone.nn.CenterLoss` of the features.

    Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
    Learning", 2026, arXiv:2603.15263.
    """

    name: ClassVar[str] = "icone"
    title: ClassVar[str] = "IConE"
    in_paper: ClassVar[bool] = True
    learning: ClassVar[Learning] = Learning(batch_size=4, gain=16, options={"hidden": 512})
    prevents_collapse: ClassVar[str] = "diversity loss over all anchors, one per instance"
    per_instance: ClassVar[tuple[str, ...]] = ("objective.anchors.weight",)
    paper_options: ClassVar[dict[str, object]] = PAPER_OPTIONS["icone"]

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        hidden: HeadHidden = HEAD_HIDDEN,
        out: Annotated[Width, "Size of the embeddings and anchors; 0: no head, anchors among the features."] = HEAD_OUT,
        diversity: Annotated[
            str,
            Names(("auto", *DIVERSITY)),
            "What keeps anchors apart; auto: orthogonality, or an estimate of it where all pairs take too long.",
        ] = "auto",
        normalisation: Normalisation = "anchor",
        view_weight: ViewWeight = VIEW_WEIGHT,
        anchor_weight: AnchorWeight = 1.0,
        diversity_weight: DiversityWeight = 1.0,
        init_std: InitStd = ANCHOR_STD,
        init_unit: Annotated[bool, "Start anchors on the unit sphere instead of at the length of init_std."] = False,
        start_at: StartAt = "features",
        decay_anchors: Annotated[bool, "Let weight decay act on the anchors too."] = True,
        freeze_anchors: Annotated[bool, "Leave the anchors where they start; for comparisons."] = False,
        center_weight: Annotated[
            Weight, "Weight of a loss that keeps features near their mean, against the loss of rank at a high rate."
        ] = 0.0,
    ) -> None:
        super().__init__(encoder, setting, start_at)
        self.decay_anchors = decay_anchors
        self.side_stream = SideStream()
        self.head = projection(num_features(encoder), hidden, out, setting)
        shape = (setting.num_instances, out or num_features(encoder))
        self.objective = IConELoss(
            *shape,
            diversity=self._affordable(shape, normalisation) if diversity == "auto" else diversity,
            normalisation=normalisation,
            view_weight=view_weight,
            anchor_weight=anchor_weight,
            diversity_weight=diversity_weight,
            init_std=init_std * setting.initial_scale,
            init_unit=init_unit,
        )
        self.table.weight.requires_grad_(not freeze_anchors)
        self.center_weight = center_weight
        self.center = CenterLoss(num_features(encoder), setting.batch_size) if center_weight else None

    def _affordable(self, shape: tuple[int, int], normalisation: str) -> Callable[[Tensor], Tensor]:
        setting = self.setting
        term = affordable_orthogonality(
            shape, setting.diversity_flops, sampled_share=setting.sampled_share, normalisation=normalisation
        )
        if rows := term.keywords.get("rows"):
            self.notes = (
                f"all pairs of {shape[0]} anchors would take longer than the rest of a step on this device, so the "
                f"diversity loss of every step is estimated, without bias, from {rows} random anchors against all; "
                "--options=diversity=orthogonality computes all pairs",
            )
        return term

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        diversity = self.side_stream.compute(self.objective.diversity, self.objective.anchors.weight)
        features = self.encode(views)
        terms = self.objective.terms(self.head(features), index, diversity())
        if self.center is None:
            return terms
        distance = self.center(features)
        return {**terms, "loss": terms["loss"] + self.center_weight * distance, "center_distance": distance.detach()}

    def share(self, ranks: Ranks) -> None:
        super().share(ranks)
        self.objective.split(ranks)

    def embed(self, views: Tensor) -> Tensor:
        embedding: Tensor = self.head(self.encode(views))
        return embedding

    @property
    def table(self) -> AnchorTable:
        return self.objective.anchors

    def compiled_parts(self) -> list[Region]:
        head = [] if isinstance(self.head, nn.Identity) else [Region(self.head)]
        return [*head, Region(self.objective, "terms")]

    def adam_epsilon_floor(self, samples: int) -> dict[nn.Parameter, float]:
        return anchor_epsilon_floor(self.objective, samples)

    def undecayed(self) -> list[nn.Parameter]:
        return [] if self.decay_anchors else [self.objective.anchors.weight]

    def epoch_metrics(self) -> dict[str, Tensor]:
        return {"anchor_cosine": self.objective.anchors.mean_cosine()}


def projection(features: int, hidden: int, out: int, setting: Setting) -> nn.Module:
    """A head whose BatchNorm does not depend on the batch size; nothing if `out` is 0."""
    if out == 0:
        return nn.Identity()
    head = ProjectionHead([features, hidden, out], "batch")
    convert_batch_norm(head, setting.batch_size, HEAD_SAMPLES, REFERENCE_SAMPLES * setting.num_views)
    return head
