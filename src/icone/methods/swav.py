"""SwAV: a view predicts to which prototypes another view of its instance was assigned."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import Count, HeadHidden, HeadNorm, HeadOut, Positive
from icone.nn.heads import ProjectionHead, frozen_in_first_epoch
from icone.nn.losses import swapped_prediction, weighted_sum


class SwAV(Method):
    """A view predicts to which prototypes another view of its instance was assigned.

    The assignment spreads the batch evenly over the prototypes; those are unit vectors and stay as they were
    drawn during the first epoch.

    Caron, Misra, Mairal, Goyal, Bojanowski and Joulin 2020, arXiv:2006.09882.
    """

    name: ClassVar[str] = "swav"
    title: ClassVar[str] = "SwAV"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"prototypes": 12, "hidden": 32, "out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=11, options={"hidden": 512})
    prevents_collapse: ClassVar[str] = "even assignment of the batch to prototypes"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "SwAV spreads the batch evenly over its prototypes: at batch size 1 the assignment is exactly "
        "uniform, whatever the image"
    )

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        prototypes: Annotated[Count, "Number of prototypes, to which views are assigned."] = 300,
        temperature: Annotated[Positive, "Divides the scores of the prototypes; smaller: sharper predictions."] = 0.1,
        epsilon: Annotated[
            Positive, "Entropy of the assignment; smaller: each view belongs to fewer prototypes."
        ] = 0.05,
        iterations: Annotated[Count, "Sinkhorn-Knopp iterations that spread the batch evenly over the prototypes."] = 3,
        hidden: HeadHidden = 2048,
        out: HeadOut = 128,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting)
        self.temperature = temperature
        self.epsilon = epsilon
        self.iterations = iterations
        self.head = ProjectionHead([num_features(encoder), hidden, out], head_norm)
        self.prototypes = nn.Linear(out, prototypes, bias=False)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        self._renormalise_prototypes()
        prototypes = frozen_in_first_epoch(self.prototypes.weight, progress, self.setting.epochs)
        scores = F.normalize(self.head(self.encode(views)), dim=-1) @ prototypes.T
        return weighted_sum(
            swapped_prediction=swapped_prediction(scores, self.temperature, self.epsilon, self.iterations)
        )

    @torch.no_grad()
    def _renormalise_prototypes(self) -> None:
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))
