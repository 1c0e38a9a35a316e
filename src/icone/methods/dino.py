"""DINO: a student predicts the sharpened, centred output of its slow teacher on another view."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import num_features
from icone.methods.base import Learning, Method, Setting
from icone.methods.ranges import Count, Positive, Share
from icone.nn.ema import ema_copy, ema_update
from icone.nn.heads import frozen_in_first_epoch
from icone.nn.losses import moved_centre, self_distillation, weighted_sum


class DINOHead(nn.Module):
    """Three linear layers with GELU to a unit vector, then its cosines with one direction per output.

    The last layer is a weight-normed linear layer without bias whose gain is fixed at 1. Caron et al. 2021,
    arXiv:2104.14294.
    """

    def __init__(self, dim: int, hidden: int, bottleneck: int, outputs: int) -> None:
        super().__init__()
        first, second, third = (
            nn.Linear(dim, hidden),
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, bottleneck),
        )
        for layer in (first, second, third):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(first, nn.GELU(), second, nn.GELU(), third)
        self.directions = nn.Linear(bottleneck, outputs, bias=False)

    def forward(self, z: Tensor, directions: Tensor | None = None) -> Tensor:
        """(B, V, dim) -> (B, V, outputs); `directions` stand in for those of the head where given."""
        weight = self.directions.weight if directions is None else directions
        return F.normalize(self.layers(z), dim=-1) @ F.normalize(weight, dim=-1).T


class DINO(Method):
    """A student predicts the sharpened, centred output of its slow teacher on another view.

    The teacher's momentum rises to 1 along a cosine; its temperature rises linearly over the first `warmup`
    (a share) of the training, 30 of 100 epochs in the reference, then stays.

    Caron et al. 2021, arXiv:2104.14294.
    """

    name: ClassVar[str] = "dino"
    title: ClassVar[str] = "DINO"
    in_paper: ClassVar[bool] = True
    small_options: ClassVar[dict[str, object]] = {"outputs": 32, "hidden": 32, "bottleneck": 16}
    # 65,536 outputs are meant for millions of images. With 256, the published teacher temperature of 0.04 leaves the
    # teacher all but uniform at the start: entropy 5.4 of 5.5.
    learning: ClassVar[Learning] = Learning(
        batch_size=16,
        gain=7,
        options={"outputs": 256, "first_teacher_temperature": 0.01, "teacher_temperature": 0.015, "hidden": 512},
    )
    sums_over_samples = True
    prevents_collapse: ClassVar[str] = "centring by a moving mean, sharpening, a slow teacher"
    max_gradient_norm: ClassVar[float | None] = 3.0

    centre: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        outputs: Annotated[
            Count, "Outputs of the heads, between which the teacher decides; fewer suit small data."
        ] = 65536,
        momentum: Annotated[
            Share, "What the teacher keeps of itself in a step at the start; it rises to 1 along a cosine."
        ] = 0.996,
        student_temperature: Annotated[Positive, "Divides the logits of the student."] = 0.1,
        first_teacher_temperature: Annotated[
            Positive, "Divides the logits of the teacher at the start; smaller: sharper targets."
        ] = 0.04,
        teacher_temperature: Annotated[Positive, "Divides the logits of the teacher after the warm-up."] = 0.07,
        warmup: Annotated[Share, "Share of the training over which the temperature of the teacher rises."] = 0.3,
        centre_momentum: Annotated[
            Share, "What the moving mean of the outputs of the teacher keeps of itself in a step."
        ] = 0.9,
        hidden: Annotated[Count, "Width of the hidden layers of the head."] = 2048,
        bottleneck: Annotated[Count, "Width of the head before its last layer."] = 256,
    ) -> None:
        super().__init__(encoder, setting)
        self.momentum = momentum
        self.student_temperature = student_temperature
        self.first_teacher_temperature = first_teacher_temperature
        self.teacher_temperature = teacher_temperature
        self.warmup = warmup
        self.centre_momentum = centre_momentum
        self.head = DINOHead(num_features(encoder), hidden, bottleneck, outputs)
        self.teacher_encoder, self.teacher_head = ema_copy(encoder), ema_copy(self.head)
        self.register_buffer("centre", torch.zeros(outputs))
        self.teacher_means: list[tuple[Tensor, int]] = []
        """Mean of the teacher's logits and number of instances, for every pass of this step."""

    def encoders(self) -> list[nn.Module]:
        return [self.encoder, self.teacher_encoder]

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        directions = frozen_in_first_epoch(self.head.directions.weight, progress, self.setting.epochs)
        student = self.head(self.encode(views), directions)
        with torch.no_grad():
            teacher = self.teacher_head(self.run_encoder(self.teacher_encoder, views))
        loss = self_distillation(student, teacher, self.centre, self.temperature_at(progress), self.student_temperature)
        self.teacher_means.append((teacher.mean(dim=(0, 1)), len(teacher)))
        return weighted_sum(distillation=loss)

    def before_step(self) -> None:
        self.teacher_means = []

    def after_step(self, progress: Tensor) -> None:
        instances = sum(count for _, count in self.teacher_means)
        mean = torch.stack([mean * (count / instances) for mean, count in self.teacher_means]).sum(0)
        self.teacher_means = []
        self.centre.copy_(moved_centre(self.centre, mean[None, None], self.centre_momentum))
        momentum = self.momentum_at(progress)
        ema_update(self.teacher_encoder, self.encoder, momentum)
        ema_update(self.teacher_head, self.head, momentum)

    def temperature_at(self, progress: Tensor) -> Tensor:
        """The teacher's temperature, 0-d."""
        warm = (progress / self.warmup).clamp(max=1) if self.warmup else torch.ones_like(progress)
        return self.first_teacher_temperature + warm * (self.teacher_temperature - self.first_teacher_temperature)

    def momentum_at(self, progress: Tensor) -> Tensor:
        """The teacher's momentum, 0-d: from `momentum` to 1 along half a cosine."""
        return 1 - (1 - self.momentum) * (1 + torch.cos(math.pi * progress)) / 2
