"""Runs with --crop: resumed bit for bit, embedded by windows, with every way to cut a batch."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import icone
from icone.errors import InterruptedRun
from icone.methods import METHODS
from icone.report.samples import read_samples
from icone.report.thumbnails import picture, picture_of
from icone.run import Run
from icone.terminal import Terminal
from icone.views import CropViews, ImagePipeline
from icone.views.base import Views

SHAPES = [(30, 40), (52, 35), (14, 60), (33, 33), (20, 26), (41, 18)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for number, shape in enumerate(SHAPES):
        image = np.random.default_rng(number).normal(size=shape).cumsum(axis=number % 2)
        np.save(folder / f"{number}.npy", image.astype(np.float32))
    return folder


def pretrained(folder: Path, out: Path, **settings: Any) -> Run:
    chosen = {"crop": 16, "encoder": "test_resnet", "epochs": 2, "device": "cpu", "probe_every": 0, **settings}
    return icone.pretrain(str(folder), out=out, console=Terminal(file=io.StringIO()), **chosen)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return run.trained_weights()


def same(one: Run, other: Run) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_resumed_run_ends_bit_for_bit(folder: Path, tmp_path: Path, stop_after: Callable[[int], None]) -> None:
    whole = pretrained(folder, tmp_path / "whole", batch_size=2)
    stop_after(4)
    with pytest.raises(InterruptedRun):
        pretrained(folder, tmp_path / "parts", batch_size=2)
    assert same(whole, pretrained(folder, tmp_path / "parts", batch_size=2, resume=True))
    assert all(0 <= row["waiting"] <= 1 for row in whole.history)


def test_features_are_the_mean_over_windows(folder: Path, tmp_path: Path) -> None:
    run = pretrained(folder, tmp_path / "run")
    encoder = icone.load_encoder(run)
    table = icone.embed(run, console=Terminal(file=io.StringIO()))
    features = table.filter(regex=r"^f\d+$").to_numpy()
    for number in range(len(SHAPES)):
        image = np.load(folder / f"{number}.npy")
        with torch.no_grad():
            own = encoder(image[None, None])[0]
            whole = encoder.preparation.batch(image[None, None])
            size = [max(n, 16) for n in image.shape]
            whole = icone.data.prepare.centre(whole, tuple(size))
            starts = [np.round(np.linspace(0, n - 16, -(-n // 16))).astype(int) for n in size]
            windows = torch.cat([whole[:, :, y : y + 16, x : x + 16] for y in starts[0] for x in starts[1]])
            expected = encoder.encoder(encoder.views.plain(windows)).mean(dim=0)
        torch.testing.assert_close(own, expected)
        np.testing.assert_allclose(features[number], expected.numpy(), atol=1e-3)


def test_views_are_those_of_the_pipeline(no_host_traffic: type) -> None:
    config = icone.config.ImageViews(crop_scale=(1, 1))
    pipeline = ImagePipeline(config, channels=1, size=(16, 16))
    views, crops = CropViews(pipeline, 0.3), torch.rand(3, 2, 1, 16, 16)

    def made(make: Callable[[], torch.Tensor]) -> torch.Tensor:
        torch.manual_seed(0)
        return make()

    with no_host_traffic():
        found = made(lambda: views(crops, 2))
    expected = made(lambda: pipeline.augment(crops.flatten(0, 1)))
    assert torch.equal(found.flatten(0, 1), expected)
    assert torch.equal(made(lambda: views.in_parts(crops, 2, 1)), found)
    assert views.draws_first
    assert torch.equal(made(lambda: views(crops[1:], 2, (1, 3, 3))), found[1:])  # the share of a rank
    assert views.describe()["left_out"]["crop"] == "set to 1 1"  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_trains_on_crops(folder: Path, tmp_path: Path, method: str) -> None:
    if METHODS[method].needs_labels:
        pytest.skip("it needs labels, which change nothing about crops")
    settings = {"encoder": "test_vit", "crop": 32} if method in ("mae", "simmim") else {}
    run = pretrained(folder, tmp_path / "run", method=method, batch_size=3, epochs=1, **settings)
    assert np.isfinite(run.history[0]["loss"])


def test_micro_batches_and_own_views_and_evaluation(folder: Path, tmp_path: Path) -> None:
    run = pretrained(
        folder, tmp_path / "run", batch_size=4, micro_batch=2, accumulate=2, views=lambda x: x.flip(1), probe_every=1
    )
    assert "geometry" in run.history[-1]
    labels = [str(number % 2) for number in range(len(SHAPES))]
    run = pretrained(folder, tmp_path / "other", labels=labels, crop=(16, 8), num_views=3)
    assert isinstance(icone.load_encoder(run).views, Views)
    found = icone.evaluate(run, labels=labels, console=Terminal(file=io.StringIO()))
    assert found is not None


def test_pages_show_the_crop_in_the_middle(folder: Path, tmp_path: Path) -> None:
    run = pretrained(folder, tmp_path / "run", epochs=1)
    icone.evaluate(run, geometry_instances=4, untrained=False, console=Terminal(file=io.StringIO()))
    shown = picture_of(run, read_samples(run), range(len(SHAPES)), edge=16)
    preparation = icone.load_encoder(run).preparation
    for number in range(len(SHAPES)):
        whole = preparation.batch(np.load(folder / f"{number}.npy")[None, None])
        middle = icone.data.prepare.centre(whole, (16, 16))[0]
        np.testing.assert_array_equal(shown[number], picture(middle, 16))
        assert middle.float().std() > 0
    assert icone.report(run, projections=["pca"], console=Terminal(file=io.StringIO())).is_file()
