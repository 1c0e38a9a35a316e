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
from icone.data.prepare import centre, resize
from icone.errors import InputError

RNG = np.random.default_rng(0)


def plain(**changes: Any) -> Preparation:
    base: dict[str, Any] = {"spatial_dims": 2, "channels": 1, "size": (8, 8), "fit": "stretch", "spacing": None}
    settings = {**base, "low": 0.0, "high": 255.0, "dtype": "uint8", **changes}
    for name in ("low", "high"):  # one value for all channels
        if isinstance(settings[name], float):
            settings[name] = (settings[name],) * settings["channels"]
    return Preparation(**settings)


def facts_of(
    *arrays: npt.NDArray[Any], spacing: tuple[float, ...] | None = None, colour: bool | None = None
) -> list[Facts]:
    def fact(position: int, array: npt.NDArray[Any]) -> Facts:
        values = array.reshape(len(array), -1).astype(np.float32)
        low, high = (tuple(map(float, end)) for end in (values.min(1), values.max(1)))
        return Facts(position, array.shape, array.dtype.name, spacing, colour, low, high, values)

    return [fact(position, array) for position, array in enumerate(arrays)]


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


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_raw_samples_with_nan_are_refused(value: float, dtype: str) -> None:
    """Stored as 8 bits, NaN became 0 without a word; files with it are refused too."""
    samples = RNG.uniform(0, 255, (3, 1, 8, 8)).astype(np.float32)
    samples[1, 0, 2, 3] = value
    with pytest.raises(InputError, match="1 of 3 samples hold NaN or infinite values, the first is number 1"):
        plain(dtype=dtype).batch(samples)


def test_values_in_another_unit_are_told() -> None:
    samples = RNG.uniform(0, 1, (3, 1, 8, 8)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"the samples reach 0\.9.*, and those of the training 255: give raw values"):
        plain().batch(samples)
    plain(low=0.0, high=1.0).batch(samples)
    plain().batch((255 * samples).astype(np.uint8))


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
    with pytest.raises(InputError, match=r"expected 1 channel along axis 1, .* \(1, 3, 8, 8\) \(channels=.gray. or"):
        plain()(Sample(rgb))
    with pytest.raises(InputError, match=r"expected 3 channels along axis 1, \(B, 3, H, W\), got .* \(1, 2, 8, 8\)$"):
        to_rgb(Sample(rgb[:2]))


@pytest.mark.parametrize(
    ("settings", "shape", "wanted"),
    [
        ({"channels": 5}, (2, 8, 8, 5), "(B, 5, H, W)"),
        ({"colour": "gray"}, (2, 8, 8, 3), "(B, 1, H, W)"),
        ({"colour": "rgb", "channels": 3}, (2, 8, 8, 1), "(B, 3, H, W)"),
        ({"spatial_dims": 3, "size": (8, 8, 8), "channels": 2}, (2, 4, 8, 8, 2), "(B, 2, D, H, W)"),
    ],
)
def test_channels_that_are_last_are_told(settings: dict[str, Any], shape: tuple[int, ...], wanted: str) -> None:
    samples = np.full(shape, 100.0)
    with pytest.raises(InputError) as refused:
        plain(**settings).batch(samples)
    said = str(refused.value)
    assert f"along axis 1, {wanted}, got the shape {shape}: where the channels are last, numpy.moveaxis" in said
    assert plain(**settings).batch(np.moveaxis(samples, -1, 1)).shape[1] == plain(**settings).channels
    with pytest.raises(InputError, match="got the shape") as refused:
        plain(**settings).batch(np.full((2, 7, *shape[2:-1], 9), 100.0))
    assert "last" not in str(refused.value)


def test_wrong_dimensions() -> None:
    with pytest.raises(InputError, match=r"expected 2D images \(C, H, W\), got the shape \(1, 2, 3, 4\)"):
        plain()(Sample(np.zeros((1, 2, 3, 4))))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"low": None, "high": None, "dtype": "float32", "colour": "rgb", "channels": 3},
        {"low": (0.0, -1.5), "high": (1.0, 2.0), "channels": 2, "shares_range": True, "needs_spacing": True},
    ],
)
def test_json_round_trip(changes: dict[str, Any]) -> None:
    prepare = plain(**changes)
    assert Preparation.from_json(json.loads(json.dumps(prepare.to_json()))) == prepare


@pytest.mark.parametrize("ends", [(0.0, 255.0), (None, None)])
def test_runs_of_version_0_1_mean_what_they_meant(ends: tuple[float | None, float | None]) -> None:
    """One range for all channels; whether spacings decided anything is not known, so volumes must say theirs."""
    former = {
        "spatial_dims": 3, "channels": 2, "size": [8, 8, 8], "fit": "pad", "spacing": None,
        "low": ends[0], "high": ends[1], "dtype": "float32", "colour": "auto",
    }  # fmt: skip
    prepare, array = Preparation.from_json(former), RNG.uniform(0, 255, (2, 8, 8, 8)).astype(np.float32)
    array[1] /= 10
    flat = np.sort(array.ravel())
    low, high = (0, 255) if ends[0] is not None else (flat[round(0.005 * 1023)], flat[round(0.995 * 1023)])
    expected = np.clip((array - low) / (high - low), 0, 1)
    np.testing.assert_allclose(prepare(Sample(array)).numpy(), expected, atol=1e-6)
    assert prepare.needs_spacing
    assert not Preparation.from_json({**former, "fit": "stretch"}).needs_spacing


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("intensity", ["percentile", "sample"])
def test_colours_share_a_range_and_channels_do_not(intensity: Any, colour: bool) -> None:
    pixels = RNG.uniform(0, 1, (3, 8, 8)) * np.array([60000, 6000, 600])[:, None, None]
    facts = facts_of(pixels.astype(np.uint16), colour=colour)
    maxima = Preparation.infer(facts, DataConfig(size=8, intensity=intensity))(Sample(pixels)).amax((1, 2))
    np.testing.assert_allclose(maxima, [1, 0.1, 0.01] if colour else [1, 1, 1], rtol=0.2)


def test_channels_that_become_colours_share_a_range() -> None:
    pixels = (RNG.uniform(0, 1, (3, 8, 8)) * np.array([60000, 6000, 600])[:, None, None]).astype(np.uint16)
    prepare = Preparation.infer(facts_of(pixels, pixels[:1]), DataConfig(size=8, channels="rgb"))
    assert prepare.high is not None
    assert prepare.high == (prepare.high[0],) * 3


def test_one_rare_marker_does_not_decide_how_all_channels_are_scaled() -> None:
    """The second channel is bright in one sample of ten; the first has the same range in all."""
    arrays = [RNG.uniform(0, 100, (2, 8, 8)) * np.array([1, 1 if k else 500])[:, None, None] for k in range(10)]
    assert Preparation.infer(facts_of(*arrays), DataConfig()).low is not None
    wild = [array * 300.0**k for k, array in enumerate(arrays)]
    assert Preparation.infer(facts_of(*wild), DataConfig()).low is None


@pytest.mark.parametrize(
    ("spacing", "settings", "expected"),
    [
        (None, {}, False),
        ((1.5, 1.5, 1.5), {}, False),
        ((1.0, 1.0, 1.0000001), {}, False),
        ((1.0, 1.0, 2.0), {}, True),
        ((1.0, 1.0, 2.0), {"fit": "stretch"}, False),
        ((1.5, 1.5, 1.5), {"spacing": 1.0}, True),
    ],
)
def test_whether_the_spacing_matters(spacing: Any, settings: dict[str, Any], expected: bool) -> None:
    facts = facts_of(np.ones((1, 8, 8, 4)), spacing=spacing)
    assert Preparation.infer(facts, DataConfig(size=16, **settings)).needs_spacing is expected


def test_a_batch_takes_one_spacing_or_one_per_sample() -> None:
    prepare = plain(spatial_dims=3, size=(8, 8, 8), fit="pad", low=0.0, high=1.0, dtype="float32", needs_spacing=True)
    array, spacings = RNG.uniform(size=(2, 1, 8, 8, 4)).astype(np.float32), [(1.0, 1.0, 2.0), (1.0, 1.0, 1.0)]
    expected = [torch.stack([prepare(Sample(a, s)) for a, s in zip(array, rows, strict=True)]) for rows in (
        spacings, [spacings[0]] * 2)]  # fmt: skip
    for x in (array, torch.from_numpy(array)):
        for given in (spacings, np.array(spacings)):
            torch.testing.assert_close(prepare.batch(x, given), expected[0])
        torch.testing.assert_close(prepare.batch(x, spacings[0]), expected[1])


@pytest.mark.parametrize("spacing", [None, [None, None]])
def test_a_missing_spacing_is_refused_with_the_way_out(spacing: Any) -> None:
    array = np.full((2, 1, 4, 4, 4), 100, np.float32)
    settings = {"spatial_dims": 3, "size": (8, 8, 8), "fit": "pad"}
    assert plain(**settings).batch(array, spacing).shape == (2, 1, 8, 8, 8)
    with pytest.raises(InputError, match=r"spacing=\(…, …, …\), millimetres .* icone.data.read_sample\(path\)"):
        plain(**settings, needs_spacing=True).batch(array, spacing)


@pytest.mark.parametrize("spacing", [1.0, (1, 2), (1, 1, 0), (1, 1, np.nan), [(1, 1, 1)] * 3, [(1, 1, 1), None], "abc"])
def test_an_impossible_spacing_is_refused(spacing: Any) -> None:
    prepare = plain(spatial_dims=3, size=(8, 8, 8), fit="pad")
    with pytest.raises(InputError, match="spacing must be 3 positive numbers, or 3 for each of the 2 samples"):
        prepare.batch(np.ones((2, 1, 4, 4, 4)), spacing)


def test_a_batch_needs_all_its_axes() -> None:
    with pytest.raises(InputError, match=r"a batch \(B, …\) of 2D images \(C, H, W\), got the shape \(1, 8, 8\)"):
        plain().batch(np.ones((1, 8, 8)))
    with pytest.raises(InputError, match="at least one sample"):
        plain().batch(np.ones((0, 1, 8, 8)))


def test_masks_are_black_and_white_as_readers_give_them() -> None:
    mask = RNG.uniform(size=(1, 1, 8, 8)) > 0.5
    for x in (mask, torch.from_numpy(mask)):
        np.testing.assert_array_equal(plain().batch(x).numpy(), np.where(mask, 255, 0))


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
    assert [prepared.low, prepared.high] == [pytest.approx(end) for end in expected[:, None]]
    assert prepared.dtype == "float32"
    assert prepared.nbytes == 4 * 224 * 224


def test_infer_explicit_modes() -> None:
    eight = facts_of(RNG.integers(5, 200, (1, 30, 30), dtype=np.uint8))
    sixteen = facts_of(RNG.integers(5, 200, (1, 30, 30)).astype(np.int16))
    prepared = Preparation.infer(eight, DataConfig(intensity="percentile"))
    assert prepared.dtype == "float32"
    assert prepared.low is not None
    assert prepared.low[0] >= 5
    prepared = Preparation.infer(sixteen, DataConfig(intensity="range"))
    assert (prepared.low, prepared.high, prepared.dtype) == ((-(2.0**15),), (2.0**15 - 1,), "float32")
    with pytest.raises(InputError, match="one integer type, got int16, uint8; use percentile"):
        Preparation.infer(eight + sixteen, DataConfig(intensity="range"))
    with pytest.raises(InputError, match="one integer type, got float32"):
        Preparation.infer(facts_of(np.ones((1, 2, 2), np.float32)), DataConfig(intensity="range"))


def test_infer_sparse_data_takes_the_whole_range() -> None:
    array = np.zeros((1, 50, 50), np.float32)
    array[0, 0, 0] = 7
    prepared = Preparation.infer(facts_of(array, array), DataConfig())
    assert (prepared.low, prepared.high) == ((0.0,), (7.0,))


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
    with pytest.raises(InputError, match="spacing= is a positive number for volumes"):
        Preparation.infer(facts_of(np.ones((1, 4, 4))), DataConfig(spacing=1.0))
    with pytest.raises(InputError, match="spacing= is a positive number for volumes"):
        Preparation.infer(facts_of(np.ones((1, 4, 4, 4))), DataConfig(spacing=0.0))
