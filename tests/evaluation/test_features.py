"""Features of whole datasets: every sample once, in order, with the views of an instance kept together."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from rich.console import Console

from icone.api.embed import embed, load_encoder
from icone.api.evaluate import evaluate
from icone.api.pretrain import pretrain
from icone.config import PointViews
from icone.data import Dataset, Preparation, load_for_inference, read_sample
from icone.errors import InputError
from icone.evaluation.features import extract, extract_views
from icone.evaluation.geometry import alignment, rankme, standardize
from icone.run import Run

SAMPLES = 45  # three batches of evaluation, the last one short


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Points whose views are the points themselves."""
    return pretrain(
        f"synthetic:gaussians@x{SAMPLES}", out=tmp_path_factory.mktemp("runs") / "points", epochs=1, batch_size=9,
        point_views=PointViews(noise_sigma=0.0), device="cpu", console=silent(),
    )  # fmt: skip


def silent() -> Console:
    return Console(file=io.StringIO())


def samples(run: Run) -> Dataset:
    preparation = Preparation.from_json(run.record["data"]["preparation"])
    return load_for_inference(run.config.source, preparation, run.config)


def test_rankme_is_that_of_all_samples_not_of_the_first_batch(run: Run) -> None:
    figures = evaluate(run, device="cpu", console=silent())["trained"]
    with np.load(run.features_file) as saved:
        features = saved["features"]
    assert len(features) == SAMPLES
    assert figures["rankme"] == pytest.approx(rankme(standardize(features)))
    assert figures["rankme"] == pytest.approx(figures["effective_rank"], abs=1e-3)  # both of standardised features
    assert figures["rankme"] != pytest.approx(rankme(standardize(features[:16])), abs=1e-2)


def test_features_come_in_the_order_of_the_samples(run: Run) -> None:
    encoder, dataset = load_encoder(run), samples(run)
    one_by_one = [encoder.encode_prepared(dataset.images_at(torch.tensor([i]))).detach() for i in range(SAMPLES)]
    torch.testing.assert_close(torch.from_numpy(extract(encoder, dataset)), torch.cat(one_by_one))


def write_scans(folder: Path) -> Path:
    """Volumes of 32 x 32 x 16 voxels of 1 x 1 x 2 mm, stored with their first axis from right to left."""
    make: Any = nibabel.Nifti1Image
    folder.mkdir()
    for k in range(3):
        voxels = np.random.default_rng(k).normal(100, 30, (32, 32, 16)).astype(np.float32)
        nibabel.save(make(voxels, np.diag([-1.0, 1, 2, 1])), folder / f"{k}.nii.gz")
    return folder


def write_fluorescence(folder: Path) -> Path:
    """Images of four 16-bit channels of very different brightness."""
    folder.mkdir()
    for k in range(3):
        pixels = np.random.default_rng(k).uniform(0, 1, (20, 24, 4)) * [65535, 5992, 731, 229]
        tifffile.imwrite(folder / f"{k}.tif", pixels.astype(np.uint16))
    return folder


SMALL_3D = {"encoder": "resnet10_3d", "width": 0.125}
FILES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "anisotropic": (write_scans, SMALL_3D),
    "resampled": (write_scans, {**SMALL_3D, "spacing": 2.0}),
    "stretched": (write_scans, {**SMALL_3D, "fit": "stretch"}),
    "2D": (write_fluorescence, {"encoder": "resnet10t"}),
}


@pytest.mark.parametrize("kind", FILES)
def test_the_encoder_gives_what_embed_gives(tmp_path: Path, kind: str) -> None:
    write, settings = FILES[kind]
    folder = write(tmp_path / "files")
    settings = {"size": 16 if kind != "2D" else 32, "epochs": 1, "batch_size": 3, "device": "cpu", **settings}
    run = pretrain(folder, out=tmp_path / "run", console=silent(), **settings)
    table = embed(run, folder, device="cpu", console=silent())
    expected = table.filter(regex=r"^f\d+$").to_numpy(np.float32)
    encoder = load_encoder(run)
    files = [read_sample(path) for path in table["path"]]
    arrays, spacings = np.stack([file.array for file in files]), [file.spacing for file in files]
    for samples in (arrays, torch.from_numpy(arrays.astype(np.float32))):
        np.testing.assert_allclose(encoder(samples, spacing=spacings).numpy(), expected, atol=1e-5)
    if kind in ("anisotropic", "resampled"):
        np.testing.assert_allclose(encoder(arrays, spacing=(1, 1, 2)).numpy(), expected, atol=1e-5)
        assert np.abs(encoder(arrays, spacing=(1, 1, 1)).numpy() - expected).max() > 1e-3
        with pytest.raises(InputError, match=r"spacing=\(…, …, …\)"):
            encoder(arrays)
    else:
        np.testing.assert_allclose(encoder(arrays).numpy(), expected, atol=1e-5)


def test_a_frozen_encoder_is_frozen_until_it_is_told_otherwise(run: Run) -> None:
    encoder, points = load_encoder(run), torch.randn(4, 2)
    assert not encoder.training
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not encoder(points).requires_grad
    encoder.requires_grad_(True).train()
    encoder(points).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.encoder.parameters())


def test_views_of_an_instance_stay_together(run: Run) -> None:
    """Without noise the views of an instance agree; grouped otherwise, they would not."""
    views = extract_views(load_encoder(run), samples(run), torch.arange(10), num_views=3)
    assert views.shape[:2] == (10, 3)
    assert alignment(views) < 1e-9
    assert alignment(views.swapaxes(0, 1)) > 1e-3
