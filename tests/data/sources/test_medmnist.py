"""MedMNIST by name: parsing, checksum, missing files, missing package."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest

from icone.config import DataConfig
from icone.data import download, open_source
from icone.data.fetch import fetch
from icone.data.sources import medmnist
from icone.errors import InputError


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry of one volume set at two sizes, whose larger file lies in the returned folder."""
    path = tmp_path / "tinymnist3d_64.npz"
    labels = np.array([[1], [0], [1]], np.uint8)
    np.savez(path, train_images=np.zeros((3, 6, 6, 6), np.uint8), train_labels=labels)
    digest = hashlib.md5(path.read_bytes()).hexdigest()
    entry = {"url": "u28", "MD5": "0", "url_64": "http://x/64", "MD5_64": digest, "label": {"0": "well", "1": "ill"}}
    monkeypatch.setattr(medmnist, "_registry", lambda: ({"tinymnist3d": entry}, tmp_path / "default"))
    return tmp_path


@pytest.mark.parametrize("spec", ["medmnist:tinymnist3d@64", "medmnist:TinyMNIST3D"])
def test_named_classes_and_default_size(registry: Path, spec: str) -> None:
    source = open_source(spec, DataConfig(data_root=registry))
    assert source.labels == ("ill", "well", "ill")
    assert source.spatial_dims == 3
    assert source.read(0).array.shape == (1, 6, 6, 6)


def test_unknown_names_and_sizes(registry: Path) -> None:
    with pytest.raises(InputError, match="did you mean tinymnist3d"):
        open_source("medmnist:tinymnist", DataConfig(data_root=registry))
    with pytest.raises(InputError, match="no size '32'; it has 28, 64"):
        open_source("medmnist:tinymnist3d@32", DataConfig(data_root=registry))


def test_wrong_checksum(registry: Path) -> None:
    path = registry / "tinymnist3d_64.npz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"tinymnist3d_64\.npz is not the official file"):
        open_source("medmnist:tinymnist3d@64", DataConfig(data_root=registry))


def test_a_file_is_hashed_once_until_it_changes(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    real = hashlib.file_digest

    def counted(file: Any, name: str) -> Any:
        hashed.append(name)
        return real(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    for _ in range(3):
        open_source("medmnist:tinymnist3d", DataConfig(data_root=registry))
    assert len(hashed) == 1
    path = registry / "tinymnist3d_64.npz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="not the official file"):
        open_source("medmnist:tinymnist3d", DataConfig(data_root=registry))


def test_without_network_the_way_out_is_named(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise URLError("no route")

    monkeypatch.setattr(download, "urlopen", no_network)
    wanted = r"default/tinymnist3d_64\.npz is missing: cannot download http://x/64 .*offline\? You can.*data_root="
    with pytest.raises(InputError, match=wanted):
        open_source("medmnist:tinymnist3d@64", DataConfig())


@pytest.mark.parametrize("spec", ["medmnist:tinymnist3d@64", "medmnist:TinyMNIST3D"])
def test_without_the_package_a_file_that_is_there_is_read(
    registry: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the registry of the fixture: this one reads the package
    monkeypatch.setitem(sys.modules, "medmnist.info", None)
    source = open_source(spec, DataConfig(data_root=registry))
    assert source.labels == ("1", "0", "1")
    assert source.read(0).array.shape == (1, 6, 6, 6)
    assert "checksum of tinymnist3d_64.npz was not verified, and classes have numbers" in source.notes[-1]
    with pytest.raises(InputError, match=r"there is no .*tinymnist3d\.npz\. Of tinymnist3d .* tinymnist3d_64\.npz\."):
        open_source("medmnist:tinymnist3d@28", DataConfig(data_root=registry))


def test_without_the_package_a_download_names_the_extra_and_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "medmnist.info", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    missing = rf"there is no {tmp_path}/\.medmnist/breastmnist_224\.npz.* pip install 'icone\[medmnist\]'.*data_root="
    with pytest.raises(InputError, match=missing):
        open_source("medmnist:breastmnist", DataConfig())
    with pytest.raises(InputError, match=r"pip install 'icone\[medmnist\]'"):
        fetch("medmnist:breastmnist")


def test_the_real_registry_has_the_papers_sets() -> None:
    known, _ = medmnist._registry()
    assert medmnist._parse("medmnist:PathMNIST", known) == ("pathmnist", 224)
    assert medmnist._parse("medmnist:organmnist3d", known) == ("organmnist3d", 64)
    assert medmnist._parse("medmnist:bloodmnist@28", known) == ("bloodmnist", 28)
