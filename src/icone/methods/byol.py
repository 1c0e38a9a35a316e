"""BYOL: a view predicts what an EMA copy of the network says about another view."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import HeadHidden, HeadNorm, HeadOut, Momentum
from icone.nn.ema import ema_copy, ema_update
from icone.nn.heads import ProjectionHead, smallest_batch
from icone.nn.losses import bootstrap, weighted_sum


class BYOL(Method):
    """A view predicts what an EMA copy of the network says about another view.

    Grill et al. 2020, arXiv:2006.07733.
    """

    name: ClassVar[str] = "byol"
    title: ClassVar[str] = "BYOL"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"hidden": 32, "out": 16}
    learning: ClassVar[Learning] = Learning(batch_size=16, gain=13, options={"hidden": 512})
    prevents_collapse: ClassVar[str] = "predictor and a slow target, helped by BatchNorm over the batch"
    min_batch_size: ClassVar[int] = 2
    too_small: ClassVar[str] = (
        "BatchNorm in BYOL's heads turns the two views of one instance into exactly ±1, so that hardly any "
        "gradient reaches the encoder; the option head_norm=layer works without the batch"
    )

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        momentum: Momentum = 0.99,
        hidden: HeadHidden = 4096,
        out: HeadOut = 256,
        head_norm: HeadNorm = "batch",
    ) -> None:
        super().__init__(encoder, setting, smallest_batch=smallest_batch(head_norm, setting.num_views))
        self.momentum = momentum
        self.sums_over_samples = head_norm != "batch"
        self.projector = ProjectionHead([num_features(encoder), hidden, out], head_norm)
        self.predictor = ProjectionHead([out, hidden, out], head_norm)
        self.target_encoder, self.target_projector = ema_copy(encoder), ema_copy(self.projector)

    def encoders(self) -> list[nn.Module]:
        return [self.encoder, self.target_encoder]

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        prediction = self.predictor(self.projector(self.encode(views)))
        with torch.no_grad():
            target = self.target_projector(self.run_encoder(self.target_encoder, views))
        return weighted_sum(bootstrap=bootstrap(prediction, target))

    def after_step(self, progress: Tensor) -> None:
        ema_update(self.target_encoder, self.encoder, self.momentum)
        ema_update(self.target_projector, self.projector, self.momentum)
