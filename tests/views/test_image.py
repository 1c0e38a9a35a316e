"""The image pipeline against torchvision, sample by sample, on the same drawn parameters."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional as TF
from torchvision.transforms.functional import pil_to_tensor

from icone.config import ImageViews
from icone.views.image import (
    GRAY_MEAN,
    GRAY_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
    ImageParameters,
    ImagePipeline,
)
from icone.views.ops.colour import turn_hue

OFF = ImageViews(crop_scale=(1, 1), flip=0, vertical_flip=0, jitter=0, grayscale=0, blur=0)
ADJUST = [TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue]


def photo_like(count: int, channels: int, size: tuple[int, int], seed: int = 0) -> Tensor:
    """uint8 images with smooth areas, noise, and pixels at both ends of the range."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size, mode="bicubic", align_corners=False)
    noise = 0.1 * torch.randn(count, channels, *size, generator=generator)
    return ((smooth * 1.6 - 0.3 + noise).clamp(0, 1) * 255).round().byte()


def reference(image: Tensor, drawn: ImageParameters, n: int, kernel: int) -> Tensor:
    """The view that torchvision makes of one stored image."""
    size = list(image.shape[1:])
    view = TF.convert_image_dtype(image, torch.float32)
    (top, left), (height, width) = drawn.start[n].int().tolist(), drawn.extent[n].int().tolist()
    view = TF.resized_crop(view, top, left, height, width, size, antialias=True)
    vertical, horizontal = drawn.flipped[n].tolist()
    view = TF.vflip(view) if vertical else view
    view = TF.hflip(view) if horizontal else view
    for operation in drawn.order[n].tolist():
        view = ADJUST[operation](view, drawn.factors[n, operation].item())
    view = TF.rgb_to_grayscale(view, 3) if drawn.gray[n] else view
    if drawn.sigma[n] > 0:
        view = TF.gaussian_blur(view, [kernel, kernel], [drawn.sigma[n].item()] * 2)
    rgb, gray = (IMAGENET_MEAN, IMAGENET_STD), ([GRAY_MEAN], [GRAY_STD])
    mean, std = rgb if len(view) == 3 else gray
    normalised: Tensor = TF.normalize(view, list(mean), list(std))
    return normalised


def worst_difference(config: ImageViews, images: Tensor, kernel: int | None = None) -> float:
    """Largest difference from torchvision over all pixels, in units of the [0, 1] range."""
    torch.manual_seed(1)
    pipeline = ImagePipeline(config, channels=images.shape[1], size=(images.shape[2], images.shape[3]))
    drawn = pipeline.draw(len(images), images.device)
    views = pipeline.transform(images, drawn)
    expected = [reference(image, drawn, n, kernel or config.blur_kernel) for n, image in enumerate(images)]
    assert views.dtype == torch.float32
    assert views.shape == images.shape
    return ((views - torch.stack(expected)) * pipeline.std).abs().max().item()


@pytest.mark.parametrize("size", [(224, 224), (40, 64)])
def test_whole_pipeline_equals_torchvision(size: tuple[int, int]) -> None:
    images = photo_like(12 if size[0] > 100 else 64, 3, size)
    assert worst_difference(ImageViews(vertical_flip=0.5), images) < 2e-5


def test_whole_pipeline_equals_torchvision_on_real_images(real_data: Path) -> None:
    files = sorted((real_data / "bloodcells" / "images").glob("*.png"))[:48]
    images = torch.stack([pil_to_tensor(Image.open(file).convert("RGB")) for file in files])
    assert worst_difference(ImageViews(), images) < 2e-5


@pytest.mark.parametrize(
    "step",
    [
        {"crop_scale": (0.2, 1.0)},
        {"crop_scale": (0.01, 0.05), "crop_ratio": (0.2, 5.0)},
        {"flip": 0.5},
        {"vertical_flip": 0.5},
        {"jitter": 1.0, "contrast": 0, "saturation": 0, "hue": 0},
        {"jitter": 1.0, "brightness": 0, "saturation": 0, "hue": 0},
        {"jitter": 1.0, "brightness": 0, "contrast": 0, "hue": 0},
        {"jitter": 1.0, "brightness": 0, "contrast": 0, "saturation": 0, "hue": 0.5},
        {"jitter": 1.0, "brightness": 0.9, "contrast": 0.9, "saturation": 0.9, "hue": 0.5},
        {"jitter": 0.5, "brightness": 3.0},
        {"grayscale": 0.5},
        {"blur": 0.5},
        {"blur": 1.0, "blur_kernel": 5, "blur_sigma": (3.0, 9.0)},
        {"blur": 1.0, "blur_kernel": 1},
    ],
    ids=str,
)
def test_single_steps_equal_torchvision(step: dict[str, Any]) -> None:
    config = dataclasses.replace(OFF, **step)
    assert worst_difference(config, photo_like(64, 3, (33, 47))) < 1e-5


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_uniform_pictures_stay_finite(extreme: float) -> None:
    """No chroma and no contrast: nothing may be divided by zero."""
    assert worst_difference(ImageViews(jitter=1), torch.full((8, 3, 32, 32), extreme)) < 1e-5


def test_gray_images_get_what_makes_sense() -> None:
    """One channel: torchvision's own brightness and contrast; no colour, and statistics for gray."""
    config = ImageViews(jitter=1, vertical_flip=0.5)
    assert worst_difference(config, photo_like(48, 1, (32, 32))) < 1e-5
    described = ImagePipeline(config, channels=1, size=(32, 32)).describe()
    assert isinstance(described["left_out"], dict)
    assert set(described["left_out"]) == {"saturation", "hue", "grayscale"}
    assert all("RGB" in reason for reason in described["left_out"].values())


@pytest.mark.parametrize("channels", [2, 5, 40])
def test_many_channels_get_a_brightness_and_a_contrast_each(channels: int) -> None:
    config = dataclasses.replace(OFF, jitter=1.0, brightness=0.4, contrast=0.4)
    images = photo_like(16, channels, (24, 24))
    pipeline = ImagePipeline(config, channels=channels, size=(24, 24))
    drawn = pipeline.draw(16, images.device)
    assert drawn.channel_factors is not None
    views = pipeline.transform(images, drawn) * GRAY_STD + GRAY_MEAN
    for view, image, order, factors in zip(views, images, drawn.order, drawn.channel_factors, strict=True):
        for channel in range(channels):
            picture = image[channel : channel + 1].float() / 255
            for operation in order.tolist():
                adjust = ADJUST[operation]
                picture = adjust(picture, factors[operation, channel].item())
            torch.testing.assert_close(view[channel : channel + 1], picture, rtol=0, atol=2e-6)
    assert drawn.channel_factors.std(dim=2).min() > 0  # not one factor for all
    assert set(drawn.order[:, 0].tolist()) == {0, 1}


def test_channels_that_are_no_colours_keep_their_number_of_random_draws() -> None:
    """Gray and RGB images draw what they always drew; steps that need colours say why they are left out."""
    for channels, expected in ((1, None), (3, None), (4, (8, 2, 4))):
        drawn = ImagePipeline(ImageViews(), channels=channels, size=(24, 24)).draw(8, torch.device("cpu"))
        assert (None if drawn.channel_factors is None else tuple(drawn.channel_factors.shape)) == expected
    left_out = ImagePipeline(ImageViews(), channels=40, size=(24, 24)).describe()["left_out"]
    assert isinstance(left_out, dict)
    assert set(left_out) - {"vertical_flip"} == {"saturation", "hue", "grayscale"}


def test_blur_kernel_is_cut_to_what_a_small_image_can_mirror() -> None:
    config = dataclasses.replace(OFF, blur=1.0, blur_sigma=(2.0, 4.0))
    assert worst_difference(config, photo_like(8, 3, (8, 8)), kernel=15) < 1e-5
    ImagePipeline(config, channels=3, size=(1, 1))(torch.rand(2, 3, 1, 1), 2)


def test_hue_turns_every_colour_of_the_cube_as_torchvision_does() -> None:
    """All sectors, ties between channels and both ends, which random pixels seldom hit."""
    steps = torch.linspace(0, 1, 11)
    cube = torch.cartesian_prod(steps, steps, steps).T.contiguous()
    turns = torch.linspace(-0.5, 0.5, 21)
    turned = turn_hue(cube.expand(21, 3, -1), turns)
    for view, turn in zip(turned, turns.tolist(), strict=True):
        torch.testing.assert_close(view, TF.adjust_hue(cube[:, None], turn)[:, 0], rtol=0, atol=1e-5)


def test_float_images_are_taken_as_they_are() -> None:
    images = photo_like(8, 3, (32, 32))
    pipeline = ImagePipeline(ImageViews(), channels=3, size=(32, 32))
    drawn = pipeline.draw(8, images.device)
    as_float = images.float() / 255
    torch.testing.assert_close(pipeline.transform(images, drawn), pipeline.transform(as_float, drawn), rtol=0, atol=0)
    torch.testing.assert_close(as_float, images.float() / 255, rtol=0, atol=0)


def test_plain_view_is_only_normalised() -> None:
    images = photo_like(4, 3, (32, 32))
    pipeline = ImagePipeline(ImageViews(), channels=3, size=(32, 32))
    expected = TF.normalize(images.float() / 255, list(IMAGENET_MEAN), list(IMAGENET_STD))
    torch.testing.assert_close(pipeline.plain(images), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        ImagePipeline(OFF, channels=3, size=(32, 32))(images, 1)[:, 0], expected, rtol=0, atol=1e-5
    )
