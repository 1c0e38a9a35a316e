"""SimMIM: an encoder of any kind with a feature map fills in the cubes that were hidden from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from icone.encoders import feature_map, map_shape
from icone.errors import InputError
from icone.methods.base import Learning, Method, Reads, Setting
from icone.methods.ranges import MOST, IntensityViews, MaskRatio, Range
from icone.nn.losses import masked_absolute_error, weighted_sum

LARGEST_PATCH = 32
"""Edge of the masked patches in the paper, which has images of 192 and 224."""
Edge = Annotated[int, Range(0, MOST, f"a whole number from 0 (by the size of the samples) to {MOST:,}")]


class SimMIM(Method):
    """The encoder sees a sample with hidden squares or cubes, and one linear layer on its feature map fills them in.

    Hidden pixels hold one learned value per channel. `mask_patch` is the edge of a square or cube; 0 is the paper's 32,
    or a quarter of the sample's edge where that is less. Every view is a sample of its own: as many a step as other
    methods have. The views are crops, flips and turns, as in the paper; `intensity_views=true` takes all of them. What
    lies behind the feature map, such as the last linear layer of our 3D networks, is read by probes but not trained.

    Xie et al. 2021, arXiv:2111.09886.
    """

    name: ClassVar[str] = "simmim"
    title: ClassVar[str] = "SimMIM"
    learning: ClassVar[Learning] = Learning(batch_size=4, gain=1)
    gathers: ClassVar[Literal["losses"]] = "losses"
    prevents_collapse: ClassVar[str] = "reconstructing hidden parts of a sample"
    sums_over_samples = True
    reads: ClassVar[Reads] = "feature map"

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        mask_ratio: MaskRatio = 0.6,
        mask_patch: Annotated[
            Edge, "Edge of a hidden square or cube; 0: 32, or a quarter of the edge of a sample where that is less."
        ] = 0,
        intensity_views: IntensityViews = False,
    ) -> None:
        super().__init__(encoder, setting)
        channels, *size = setting.sample_shape or _no_shape(self.name)
        features, *self.cells = map_shape(encoder, setting.sample_shape, self.name)
        self.size = size
        self.strides = [math.ceil(edge / cells) for edge, cells in zip(size, self.cells, strict=True)]
        self.patches = [mask_patch or max(1, min(LARGEST_PATCH, edge // 4)) for edge in size]
        self.grid = [math.ceil(edge / patch) for edge, patch in zip(size, self.patches, strict=True)]
        self.hidden = hidden_of(math.prod(self.grid), mask_ratio)
        self.mask_value = nn.Parameter(torch.zeros(channels))
        self.decoder = nn.Linear(features, channels * math.prod(self.strides))

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        random = self.random_numbers(views, index, math.prod(self.grid))
        return weighted_sum(reconstruction=self.mean_loss(self.errors, views, random))

    def errors(self, views: Tensor, random: Tensor) -> Tensor:
        """The error of every view, (B, V), with the squares or cubes hidden that have the smallest random numbers."""
        images, masked = views.flatten(0, 1), self.mask(random.flatten(0, 1))
        value = self.mask_value.reshape(-1, *(1 for _ in self.size))
        with self.autocast(images.device):
            predicted = self.reconstruct(torch.where(masked[:, None], value, images))
        errors = masked_absolute_error(predicted.float(), images, masked.to(images.dtype), reduction="none")
        return errors.reshape(views.shape[:2])

    def reconstruct(self, images: Tensor) -> Tensor:
        """What encoder and decoder make of samples with hidden parts: (n, C, *size) -> (n, C, *size)."""
        cells = feature_map(self.encoder, images).movedim(1, -1)
        patches: Tensor = self.decoder(cells).unflatten(-1, (images.shape[1], *self.strides))
        n = len(self.size)  # (batch, *cells, C, *strides) -> (batch, C, cell, stride, cell, stride, …)
        order = [0, n + 1, *(axis for i in range(n) for axis in (1 + i, n + 2 + i))]
        whole = patches.permute(order).flatten(-2)
        for axis in range(n - 2, -1, -1):
            whole = whole.flatten(2 + 2 * axis, 3 + 2 * axis)
        return crop(whole, self.size)

    def mask(self, random: Tensor) -> Tensor:
        """Which pixels are hidden, (n, *size), bool: the same number of squares or cubes in every sample."""
        masked = (random.argsort(dim=1).argsort(dim=1) < self.hidden).unflatten(1, self.grid)
        for axis, patch in enumerate(self.patches, 1):
            masked = masked.repeat_interleave(patch, dim=axis)
        return crop(masked, self.size)


def crop(x: Tensor, size: Sequence[int]) -> Tensor:
    """The first values along the last axes: what a grid of whole patches has too much."""
    for axis, edge in enumerate(size, x.ndim - len(size)):
        x = x.narrow(axis, 0, edge)
    return x


def hidden_of(patches: int, ratio: float) -> int:
    """How many of so many patches a mask hides; some must be hidden, and some seen.

    >>> hidden_of(64, 0.6)
    38
    """
    hidden = round(ratio * patches)
    if not 0 < hidden < patches:
        raise InputError(
            f"mask_ratio={ratio} hides {hidden} of {patches} patches: some must be hidden and some seen; choose "
            "another mask_ratio, smaller patches or a larger --size"
        )
    return hidden


def _no_shape(name: str) -> tuple[int, ...]:
    raise InputError(f"{name} reconstructs samples and must know their shape: build it with Setting(sample_shape=…)")
