"""Random views of 2D images: the pipeline of the paper's appendix A, batched."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from icone.config import ImageViews
from icone.validation import check_settings
from icone.views.base import Views, draw_uniform, switched_off, unit_range, within
from icone.views.ops.blur import GaussianBlur
from icone.views.ops.colour import (
    BRIGHTNESS,
    CONTRAST,
    HUE,
    SATURATION,
    ChannelJitter,
    ColourJitter,
    luma_weights,
    mix_channels,
)
from icone.views.ops.crop import TRIES, RandomArea
from icone.views.ops.resample import along_axes, interpolation_matrix

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# For images that are not RGB: the same statistics averaged over the colours, for every channel.
GRAY_MEAN, GRAY_STD = 0.449, 0.226

# How many uniform numbers one view takes, and for what.
UNIFORMS = {
    "area": TRIES,
    "ratio": TRIES,
    "place": 2,
    "flip": 2,
    "jitter": 1,
    "factors": 4,
    "order": 1,
    "grayscale": 1,
    "blur": 1,
    "sigma": 1,
}


class ImageParameters(NamedTuple):
    """What was drawn for N views; axes are rows, then columns."""

    start: Tensor
    """First pixel of the crop, (N, 2)."""
    extent: Tensor
    """Height and width of the crop in pixels, (N, 2)."""
    flipped: Tensor
    """Whether an axis is reversed, (N, 2): vertical flip, horizontal flip."""
    order: Tensor
    """Operations of the colour jitter from first to last, (N, K)."""
    factors: Tensor
    """Brightness, contrast and saturation factor and turn of the hue, (N, 4); 1, 1, 1, 0 changes nothing."""
    gray: Tensor
    """Whether the colour is dropped, (N,)."""
    sigma: Tensor
    """Standard deviation of the blur in pixels, (N,); 0 where not blurred."""
    channel_factors: Tensor | None = None
    """Brightness and contrast factor of every channel, (N, 2, C), where the channels are no colours."""


def normalisation(channels: int, *, is_rgb: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation by which every channel of a view is normalised."""
    if is_rgb and channels == 3:
        return IMAGENET_MEAN, IMAGENET_STD
    return (GRAY_MEAN,) * channels, (GRAY_STD,) * channels


class ImagePipeline(Views):
    """Crop, flips, colour jitter, grayscale, blur and normalisation of (N, C, H, W) images.

    Every step computes what torchvision computes sample by sample for the same parameters. Crop and
    flips are one resampling; dropping the colour and normalising are one product with a C×C matrix. Where the channels
    are neither gray nor red, green and blue, each of them gets a brightness and a contrast of its own.
    """

    draws_first: ClassVar[bool] = True
    example_step: ClassVar[str] = "--image-views.flip=0.5"

    flip_chance: Tensor
    factor_low: Tensor
    factor_high: Tensor
    factor_neutral: Tensor
    mean: Tensor
    std: Tensor
    offset: Tensor
    keep_colour: Tensor
    drop_colour: Tensor

    def __init__(self, config: ImageViews, *, channels: int, size: tuple[int, int], is_rgb: bool = True) -> None:
        super().__init__()
        check_settings(config, "image_views")
        self.config, self.channels, self.size = config, channels, size
        self.is_rgb = is_rgb and channels == 3
        self.each_channel = channels > 1 and not self.is_rgb
        self._plan_geometry()
        self._plan_colour()
        self._plan_blur()
        self._plan_normalisation()

    def augment(self, images: Tensor) -> Tensor:
        """One random view of every image, (N, C, H, W) -> (N, C, H, W)."""
        return self.transform(images, self.draw(len(images), images.device))

    def plain(self, images: Tensor) -> Tensor:
        """The whole image, normalised."""
        return (unit_range(images) - self.mean) / self.std

    def draw(self, count: int, device: torch.device) -> ImageParameters:
        """Random parameters of `count` views."""
        uniform = draw_uniform(UNIFORMS, count, device)
        start, extent = self.crop(uniform["area"], uniform["ratio"], uniform["place"])
        factors = within(uniform["factors"], self.factor_low, self.factor_high)
        sigma = within(uniform["sigma"], *self.config.blur_sigma)
        own = None
        if self.each_channel:
            low, high = self.factor_low[:HUE, None], self.factor_high[:HUE, None]
            drawn = within(torch.rand(count, 2, self.channels, device=device), low[:SATURATION], high[:SATURATION])
            own = torch.where(uniform["jitter"][:, :, None] < self.config.jitter, drawn, torch.ones_like(drawn))
        return ImageParameters(
            channel_factors=own,
            start=start,
            extent=extent,
            flipped=uniform["flip"] < self.flip_chance,
            order=self.jitter.draw_order(uniform["order"][:, 0]),
            factors=torch.where(uniform["jitter"] < self.config.jitter, factors, self.factor_neutral),
            gray=uniform["grayscale"][:, 0] < self.gray_chance,
            sigma=(sigma * (uniform["blur"] < self.config.blur))[:, 0],
        )

    def transform(self, images: Tensor, drawn: ImageParameters) -> Tensor:
        """The views of stored images (N, C, H, W) that the parameters of N views describe."""
        views = unit_range(images)
        if self.resamples:
            views = self._resample(views, drawn)
        if drawn.channel_factors is not None:
            brightness, contrast = drawn.channel_factors.unbind(1)
            contrast_first = drawn.order[:, 0] == CONTRAST if self.jitter.operations else drawn.gray
            views = self.channel_jitter(views.flatten(2), contrast_first, brightness, contrast).view_as(views)
        elif self.jitter.operations:
            views = self.jitter(views.flatten(2), drawn.order, drawn.factors).view_as(views)
        if self.blur is not None:
            views = self.blur(views, drawn.sigma)
        return self._finish(views, drawn.gray)

    def _resample(self, images: Tensor, drawn: ImageParameters) -> Tensor:
        axes = zip(drawn.start.unbind(1), drawn.extent.unbind(1), drawn.flipped.unbind(1), self.size, strict=True)
        return along_axes(images, [interpolation_matrix(*axis) for axis in axes])

    def _finish(self, images: Tensor, gray: Tensor) -> Tensor:
        """Drop the colour where asked (every channel becomes the luma), and normalise."""
        if self.each_channel:  # a product with a matrix of 40 × 40 would cost more than all other steps
            return (images - self.mean) / self.std
        mix = torch.where(gray[:, None, None], self.drop_colour, self.keep_colour)
        return mix_channels(self.offset, mix, images.flatten(2)).view_as(images)

    def _plan_geometry(self) -> None:
        config = self.config
        whole = "set to 1 1" if config.crop_scale == (1, 1) else None
        cropped = self._include("crop", {"scale": config.crop_scale, "ratio": config.crop_ratio}, whole)
        chances = {"vertical_flip": config.vertical_flip, "flip": config.flip}
        flipped = [self._include(step, {"probability": p}, switched_off(p)) for step, p in chances.items()]
        self.resamples = cropped or any(flipped)
        height, width = self.size
        ratio = config.crop_ratio if cropped else (width / height, width / height)
        self.crop = RandomArea(self.size, config.crop_scale, ratio)
        self._constant("flip_chance", torch.tensor(list(chances.values())))

    def _plan_colour(self) -> None:
        config = self.config
        other = "the channels are no colours" if self.channels == 3 else f"the number of channels is {self.channels}"
        no_rgb = None if self.is_rgb else f"needs RGB, and {other}"
        no_jitter = "jitter is set to 0" if config.jitter == 0 else None
        strengths = {
            BRIGHTNESS: ("brightness", config.brightness, None),
            CONTRAST: ("contrast", config.contrast, None),
            SATURATION: ("saturation", config.saturation, no_rgb),
            HUE: ("hue", config.hue, no_rgb),
        }
        neutral, reach = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.zeros(4)
        operations = []
        for operation, (step, strength, obstacle) in strengths.items():
            parameters: dict[str, object] = {"strength": strength, "probability": config.jitter}
            if self.each_channel:
                parameters["of"] = "each channel"
            if self._include(step, parameters, obstacle or no_jitter or switched_off(strength)):
                operations.append(operation)
                reach[operation] = strength
        low = neutral - reach
        low[:HUE].clamp_(min=0)
        self.jitter = ColourJitter(operations, self.channels)
        self.channel_jitter = ChannelJitter(operations)
        self._constant("factor_neutral", neutral)
        self._constant("factor_low", low)
        self._constant("factor_high", neutral + reach)
        gray = {"probability": config.grayscale}
        grays = self._include("grayscale", gray, no_rgb or switched_off(config.grayscale))
        self.gray_chance = config.grayscale if grays else 0.0

    def _plan_blur(self) -> None:
        config = self.config
        parameters = {"probability": config.blur, "kernel": config.blur_kernel, "sigma": config.blur_sigma}
        blurs = self._include("blur", parameters, switched_off(config.blur))
        self.blur = GaussianBlur(self.size, config.blur_kernel) if blurs else None

    def _plan_normalisation(self) -> None:
        means, stds = normalisation(self.channels, is_rgb=self.is_rgb)
        self._include("normalise", {"mean": means, "std": stds})
        mean, std = torch.tensor(means), torch.tensor(stds)
        self._constant("mean", mean[:, None, None])
        self._constant("std", std[:, None, None])
        self._constant("offset", (-mean / std)[:, None])
        self._constant("keep_colour", torch.diag(1 / std))
        self._constant("drop_colour", luma_weights(self.channels) / std[:, None])
