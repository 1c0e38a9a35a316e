"""The real data sets, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from icone.config import DataConfig, PretrainConfig
from icone.data import load_data, open_source


def test_brain_volumes_of_many_scanners(real_data: Path) -> None:
    data = load_data(PretrainConfig(source=str(real_data / "hippocampus"), size=48))
    assert data.train.images is not None
    assert data.train.images.shape == (60, 1, 48, 48, 48)
    assert data.train.class_names == ()
    contrast = data.train.images.flatten(1).std(dim=1)
    assert contrast.min() > 0.1  # although their units differ by a factor of 3000


def test_blood_cells_with_a_table(real_data: Path) -> None:
    folder = real_data / "bloodcells"
    data = load_data(PretrainConfig(source=str(folder), labels=folder / "labels.csv", size=64, test_fraction=0.2))
    assert data.test is not None
    total = np.bincount(data.train.labels) + np.bincount(data.test.labels)
    assert sorted(total.tolist()) == [3, 20, 33, 88, 207]
    assert np.bincount(data.test.labels).min() == 1
    assert (len(data.train), len(data.test)) == (281, 70)


def test_class_folders(real_data: Path) -> None:
    source = open_source(str(real_data / "caltech20"), DataConfig())
    assert len(source) == 1200
    assert len(set(source.labels or ())) == 20


def test_medmnist_file(real_data: Path) -> None:
    root = real_data / "medmnist"
    source = open_source("medmnist:adrenalmnist3d@28", DataConfig(data_root=root))
    assert (len(source), source.spatial_dims) == (1188, 3)
    assert source.labels is not None
    assert source.labels.count("normal") == 929


def test_array_with_splits(real_data: Path) -> None:
    path = str(real_data / "breastmnist_128_rebuilt.npz")
    sizes = {split: len(open_source(path, DataConfig(split=split))) for split in ("train", "val", "test")}
    assert sizes == {"train": 546, "val": 78, "test": 156}
