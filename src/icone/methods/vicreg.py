"""VICReg: views agree, while every dimension varies over the batch and no two dimensions correlate."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Method, Setting
from icone.nn.heads import ProjectionHead
from icone.nn.losses import covariance, invariance, variance, weighted_sum


class VICReg(Method):
    """Views agree, while every dimension varies over the batch and no two dimensions correlate."""

    name: ClassVar[str] = "vicreg"
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
        invariance_weight: float = 25.0,
        variance_weight: float = 25.0,
        covariance_weight: float = 1.0,
        hidden: int = 2048,
        head_norm: str = "batch",
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
