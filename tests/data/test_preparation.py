"""Size, channels and intensities against values worked out by hand or by another library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from icone.config import DataConfig
from icone.data import Facts, Preparation, Sample
from icone.data.preparation import centre, resize
from icone.errors import InputError

RNG = np.random.default_rng(0)


def plain(**changes: Any) -> Preparation:
    base: dict[str, Any] = {"spatial_dims": 2, "channels": 1, "size": (8, 8), "fit": "stretch", "spacing": None}
    return Preparation(**{**base, "low": 0.0, "high": 255.0, "dtype": "uint8", **changes})


def facts_of(*arrays: npt.NDArray[Any]) -> list[Facts]:
    return [
        Facts(i, a.shape, a.dtype.name, None, float(a.min()), float(a.max()), a.ravel().astype(np.float32))
        for i, a in enumerate(arrays)
    ]


def test_8_bit_of_the_right_size_is_untouched() -> None:
    array = RNG.permutation(256).astype(np.uint8).reshape(1, 16, 16)
    prepared = plain(size=(16, 16))(Sample(array))
    assert prepared.dtype == torch.uint8
    np.testing.assert_array_equal(prepared.numpy(), array)


def test_images_shrink_like_pillow() -> None:
    array = RNG.integers(0, 256, (40, 50), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(array).resize((12, 8), Image.Resampling.BILINEAR))
    prepared = plain(size=(8, 12))(Sample(array[None]))
    assert np.abs(prepared[0].numpy().astype(int) - expected).max() <= 1


def test_volumes_grow_trilinearly() -> None:
    x = torch.rand(2, 3, 5, 6, 7)
    expected = F.interpolate(x, size=(9, 8, 10), mode="trilinear")
    torch.testing.assert_close(resize(x, (9, 8, 10)), expected)


def test_volumes_shrink_with_a_triangle_filter() -> None:
    x = torch.rand(1, 2, 12, 9, 20, dtype=torch.float64)
    size = (5, 9, 7)
    expected = x
    for axis, n in enumerate(size):
        weights = triangle(x.shape[2 + axis], n)
        expected = torch.movedim(torch.tensordot(expected, weights, dims=([2 + axis], [1])), -1, 2 + axis)
    torch.testing.assert_close(resize(x, size), expected, atol=1e-6, rtol=1e-6)


def triangle(have: int, want: int) -> Tensor:
    """Weights (want, have) of a tent as wide as two output pixels (of two input pixels when growing)."""
    scale = max(have / want, 1.0)
    places = (torch.arange(want, dtype=torch.float64) + 0.5) * have / want
    distance = (torch.arange(have, dtype=torch.float64) + 0.5 - places[:, None]).abs() / scale
    weights = (1 - distance).clamp(min=0)
    return weights / weights.sum(dim=1, keepdim=True)


def test_pad_keeps_proportions() -> None:
    array = np.full((1, 10, 20), 255, np.uint8)
    prepared = plain(fit="pad", size=(40, 40))(Sample(array))[0]
    assert (prepared[10:30] == 255).all()
    assert (prepared[:10] == 0).all()
    assert (prepared[30:] == 0).all()


def test_pad_keeps_physical_proportions() -> None:
    ones = np.ones((1, 10, 10, 10), np.float32)
    prepare = plain(spatial_dims=3, size=(30, 30, 30), fit="pad", low=0.0, high=1.0, dtype="float32")
    filled = prepare(Sample(ones, (3.0, 1.0, 1.0)))[0] == 1
    assert filled.any(2).any(1).sum() == 30
    assert filled.any(2).any(0).sum() == 10
    assert filled.any(1).any(0).sum() == 10
    assert prepare(Sample(ones))[0].min() == 1


def test_padding_is_the_low_value() -> None:
    prepared = plain(fit="pad", low=-1000.0, high=1000.0, dtype="float32")(Sample(np.full((1, 4, 8), 0.0)))
    assert prepared[0, :2].eq(0).all()
    assert prepared[0, 2:6].eq(0.5).all()


def test_spacing_resamples_then_crops_and_pads() -> None:
    prepare = plain(spatial_dims=3, size=(8, 8, 8), fit="pad", spacing=2.0, low=0.0, high=1.0, dtype="float32")
    filled = prepare(Sample(np.ones((1, 4, 4, 30), np.float32), (2.0, 3.0, 1.0)))[0] == 1
    assert filled.any(2).any(1).tolist() == [False] * 2 + [True] * 4 + [False] * 2
    assert filled.any(2).any(0).tolist() == [False] + [True] * 6 + [False]
    assert filled.any(1).any(0).all()
    with pytest.raises(InputError, match="does not say its own"):
        prepare(Sample(np.ones((1, 4, 4, 4), np.float32)))


def test_centre_crops_and_pads_odd_margins() -> None:
    x = torch.arange(1.0, 6.0).reshape(1, 1, 1, 5)
    assert centre(x, (1, 3)).flatten().tolist() == [2, 3, 4]
    assert centre(x, (1, 8)).flatten().tolist() == [0, 1, 2, 3, 4, 5, 0, 0]


def test_intensities_are_clipped_before_resizing() -> None:
    array = np.zeros((1, 2, 2), np.float32)
    array[0, 0, 0] = 1e6  # a hot pixel must not spread
    prepared = plain(size=(1, 1), low=0.0, high=1.0, dtype="float32")(Sample(array))
    assert prepared.item() == pytest.approx(0.25)


def test_batch_and_sample_agree() -> None:
    array = RNG.normal(size=(2, 3, 9, 11)).astype(np.float32)
    prepare = plain(channels=3, low=-1.0, high=2.0, dtype="float32", fit="pad")
    torch.testing.assert_close(prepare.batch(torch.from_numpy(array))[1], prepare(Sample(array[1])))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float64, ">f4", ">i2", np.float16])
def test_every_type_of_number(dtype: npt.DTypeLike) -> None:
    array = np.arange(64).reshape(1, 8, 8).astype(dtype)
    prepared = plain(low=0.0, high=63.0, dtype="float32")(Sample(array))
    np.testing.assert_allclose(prepared.numpy(), np.arange(64).reshape(1, 8, 8) / 63, atol=1e-6)


def test_colour_conversions() -> None:
    rgb = RNG.integers(0, 256, (3, 8, 8), dtype=np.uint8)
    luma = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    to_gray, to_rgb = plain(colour="gray"), plain(channels=3, colour="rgb")
    assert np.abs(to_gray(Sample(rgb))[0].numpy() - luma).max() <= 0.51
    np.testing.assert_array_equal(to_gray(Sample(rgb[:1])), rgb[:1])
    np.testing.assert_array_equal(to_rgb(Sample(rgb[:1])), rgb[[0, 0, 0]])
    np.testing.assert_array_equal(to_rgb(Sample(rgb)), rgb)
    with pytest.raises(InputError, match=r"expected 1 channels, got 3 \(--channels gray or rgb"):
        plain()(Sample(rgb))
    with pytest.raises(InputError, match=r"expected 3 channels, got 2$"):
        to_rgb(Sample(rgb[:2]))


def test_wrong_dimensions() -> None:
    with pytest.raises(InputError, match=r"expected 2D images \(C, H, W\), got the shape \(1, 2, 3, 4\)"):
        plain()(Sample(np.zeros((1, 2, 3, 4))))


def test_json_round_trip() -> None:
    for prepare in (plain(), plain(low=None, high=None, dtype="float32", colour="rgb", channels=3)):
        assert Preparation.from_json(json.loads(json.dumps(prepare.to_json()))) == prepare


def test_infer_8_bit_images() -> None:
    arrays = [RNG.integers(0, 99, (3, 20, 30), dtype=np.uint8) for _ in range(3)]
    expected = plain(channels=3, size=(224, 224))
    assert Preparation.infer(facts_of(*arrays), DataConfig()) == expected
    assert expected.nbytes == 3 * 224 * 224


def test_infer_sizes_and_fit() -> None:
    flat, thick = facts_of(np.ones((1, 4, 4), np.uint8)), facts_of(np.ones((1, 4, 4, 4), np.uint8))
    assert Preparation.infer(thick, DataConfig()).size == (64, 64, 64)
    assert Preparation.infer(thick, DataConfig(), size=32).size == (32, 32, 32)
    assert Preparation.infer(thick, DataConfig(size=16), size=32).size == (16, 16, 16)
    assert [Preparation.infer(f, DataConfig()).fit for f in (flat, thick)] == ["stretch", "pad"]
    assert [Preparation.infer(f, DataConfig(fit="pad")).fit for f in (flat, thick)] == ["pad", "pad"]
    assert [Preparation.infer(f, DataConfig(fit="stretch")).fit for f in (flat, thick)] == ["stretch", "stretch"]


def test_infer_percentiles_over_the_data_set() -> None:
    arrays = [RNG.normal(k, 1, (1, 30, 30)).astype(np.float32) for k in range(4)]
    prepared = Preparation.infer(facts_of(*arrays), DataConfig())
    expected = np.percentile(np.stack(arrays), [0.5, 99.5])
    assert (prepared.low, prepared.high) == pytest.approx(expected)
    assert prepared.dtype == "float32"
    assert prepared.nbytes == 4 * 224 * 224


def test_infer_explicit_modes() -> None:
    eight = facts_of(RNG.integers(5, 200, (1, 30, 30), dtype=np.uint8))
    sixteen = facts_of(RNG.integers(5, 200, (1, 30, 30)).astype(np.int16))
    prepared = Preparation.infer(eight, DataConfig(intensity="percentile"))
    assert prepared.dtype == "float32"
    assert prepared.low is not None
    assert prepared.low >= 5
    prepared = Preparation.infer(sixteen, DataConfig(intensity="range"))
    assert (prepared.low, prepared.high, prepared.dtype) == (-(2**15), 2**15 - 1, "float32")
    with pytest.raises(InputError, match="one integer type, got int16, uint8; use percentile"):
        Preparation.infer(eight + sixteen, DataConfig(intensity="range"))
    with pytest.raises(InputError, match="one integer type, got float32"):
        Preparation.infer(facts_of(np.ones((1, 2, 2), np.float32)), DataConfig(intensity="range"))


def test_infer_sparse_data_takes_the_whole_range() -> None:
    array = np.zeros((1, 50, 50), np.float32)
    array[0, 0, 0] = 7
    prepared = Preparation.infer(facts_of(array, array), DataConfig())
    assert (prepared.low, prepared.high) == (0, 7)


def test_samples_without_a_common_unit_are_scaled_one_by_one() -> None:
    scan = RNG.uniform(10, 900, (1, 20, 20, 20)).astype(np.float32)
    scans = [scan * factor for factor in [1] * 18 + [300]] + [(scan / 8).astype(np.uint8)]
    prepared = Preparation.infer(facts_of(*scans), DataConfig(size=20))
    assert prepared.low is prepared.high is None
    results = [prepared(Sample(s)) for s in scans]
    for result in results:
        torch.testing.assert_close(result, results[0], atol=0.02, rtol=0)
    low, high = np.percentile(scan, [0.5, 99.5])
    expected = np.clip((scan - low) / (high - low), 0, 1)
    np.testing.assert_allclose(results[0].numpy(), expected, atol=1e-3)
    kept = Preparation.infer(facts_of(*scans), DataConfig(intensity="percentile"))
    assert kept.low is not None
    similar = Preparation.infer(facts_of(*scans[:18]), DataConfig())
    assert similar.low is not None


def test_scaling_one_by_one_survives_odd_samples() -> None:
    prepare = plain(low=None, high=None, dtype="float32", size=(30, 30))
    sparse = np.zeros((1, 30, 30), np.float32)
    sparse[0, 3, 4] = 5
    assert prepare(Sample(sparse)).max() == 1
    assert prepare(Sample(np.full((1, 30, 30), 3.0))).eq(0).all()


def test_points_stay_as_they_are() -> None:
    points = [RNG.normal(size=2).astype(np.float32) * 100 for _ in range(3)]
    prepare = Preparation.infer(facts_of(*points), DataConfig())
    assert (prepare.spatial_dims, prepare.channels, prepare.size, prepare.nbytes) == (0, 2, (), 8)
    np.testing.assert_array_equal(prepare(Sample(points[0])).numpy(), points[0])


def test_spacing_is_for_volumes() -> None:
    with pytest.raises(InputError, match="--spacing is a positive number for volumes"):
        Preparation.infer(facts_of(np.ones((1, 4, 4))), DataConfig(spacing=1.0))
    with pytest.raises(InputError, match="--spacing is a positive number for volumes"):
        Preparation.infer(facts_of(np.ones((1, 4, 4, 4))), DataConfig(spacing=0.0))
