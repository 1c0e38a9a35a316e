"""The scikit-learn door passes scikit-learn's own checks, and takes images and volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import icone

QUICK: dict[str, Any] = {"probe_every": 0, "features": 8}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [icone.Embedder(epochs=1, batch_size=4, settings=QUICK)]
)
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


def test_images_go_in_and_a_classifier_follows() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(24) % 2
    images = np.clip(rng.normal(100, 10, (24, 16, 16)) + 80 * labels[:, None, None], 0, 255).astype(np.uint8)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    embedder = icone.Embedder(encoder=network, epochs=1, settings={"size": 16, "probe_every": 0})
    pipeline = make_pipeline(embedder, LogisticRegression(C=1000))
    pipeline.fit(images, labels)
    assert pipeline.score(images, labels) == 1.0  # the mean brightness tells the classes apart
    assert embedder.transform(torch.from_numpy(images)).shape == (24, 4)
    assert list(embedder.get_feature_names_out()) == ["f0", "f1", "f2", "f3"]


def test_volumes_and_a_run_that_stays(tmp_path: Path) -> None:
    volumes = np.random.default_rng(0).random((6, 16, 16, 16), dtype=np.float32)
    settings = {"width": 0.125, "features": 8, "size": 16, "probe_every": 0}
    embedder = icone.Embedder(encoder="resnet10_3d", epochs=1, out=tmp_path / "run", settings=settings).fit(volumes)
    table = icone.embed(tmp_path / "run", volumes, device="cpu")
    expected = table.filter(regex=r"^f\d+$").to_numpy()
    np.testing.assert_allclose(embedder.transform(volumes), expected, atol=1e-6)
    assert len(embedder.history_) == 1


def test_a_supervised_method_takes_y() -> None:
    points = np.random.default_rng(0).normal(size=(20, 4))
    embedder = icone.Embedder(method="cross_entropy", epochs=1, batch_size=4, settings=QUICK)
    assert embedder.fit(points, np.arange(20) % 2).transform(points).shape == (20, 8)
    with pytest.raises(icone.InputError, match="needs a label"):
        embedder.fit(points)


def test_files_go_in_as_a_list_of_their_paths(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 16, 16), dtype=np.uint8)
    paths = [tmp_path / f"{name}.png" for name in "fbdace"]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    settings = {"size": 16, "probe_every": 0, "cache": "off"}
    of_arrays = icone.Embedder(encoder="test_vit", epochs=1, settings=settings).fit(images).transform(images)
    embedder = icone.Embedder(encoder="test_vit", epochs=1, settings=settings)
    for data in (paths, np.array(list(map(str, paths))), pd.DataFrame({"path": paths})):
        np.testing.assert_allclose(embedder.fit(data).transform(data), of_arrays, atol=1e-5)
    np.testing.assert_allclose(embedder.transform(paths[::-1]), of_arrays[::-1], atol=1e-5)
    np.testing.assert_allclose(embedder.transform(paths[2]), of_arrays[[2]], atol=1e-5)
    with pytest.raises(icone.InputError, match="X of type generator has no length: give a list"):
        embedder.fit(tmp_path.glob("*.png"))


def test_transform_leaves_no_sample_out() -> None:
    images = list(np.random.default_rng(0).integers(0, 255, (6, 16, 16), dtype=np.uint8))
    images[2][:] = 7
    settings = {"size": 16, "cache": "off", "skip_unreadable": True, "probe_every": 0}
    embedder = icone.Embedder(encoder="test_resnet", epochs=1, settings=settings).fit(images)
    with pytest.raises(
        icone.InputError, match=r"sample 000002 of list .* is constant.*a row for every sample"
    ) as error:
        embedder.transform(images)
    assert "skip_unreadable" not in str(error.value)
    assert embedder.transform(images[:2] + images[3:]).shape[0] == 5


@pytest.mark.parametrize(("edge", "size"), [(24, 16), (16, 24), (16, 16)], ids=["large files", "large input", "small"])
def test_an_array_is_encoded_in_parts_that_fit(edge: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = np.random.default_rng(0).random((5, 1, edge, edge, edge), dtype=np.float32)
    settings = {"width": 0.125, "features": 8, "size": size, "probe_every": 0}
    embedder = icone.Embedder(encoder="nf_resnet10_3d", epochs=1, settings=settings).fit(volumes)
    expected = embedder.transform(volumes)
    seen: list[int] = []
    embedder.encoder_.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    for module in ("icone.api.embedder", "icone.data.prepare"):
        monkeypatch.setattr(f"{module}.VALUES_AT_ONCE", 2 * 16**3)
    np.testing.assert_allclose(embedder.transform(volumes), expected, atol=1e-5)
    assert seen == ([2, 2, 1] if edge == size == 16 else [1] * 5)


def test_missing_labels_are_none() -> None:
    points = np.random.default_rng(0).normal(size=(6, 4))
    for labels in (["a", "b", None] * 2, [0.0, 1.0, np.nan] * 2):
        with pytest.raises(icone.InputError, match="needs a label for every"):
            icone.Embedder(method="cross_entropy", epochs=1, batch_size=2, settings=QUICK).fit(points, labels)
