"""Random crops: integer boxes that are drawn for a whole batch at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from icone.views.base import within

TRIES = 10  # as many as torchvision's RandomResizedCrop makes


class RandomArea(nn.Module):
    """Boxes in an image with a random share of its area and a random aspect ratio (width / height).

    The distribution is that of torchvision's RandomResizedCrop: the area is uniform, the ratio log-uniform,
    the edges are rounded, the first of ten boxes that fits is taken, at a uniform place, and if none
    fits, the largest central box whose ratio is allowed. Here all ten are drawn and the choice is an index.
    """

    size: Tensor
    fallback: Tensor

    def __init__(self, size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]) -> None:
        super().__init__()
        self.scale, self.ratio = scale, ratio
        height, width = size
        narrowest, widest = ratio
        central = (min(height, round(width / narrowest)), min(width, round(height * widest)))
        self.register_buffer("size", torch.tensor(size, dtype=torch.float32), persistent=False)
        self.register_buffer("fallback", torch.tensor(central, dtype=torch.float32).clamp(min=1), persistent=False)

    def forward(self, area: Tensor, ratio: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """First pixel and edge lengths (rows, columns), (N, 2) each, from numbers that are uniform in [0, 1).

        area, ratio: (N, TRIES); place: (N, 2).
        """
        target = self.size.prod() * within(area, *self.scale)
        aspect = within(ratio, *map(math.log, self.ratio)).exp()
        tried = torch.stack([target / aspect, target * aspect], dim=2).sqrt().round()
        boxes = torch.cat([tried, self.fallback.expand(len(tried), 1, 2)], dim=1)
        fits = ((boxes > 0) & (boxes <= self.size)).all(dim=2)
        first = fits.int().argmax(dim=1)  # of equal values argmax names the first; the fallback always fits
        extent = boxes.take_along_dim(first[:, None, None], dim=1)[:, 0]
        room = self.size - extent
        centred = (first == TRIES)[:, None]
        return torch.where(centred, (room / 2).floor(), (place * (room + 1)).floor()), extent


class RandomShare(nn.Module):
    """Boxes of the volume's own shape with a random share of it, uniform in `scale`, at a uniform place."""

    size: Tensor

    def __init__(self, size: tuple[int, int, int], scale: tuple[float, float]) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("size", torch.tensor(size, dtype=torch.float32), persistent=False)

    def forward(self, share: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """First voxel and edge lengths, (N, 3) each, from numbers uniform in [0, 1): (N, 1) and (N, 3)."""
        extent = (self.size * within(share, *self.scale) ** (1 / 3)).round().clamp(min=1)
        return (place * (self.size - extent + 1)).floor(), extent
