"""Random views of points (vectors): additive Gaussian noise."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from icone.config import PointViews
from icone.validation import check_settings
from icone.views.base import Views, switched_off, unit_range


class PointPipeline(Views):
    """Adds independent normal noise of standard deviation `noise_sigma` to (N, C) points."""

    example_step: ClassVar[str] = "--point-views.noise-sigma=0.1"

    def __init__(self, config: PointViews) -> None:
        super().__init__()
        check_settings(config, "point_views")
        self.config = config
        self.noises = self._include("noise", {"sigma": config.noise_sigma}, switched_off(config.noise_sigma))

    def augment(self, images: Tensor) -> Tensor:
        """Every point with noise of its own."""
        points = unit_range(images)
        return points + self.config.noise_sigma * torch.randn_like(points) if self.noises else points

    def plain(self, images: Tensor) -> Tensor:
        """The points themselves."""
        return unit_range(images)
