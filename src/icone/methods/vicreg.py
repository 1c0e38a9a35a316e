"""VICReg: views agree, while every dimension varies over the batch and no two dimensions correlate."""

from __future__ import annotations

from typing import Annotated, ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import Count, HeadNorm, Weight
from icone.nn.heads import ProjectionHead
from icone.nn.losses import covariance, invariance, variance, weighted_sum


class VICReg(Method):
    """Views agree, while every dimension varies over the batch and no two dimensions correlate.

    Bardes, Ponce and LeCun 2021, arXiv:2105.04906.
    """

    name: ClassVar[str] = "vicreg"
    title: ClassVar[str] = "VICReg"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"hidden": 32}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=19, options={"hidden": 512})
    prevents_collapse: ClassVar[str] = "variance and covariance over the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "VICReg takes variance and covariance over the batch: at batch size 1 they are undefined (NaN)"
    )

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        invariance_weight: Annotated[Weight, "Weight of the distance between views of one sample."] = 25.0,
        variance_weight: Annotated[Weight, "Weight of the term that keeps the variance of every dimension up."] = 25.0,
        covariance_weight: Annotated[Weight, "Weight of the term that removes correlation between dimensions."] = 1.0,
        hidden: Annotated[Count, "Width of all three layers of the head (the expander)."] = 2048,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting)
        self.weights = {
            "invariance": invariance_weight,
            "variance": variance_weight,
            "covariance": covariance_weight,
        }
        self.expander = ProjectionHead([num_features(encoder), hidden, hidden, hidden], head_norm)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        z = self.expander(self.encode(views))
        return weighted_sum(self.weights, invariance=invariance(z), variance=variance(z), covariance=covariance(z))
