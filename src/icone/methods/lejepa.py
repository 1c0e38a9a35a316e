"""LeJEPA: views agree, and the embeddings of a batch look like an isotropic Gaussian."""

from __future__ import annotations

from typing import Annotated, ClassVar

from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import Count, HeadNorm, HeadOut, Share
from icone.nn.heads import ProjectionHead
from icone.nn.losses import mean_view_distance, sliced_gaussianity, weighted_sum


class LeJEPA(Method):
    """Views agree with their mean, and the embeddings of a batch are shaped into an isotropic Gaussian (SIGReg).

    The loss is (1 − λ)·invariance + λ·SIGReg with λ = `sigreg_weight`, the one hyper-parameter of the paper. All views
    are global ones here. Balestriero and LeCun 2025, arXiv:2511.08544.
    """

    name: ClassVar[str] = "lejepa"
    title: ClassVar[str] = "LeJEPA"
    small_options: ClassVar[dict[str, object]] = {"hidden": 32, "out": 16, "directions": 32}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=10, options={"hidden": 512, "directions": 256})
    prevents_collapse: ClassVar[str] = "a Gaussian distribution over the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "SIGReg compares the distribution of a batch with a Gaussian: for a single embedding it is smallest at the "
        "origin, so that all samples would be drawn to one point"
    )

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        sigreg_weight: Annotated[Share, "λ, the weight of SIGReg; the agreement of views has 1 − λ."] = 0.05,
        hidden: Annotated[Count, "Width of the two hidden layers of the projection head."] = 2048,
        out: HeadOut = 64,
        directions: Annotated[
            Count, "Random directions along which the distribution is compared with a Gaussian."
        ] = 1024,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting)
        self.weights = {"invariance": 1 - sigreg_weight, "sigreg": sigreg_weight}
        self.directions = directions
        self.head = ProjectionHead([num_features(encoder), hidden, hidden, out], head_norm)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        z = self.head(self.encode(views))
        return weighted_sum(
            self.weights, invariance=mean_view_distance(z), sigreg=sliced_gaussianity(z, self.directions)
        )
