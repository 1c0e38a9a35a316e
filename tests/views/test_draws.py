"""The drawn parameters have the distributions that the configuration names."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from torch import Tensor
from torchvision.transforms import RandomResizedCrop

from icone.config import ImageViews, VolumeViews
from icone.views.image import ImageParameters, ImagePipeline
from icone.views.volume import VolumeParameters, VolumePipeline

COUNT = 20_000
SIGMAS = 5.0  # a right pipeline fails one such comparison in two million
CPU = torch.device("cpu")


def image_draws(config: ImageViews, size: tuple[int, int] = (224, 224), channels: int = 3) -> ImageParameters:
    torch.manual_seed(0)
    return ImagePipeline(config, channels=channels, size=size).draw(COUNT, CPU)


def volume_draws(config: VolumeViews, size: tuple[int, int, int]) -> VolumeParameters:
    torch.manual_seed(0)
    return VolumePipeline(config, channels=1, size=size).draw(COUNT, CPU)


def assert_share(happened: Tensor, probability: float) -> None:
    """The share of True is the probability, up to chance."""
    spread = math.sqrt(probability * (1 - probability) / len(happened))
    assert abs(happened.double().mean().item() - probability) <= SIGMAS * spread


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    """Kolmogorov–Smirnov: the values fill [low, high] evenly."""
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    ordered = ((values.double().sort().values - low) / (high - low)).clamp(0, 1)
    expected = (torch.arange(len(ordered)) + 0.5) / len(ordered)
    assert (ordered - expected).abs().max() < 2.7 / math.sqrt(len(ordered))  # p about 1e-6


def assert_same_distribution(one: Tensor, other: Tensor) -> None:
    """Kolmogorov–Smirnov for two samples."""
    points = torch.cat([one, other]).unique()
    shares = [torch.searchsorted(x.sort().values, points, right=True) / len(x) for x in (one, other)]
    limit = 2.7 * math.sqrt(1 / len(one) + 1 / len(other))
    assert (shares[0] - shares[1]).abs().max() < limit


def test_crop_area_and_ratio() -> None:
    """Small crops always fit, so area is uniform and ratio log-uniform over the whole range."""
    drawn = image_draws(ImageViews(crop_scale=(0.2, 0.5)), (1000, 1000))
    height, width = drawn.extent.double().unbind(1)
    assert_uniform(height * width / 1e6, 0.2 - 1e-3, 0.5 + 1e-3)
    assert_uniform((width / height).log(), math.log(3 / 4) - 3e-3, math.log(4 / 3) + 3e-3)


@pytest.mark.parametrize(
    ("size", "config"),
    [
        ((224, 224), ImageViews()),
        ((28, 28), ImageViews()),
        ((30, 50), ImageViews(crop_scale=(0.5, 1.0))),
        ((50, 30), ImageViews(crop_scale=(0.3, 1.0), crop_ratio=(0.5, 3.0))),
        ((32, 32), ImageViews(crop_scale=(0.9, 1.0), crop_ratio=(0.4, 2.5))),
        ((6, 6), ImageViews(crop_scale=(0.001, 0.03))),
    ],
    ids=str,
)
def test_crops_are_distributed_as_torchvision_draws_them(size: tuple[int, int], config: ImageViews) -> None:
    drawn = image_draws(config, size)
    ours = torch.cat([drawn.start, drawn.extent], dim=1)
    image, scale, ratio = torch.empty(3, *size), list(config.crop_scale), list(config.crop_ratio)
    theirs = torch.tensor([RandomResizedCrop.get_params(image, scale, ratio) for _ in range(3000)]).float()
    top, left, height, width = 0, 1, 2, 3
    for boxes in (ours, theirs):
        assert (boxes[:, top] + boxes[:, height]).max() <= size[0]
    for column in (top, left, height, width):
        assert_same_distribution(ours[:, column], theirs[:, column])
    assert_same_distribution(ours[:, height] * ours[:, width], theirs[:, height] * theirs[:, width])
    assert_same_distribution(ours[:, width] / ours[:, height], theirs[:, width] / theirs[:, height])


@pytest.mark.parametrize("size", [(20, 64), (64, 20), (21, 65)])
def test_where_no_box_fits_the_central_one_is_taken(size: tuple[int, int]) -> None:
    drawn = image_draws(ImageViews(crop_scale=(0.9, 1.0)), size)
    box = RandomResizedCrop.get_params(torch.empty(3, *size), [0.9, 1.0], [3 / 4, 4 / 3])
    ours = torch.cat([drawn.start, drawn.extent], dim=1)
    assert torch.equal(ours, torch.tensor(box).float().expand(COUNT, 4))


def test_ratios_that_no_box_can_have_still_give_a_pixel() -> None:
    drawn = image_draws(ImageViews(crop_ratio=(100.0, 200.0)), (20, 20))
    assert torch.equal(drawn.extent, torch.tensor([1.0, 20.0]).expand(COUNT, 2))


def test_crop_turned_off_keeps_everything() -> None:
    drawn = image_draws(ImageViews(crop_scale=(1, 1)), (37, 91))
    assert torch.equal(drawn.start, torch.zeros(COUNT, 2))
    assert torch.equal(drawn.extent, torch.tensor([37.0, 91.0]).expand(COUNT, 2))


def test_image_probabilities() -> None:
    drawn = image_draws(ImageViews(flip=0.3, vertical_flip=0.7, jitter=0.8, grayscale=0.2, blur=0.6))
    assert_share(drawn.flipped[:, 1], 0.3)
    assert_share(drawn.flipped[:, 0], 0.7)
    assert_share(drawn.gray, 0.2)
    assert_share(drawn.sigma > 0, 0.6)
    neutral = torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert_share((drawn.factors != neutral).all(1), 0.8)
    assert_share((drawn.factors == neutral).all(1), 0.2)


def test_the_defaults_are_the_papers() -> None:
    drawn = image_draws(ImageViews(), (1000, 1000))
    assert_share(drawn.flipped[:, 1], 0.5)
    assert not drawn.flipped[:, 0].any()
    jittered = (drawn.factors != torch.tensor([1.0, 1.0, 1.0, 0.0])).all(1)
    assert_share(jittered, 0.8)
    for operation in range(3):
        assert_uniform(drawn.factors[jittered, operation], 0.6, 1.4)
    assert_uniform(drawn.factors[jittered, 3], -0.1, 0.1)
    assert_share(drawn.gray, 0.2)
    assert_uniform(drawn.sigma, 0.1, 2.0)
    assert ImageViews().blur_kernel == 23
    area = drawn.extent.prod(1) / 1e6
    assert area.min() < 0.201
    assert area.max() > 0.98


def test_factors_never_fall_below_zero() -> None:
    drawn = image_draws(ImageViews(jitter=1, brightness=2.5, hue=0.5))
    assert_uniform(drawn.factors[:, 0], 0.0, 3.5)
    assert_uniform(drawn.factors[:, 3], -0.5, 0.5)


@pytest.mark.parametrize(("channels", "operations"), [(3, (0, 1, 2, 3)), (1, (0, 1)), (7, (0, 1))])
def test_every_order_of_the_jitter_is_as_likely(channels: int, operations: tuple[int, ...]) -> None:
    order = image_draws(ImageViews(), channels=channels).order
    orders = list(permutations(operations))
    for expected in orders:
        assert_share((order == torch.tensor(expected)).all(1), 1 / len(orders))


def test_image_parameters_are_drawn_independently() -> None:
    """A number that two steps share would show as a correlation."""
    drawn = image_draws(ImageViews(flip=0.5, vertical_flip=0.5, jitter=1, blur=1, crop_scale=(0.2, 0.4)))
    room = 224 - drawn.extent
    columns = [
        drawn.extent.prod(1),
        drawn.extent[:, 1] / drawn.extent[:, 0],
        *((drawn.start + 0.5) / (room + 1)).unbind(1),
        *drawn.flipped.unbind(1),
        *drawn.factors.unbind(1),
        drawn.order[:, 0],
        drawn.gray,
        drawn.sigma,
    ]
    assert_uncorrelated(columns)
    drawn = image_draws(ImageViews(flip=0.5, vertical_flip=0.5, jitter=0.5, blur=0.5, grayscale=0.5))
    jittered = drawn.factors[:, 0] != 1
    assert_uncorrelated([*drawn.flipped.unbind(1), jittered, drawn.sigma > 0, drawn.gray])


def assert_uncorrelated(columns: list[Tensor]) -> None:
    correlation = torch.corrcoef(torch.stack([column.double() for column in columns]))
    off_diagonal = correlation - torch.eye(len(columns))
    assert off_diagonal.abs().max() < SIGMAS / math.sqrt(COUNT)


def test_volume_crops_are_a_uniform_share_at_a_uniform_place() -> None:
    drawn = volume_draws(VolumeViews(noise=0, blur=0), (1000, 1000, 1000))
    assert torch.equal(drawn.extent[:, 0], drawn.extent[:, 1])
    assert torch.equal(drawn.extent[:, 0], drawn.extent[:, 2])
    assert_uniform((drawn.extent[:, 0].double() / 1000) ** 3, 0.5 - 2e-3, 1 + 2e-3)
    small = volume_draws(VolumeViews(), (10, 10, 10))
    assert set(small.extent.unique().tolist()) == {8.0, 9.0, 10.0}
    for axis in range(3):
        start = small.start[small.extent[:, axis] == 8, axis]
        for place in (0, 1, 2):
            assert_share(start == place, 1 / 3)


def test_volume_crops_keep_the_shape_of_the_volume() -> None:
    drawn = volume_draws(VolumeViews(noise=0, blur=0), (300, 600, 900))
    assert (drawn.extent[:, 1] / drawn.extent[:, 0] - 2).abs().max() < 0.01
    assert (drawn.extent[:, 2] / drawn.extent[:, 0] - 3).abs().max() < 0.01


def test_the_volume_defaults_are_the_papers() -> None:
    drawn = volume_draws(VolumeViews(), (3, 3, 3))
    for axis in range(3):
        assert_share(drawn.flipped[:, axis], 0.5)
    assert_share(drawn.turn == 0, 0.5)
    for turn in range(1, 10):
        assert_share(drawn.turn == turn, 0.5 / 9)
    assert_uniform(drawn.shift, -0.1, 0.1)
    assert_uniform(drawn.contrast, 0.8, 1.2)
    assert set(drawn.noise_sigma.unique().tolist()) == {0.0, torch.tensor(0.1).item()}
    assert_share(drawn.noise_sigma > 0, 0.3)
    assert_share(drawn.blurred, 0.3)
    assert drawn.noise is not None
    assert abs(drawn.noise.std().item() - 1) < SIGMAS / math.sqrt(2 * drawn.noise.numel())
    assert abs(drawn.noise.mean().item()) < SIGMAS / math.sqrt(drawn.noise.numel())


def test_volume_probabilities() -> None:
    drawn = volume_draws(VolumeViews(flip=0.2, rotate=0.9, noise=0.6, blur=0.1), (2, 3, 3))
    for axis in range(3):
        assert_share(drawn.flipped[:, axis], 0.2)
    assert_share(drawn.turn == 0, 0.1)
    for turn in range(1, 4):
        assert_share(drawn.turn == turn, 0.3)
    assert drawn.turn.max() == 3
    assert_share(drawn.noise_sigma > 0, 0.6)
    assert_share(drawn.blurred, 0.1)


def test_volume_parameters_are_drawn_independently() -> None:
    drawn = volume_draws(VolumeViews(crop_scale=(0.1, 0.3)), (12, 12, 12))
    place = (drawn.start + 0.5) / (12 - drawn.extent + 1)
    columns = [
        drawn.extent[:, 0],
        *place.unbind(1),
        *drawn.flipped.unbind(1),
        drawn.turn == 0,
        torch.where(drawn.turn == 0, 5, drawn.turn),
        drawn.shift,
        drawn.contrast,
        drawn.noise_sigma,
        drawn.blurred,
    ]
    assert_uncorrelated(columns)
