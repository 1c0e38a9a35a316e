"""Near-duplicates among small simple pictures, where most are alike, and among pictures that are not."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from icone.evaluation.duplicates import Found, find_near_duplicates, least_correlation, small_picture

Pixels = npt.NDArray[np.uint8]
RNG = np.random.default_rng(0)
DIGITS: Pixels = (load_digits().images / 16 * 255).round().astype(np.uint8)
"""1,797 digits of 8 x 8 pixels, no two of which are the same."""


def waves(count: int, edge: int = 32, dims: int = 2) -> Pixels:
    """Smooth pictures or volumes that differ much: a few waves each."""
    axes = np.arange(edge) * 32 / edge / 3
    total = np.zeros((count, *(edge,) * dims))
    for _ in range(3):
        product = np.ones((count, *(1,) * dims))
        for axis in range(dims):
            shape = [count, *(edge if axis == k else 1 for k in range(dims))]
            product = product * np.sin(RNG.normal(size=(count, 1)) * axes + RNG.normal(size=(count, 1))).reshape(shape)
        total += product
    return (120 + 35 * total).clip(0, 255).astype(np.uint8)


def jpeg(picture: Pixels) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=90)
    return np.asarray(Image.open(file))


def found_among(pixels: Pixels, directions: int = 6) -> Found:
    """What is found by an encoder that unites what looks alike: it keeps a few directions of the pixels."""
    features = PCA(directions, random_state=0).fit_transform(pixels.reshape(len(pixels), -1).astype(np.float32))
    small = np.stack([small_picture(torch.from_numpy(np.array(picture))[None] / 255) for picture in pixels])
    return find_near_duplicates(features, small)


CHANGES: dict[str, Callable[[Pixels], Pixels]] = {
    "copy": lambda picture: picture,
    "noise": lambda picture: (picture + RNG.normal(0, 5, picture.shape)).clip(0, 255).astype(np.uint8),
    "contrast": lambda picture: (0.95 * picture + 8).astype(np.uint8),
    "compression": jpeg,
}


def test_digits_that_differ_are_no_duplicates_however_the_encoder_unites_them() -> None:
    found = found_among(DIGITS)
    assert found.duplicates == []
    assert found.least_correlation is not None
    assert found.least_correlation > 0.99


@pytest.mark.parametrize("change", CHANGES)
def test_digits_that_are_there_twice_are_found_and_no_others(change: str) -> None:
    chosen = RNG.choice(len(DIGITS), 12, replace=False)
    again = np.stack([CHANGES[change](DIGITS[row]) for row in chosen])
    found = found_among(np.concatenate([DIGITS, again])).duplicates
    assert {(pair.first, pair.second) for pair in found} == {(int(row), 1797 + k) for k, row in enumerate(chosen)}
    alike = [round(pair.correlation, 4) for pair in found]
    assert alike == sorted(alike, reverse=True)


def test_a_set_in_which_all_are_there_twice() -> None:
    pictures = waves(40)
    found = found_among(np.concatenate([pictures, np.stack([jpeg(picture) for picture in pictures])])).duplicates
    assert {(pair.first, pair.second) for pair in found} == {(k, 40 + k) for k in range(40)}


def test_pictures_that_differ_much_may_be_shifted_a_little() -> None:
    large = waves(60, 65)
    pictures, shifted = large[:, :, :-1], large[:5, :, 1:]
    found = found_among(np.concatenate([pictures, shifted])).duplicates
    assert {(pair.first, pair.second) for pair in found} == {(k, 60 + k) for k in range(5)}


def test_volumes_are_compared_as_a_whole() -> None:
    """Two volumes with the same centre slices that differ elsewhere are no copies."""
    volumes = waves(30, 16, dims=3)
    other, centre = volumes[4].copy(), 8
    outside = np.ones((16, 16, 16), bool)
    outside[centre], outside[:, centre], outside[:, :, centre] = False, False, False
    other[outside] = volumes[9][outside]
    found = found_among(np.concatenate([volumes, volumes[:1], other[None]])).duplicates
    assert [(pair.first, pair.second) for pair in found] == [(0, 30)]


def test_the_small_picture_is_that_of_a_loop_and_knows_neither_brightness_nor_contrast() -> None:
    image = torch.rand(3, 32, 48)
    gray = image.mean(0).double().numpy()
    cells = np.array(
        [[gray[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].mean() for j in range(16)] for i in range(16)]
    ).ravel()
    wanted = (cells - cells.mean()) / np.sqrt(((cells - cells.mean()) ** 2).sum())
    np.testing.assert_allclose(small_picture(image), wanted, atol=1e-5)
    np.testing.assert_allclose(small_picture(0.5 * image + 0.2), small_picture(image), atol=1e-5)
    assert not small_picture(torch.full((1, 8, 8), 0.7)).any()


def test_the_limit_lies_between_a_copy_in_any_set_and_a_copy_in_none() -> None:
    same = np.stack([small_picture(torch.from_numpy(waves(1)[0])[None])] * 5)
    noise = RNG.normal(size=(50, 256)).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    assert least_correlation(same) == pytest.approx(0.998)
    assert least_correlation(noise) == pytest.approx(0.96)


def test_without_pictures_there_are_outliers_only() -> None:
    features = np.concatenate([RNG.normal(size=(60, 4)), [[40.0, 40, 40, 40]]])
    found = find_near_duplicates(np.concatenate([features, features[:1]]), None)
    assert found.duplicates == []
    assert found.least_correlation is None
    assert [outlier.row for outlier in found.outliers] == [60]
