"""Random views of volumes: the pipeline of the paper's appendix A, batched."""

from __future__ import annotations

import itertools
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from icone.config import VolumeViews
from icone.validation import check_settings
from icone.views.base import Views, draw_uniform, switched_off, unit_range, within
from icone.views.ops.blur import BoxBlur
from icone.views.ops.crop import RandomShare
from icone.views.ops.resample import along_axes, interpolation_matrix

# How many uniform numbers one view takes, and for what.
UNIFORMS = {
    "share": 1,
    "place": 3,
    "flip": 3,
    "rotate": 1,
    "turn": 1,
    "shift": 1,
    "contrast": 1,
    "noise": 1,
    "blur": 1,
}


class QuarterTurn(NamedTuple):
    """A rotation by k quarters as torch.rot90 makes it, and how its output runs along the input."""

    plane: tuple[int, int]
    k: int
    axes: tuple[int, ...]
    """Axis of the input that each axis of the output runs along."""
    reverses: tuple[bool, ...]
    """Whether the output axis runs backwards along it."""


class VolumeParameters(NamedTuple):
    """What was drawn for N views."""

    start: Tensor
    """First voxel of the crop, (N, 3)."""
    extent: Tensor
    """Edges of the crop in voxels, (N, 3)."""
    flipped: Tensor
    """Whether an axis is reversed, (N, 3)."""
    turn: Tensor
    """Position of the rotation in `VolumePipeline.turns`, (N,); 0 is none."""
    shift: Tensor
    """Offset of the intensities, (N,); (N, C) where there are several channels."""
    contrast: Tensor
    """Factor of the intensities, (N,); (N, C) where there are several channels."""
    noise_sigma: Tensor
    """Standard deviation of the noise, (N,); 0 where there is none."""
    noise: Tensor | None
    """Standard normal noise, (N, C, D, H, W); None where the pipeline has no noise."""
    blurred: Tensor
    """Whether the view is blurred, (N,)."""


class VolumePipeline(Views):
    """Crop, flips, quarter turn, intensity shift and contrast, noise and blur of (N, C, D, H, W) volumes.

    Crop, flips and turn are one trilinear resampling. Intensities become (x + shift) · contrast, in the order
    of the paper's list; they are not clipped, as the paper does not say that they are, nor normalised. Of several
    channels each gets a shift and a contrast of its own.
    """

    draws_first: ClassVar[bool] = True
    example_step: ClassVar[str] = "--volume-views.flip=0.5"

    turn_axes: Tensor
    turn_reverses: Tensor
    turn_swap: Tensor

    def __init__(self, config: VolumeViews, *, channels: int, size: tuple[int, int, int]) -> None:
        super().__init__()
        check_settings(config, "volume_views")
        self.config, self.channels, self.size = config, channels, size
        self._plan_geometry()
        self._plan_intensity()

    def augment(self, images: Tensor) -> Tensor:
        """One random view of every volume, (N, C, D, H, W) -> (N, C, D, H, W)."""
        return self.transform(images, self.draw(len(images), images.device))

    def in_parts(self, images: Tensor, num_views: int, samples: int | None) -> Tensor:
        """The same views; beside them lie the noise of all, and what it takes to make those of `samples` samples."""
        if samples is None or len(images) <= samples:
            return super().in_parts(images, num_views, samples)
        drawn = self.draw(len(images) * num_views, images.device)
        views = images.new_empty(len(images), num_views, *images.shape[1:], dtype=torch.float32)
        for first in range(0, len(images), samples):
            part = images[first : first + samples].repeat_interleave(num_views, dim=0)
            rows = slice(first * num_views, first * num_views + len(part))
            some = drawn._replace(**{name: v[rows] for name, v in drawn._asdict().items() if v is not None})
            views.flatten(0, 1)[rows] = self.transform(part, some)
        return views

    def plain(self, images: Tensor) -> Tensor:
        """The whole volume."""
        return unit_range(images)

    def draw(self, count: int, device: torch.device) -> VolumeParameters:
        """Random parameters of `count` views."""
        config = self.config
        uniform = draw_uniform(UNIFORMS, count, device)
        start, extent = self.crop(uniform["share"], uniform["place"])
        turn = 1 + (uniform["turn"] * (len(self.turns) - 1)).long()
        shift, contrast = uniform["shift"][:, 0], uniform["contrast"][:, 0]
        if self.channels > 1:
            shift, contrast = torch.rand(count, 2, self.channels, device=device).unbind(1)
        return VolumeParameters(
            start=start,
            extent=extent,
            flipped=uniform["flip"] < config.flip,
            turn=(turn * (uniform["rotate"] < self.rotate_chance))[:, 0],
            shift=within(shift, -config.shift, config.shift),
            contrast=within(contrast, *config.contrast),
            noise_sigma=(config.noise_sigma * (uniform["noise"] < config.noise))[:, 0],
            noise=torch.randn(count, self.channels, *self.size, device=device) if self.noises else None,
            blurred=uniform["blur"][:, 0] < config.blur,
        )

    def transform(self, images: Tensor, drawn: VolumeParameters) -> Tensor:
        """The views of stored volumes (N, C, D, H, W) that the parameters of N views describe."""
        views = self._resample(images, drawn) if self.resamples else unit_range(images)
        if self.rescales:
            contrast = _per_channel(drawn.contrast)
            views = torch.addcmul(_per_channel(drawn.shift) * contrast, views, contrast)
        if drawn.noise is not None:
            views = torch.addcmul(views, drawn.noise, _per_sample(drawn.noise_sigma))
        if self.blur is not None:
            views = self.blur(views, drawn.blurred)
        return views

    def _resample(self, images: Tensor, drawn: VolumeParameters) -> Tensor:
        """Crop, flip and turn: swap axes as the turn does, then resample each along the one it came from."""
        axes = self.turn_axes[drawn.turn]
        start, extent = drawn.start.gather(1, axes), drawn.extent.gather(1, axes)
        flipped = drawn.flipped.gather(1, axes) ^ self.turn_reverses[drawn.turn]
        swapped = unit_range(self._swap_axes(images, self.turn_swap[drawn.turn]))
        each = zip(start.unbind(1), extent.unbind(1), flipped.unbind(1), self.size, strict=True)
        return along_axes(swapped, [interpolation_matrix(*axis) for axis in each])

    def _swap_axes(self, images: Tensor, swap: Tensor) -> Tensor:
        """Each volume with its axes in the order `self.swaps[swap]`."""
        if len(self.swaps) == 1:
            return images
        orders = torch.stack([images.permute(0, 1, *(2 + axis for axis in axes)) for axes in self.swaps])
        return orders[swap, torch.arange(len(images), device=images.device)]

    def _plan_geometry(self) -> None:
        config = self.config
        whole = "set to 1 1" if config.crop_scale == (1, 1) else None
        crops = self._include("crop", {"scale": config.crop_scale}, whole)
        flips = self._include("flip", {"probability_per_axis": config.flip}, switched_off(config.flip))
        turns = quarter_turns(self.size)
        planes = sorted({turn.plane for turn in turns[1:]})
        obstacle = switched_off(config.rotate) or (None if planes else "no two edges have the same length")
        parameters = {"probability": config.rotate, "planes": [list(plane) for plane in planes]}
        rotates = self._include("rotate", parameters, obstacle)
        self.resamples = crops or flips or rotates
        self.crop = RandomShare(self.size, config.crop_scale)
        self.rotate_chance = config.rotate if rotates else 0.0
        self.turns = turns if rotates else turns[:1]
        self.swaps = sorted({turn.axes for turn in self.turns})
        self._constant("turn_axes", torch.tensor([turn.axes for turn in self.turns]))
        self._constant("turn_reverses", torch.tensor([turn.reverses for turn in self.turns]))
        self._constant("turn_swap", torch.tensor([self.swaps.index(turn.axes) for turn in self.turns]))

    def _plan_intensity(self) -> None:
        config = self.config
        shifts = self._include("shift", {"strength": config.shift}, switched_off(config.shift))
        same = "set to 1 1" if config.contrast == (1, 1) else None
        scales = self._include("contrast", {"range": config.contrast}, same)
        self.rescales = shifts or scales
        noise = {"probability": config.noise, "sigma": config.noise_sigma}
        silent = switched_off(config.noise) or switched_off(config.noise_sigma)
        self.noises = self._include("noise", noise, silent)
        blurs = self._include("blur", {"probability": config.blur, "kernel": 3}, switched_off(config.blur))
        self.blur = BoxBlur(self.size) if blurs else None


def quarter_turns(size: tuple[int, int, int]) -> list[QuarterTurn]:
    """No turn, and then the turns by 1, 2 and 3 quarters in every plane whose two edges have the same length.

    >>> [(turn.plane, turn.k) for turn in quarter_turns((8, 4, 4))]
    [((0, 1), 0), ((1, 2), 1), ((1, 2), 2), ((1, 2), 3)]
    """
    turns = [QuarterTurn((0, 1), 0, (0, 1, 2), (False, False, False))]
    for a, b in itertools.combinations(range(3), 2):
        if size[a] != size[b]:
            continue
        for k in (1, 2, 3):
            axes, reverses = [0, 1, 2], [False, False, False]
            if k != 2:
                axes[a], axes[b] = b, a
            reverses[a], reverses[b] = k in (1, 2), k in (2, 3)
            turns.append(QuarterTurn((a, b), k, tuple(axes), tuple(reverses)))
    return turns


def _per_channel(values: Tensor) -> Tensor:
    return values[:, :, None, None, None] if values.ndim == 2 else _per_sample(values)


def _per_sample(values: Tensor) -> Tensor:
    return values[:, None, None, None, None]
