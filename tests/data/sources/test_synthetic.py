"""Generated sets: stable, as specified, and neither trivial nor hopeless."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icone.config import DataConfig
from icone.data import Source, open_source
from icone.data.sources.synthetic_shapes import SHAPES
from icone.errors import InputError


def everything(source: Source) -> npt.NDArray[np.float32]:
    return np.stack([source.read(i).array for i in range(len(source))]).astype(np.float32)


@pytest.mark.parametrize(
    ("spec", "shape", "dtype", "classes", "count"),
    [
        ("synthetic:shapes", (1, 32, 32, 32), np.float32, 6, 420),
        ("synthetic:shapes@16x30", (1, 16, 16, 16), np.float32, 6, 30),
        ("synthetic:cells", (3, 64, 64), np.uint8, 5, 500),
        ("synthetic:cells@x7", (3, 64, 64), np.uint8, 5, 7),
        ("synthetic:cells@32", (3, 32, 32), np.uint8, 5, 500),
        ("synthetic:gaussians", (2,), np.float32, 5, 1750),
    ],
)
def test_what_is_made(spec: str, shape: tuple[int, ...], dtype: npt.DTypeLike, classes: int, count: int) -> None:
    source = open_source(spec, DataConfig())
    sample = source.read(3)
    assert (sample.array.shape, sample.array.dtype) == (shape, dtype)
    assert len(source) == count
    assert source.spatial_dims == len(shape) - 1
    assert source.size == (shape[-1] if len(shape) > 1 else None)
    assert source.labels is not None
    assert len(set(source.labels)) == classes


def test_samples_depend_on_seed_and_position_only() -> None:
    few, many = (open_source(f"synthetic:shapes@16x{n}", DataConfig()) for n in (10, 99))
    np.testing.assert_array_equal(few.read(7).array, many.read(7).array)
    test = open_source("synthetic:shapes@16x10", DataConfig(split="test"))
    assert not np.array_equal(few.read(7).array, test.read(7).array)
    assert not np.array_equal(few.read(1).array, few.read(7).array)
    assert few.fingerprint() != test.fingerprint()


def test_gaussians_are_the_papers() -> None:
    source = open_source("synthetic:gaussians", DataConfig())
    points, labels = everything(source), np.array(source.labels)
    for k in range(5):
        own = points[labels == str(k)]
        centre = 3 * np.array([np.cos(2 * np.pi * k / 5), np.sin(2 * np.pi * k / 5)])
        assert len(own) == 350
        np.testing.assert_allclose(own.mean(0), centre, atol=5 * 0.8 / np.sqrt(350))
        np.testing.assert_allclose(own.std(0), 0.8, atol=5 * 0.8 / np.sqrt(700))


@pytest.mark.parametrize("spec", ["synthetic:shapes@16x480", "synthetic:cells@32x400"])
def test_pixels_tell_something_but_not_all(spec: str) -> None:
    train, test = (open_source(spec, DataConfig(split=split)) for split in ("train", "test"))
    probe = make_pipeline(StandardScaler(), PCA(80), LogisticRegression(C=0.01, max_iter=1000))
    probe.fit(everything(train).reshape(len(train), -1), train.labels)
    accuracy = probe.score(everything(test).reshape(len(test), -1), test.labels)
    assert 1.2 / len(set(train.labels or ())) < accuracy < 0.8


def test_distances_have_the_right_sign() -> None:
    origin, far = np.zeros((3, 1), np.float32), np.full((3, 1), 9, np.float32)
    rng = np.random.default_rng(0)
    assert all(shape(far, rng)[0] > 0 for shape in SHAPES.values())
    inside = {name for name, shape in SHAPES.items() if shape(origin, rng)[0] < 0}
    assert inside == {"box", "branches", "ellipsoid"}


def test_shapes_are_made_quickly() -> None:
    source = open_source("synthetic:shapes@32x50", DataConfig())
    start = time.perf_counter()
    everything(source)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("synthetic:shape", "did you mean shapes"),
        ("synthetic:shapes@big", "write it like synthetic:shapes@32x400"),
        ("synthetic:shapes@4", "at least 8, got 4"),
        ("synthetic:shapes@x0", "at least one sample"),
        ("synthetic:gaussians@32", "points without a size"),
    ],
)
def test_bad_names(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(spec, DataConfig())
