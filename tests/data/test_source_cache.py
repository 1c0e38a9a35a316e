"""A source is decoded once: what is kept is used, is exact, and is never out of date."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from icone.config import PretrainConfig
from icone.data import Data, Dataset, load_data, load_for_inference, source_cache
from icone.data.cache import Cache
from icone.data.formats.registry import FORMATS
from icone.data.sources.array_file import ArraySource
from icone.data.sources.base import Sample, Source
from icone.data.sources.folder import FolderSource
from icone.data.sources.synthetic import SyntheticSource
from icone.errors import InputError

RNG = np.random.default_rng(0)
Reads = Counter[str]


def save(path: Path) -> None:
    Image.fromarray(RNG.integers(0, 256, (20, 20), dtype=np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scans").mkdir()
    for k in range(9):
        save(tmp_path / "scans" / f"{k}.png")
    return tmp_path / "scans"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Counts how often each sample is read from its source."""
    counts: Reads = Counter()

    def counting(read: Callable[[Any, int], Sample]) -> Callable[[Source, int], Sample]:
        def counted(self: Source, position: int) -> Sample:
            counts[self.ids[position]] += 1
            return read(self, position)

        return counted

    for kind in (FolderSource, ArraySource, SyntheticSource):
        monkeypatch.setattr(kind, "_read", counting(kind._read))
    return counts


class Load:
    """Loads a source (default: the folder) with a cache of its own, and hears what is said about it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.heard: list[str] = []
        self._folder, self._cache = folder, cache

    def __call__(self, source: str | Path | None = None, **settings: Any) -> Data:
        settings = {"size": 16, "cache": self._cache, **settings}
        return load_data(PretrainConfig(source=str(source or self._folder), **settings), report=self.heard.append)


@pytest.fixture
def load(folder: Path, tmp_path: Path) -> Load:
    return Load(folder, tmp_path / "cache")


def samples(dataset: Dataset) -> torch.Tensor:
    return dataset.images_at(torch.arange(len(dataset)))


def npz(path: Path) -> Path:
    np.savez(path, RNG.normal(size=(7, 20, 20)).astype(np.float32))
    return path


def zarr_array(path: Path) -> Path:
    zarr = pytest.importorskip("zarr")
    zarr.save(str(path), RNG.integers(0, 256, (7, 12, 14, 16), dtype=np.uint8))
    return path


@pytest.mark.parametrize("kind", ["folder", "npz", "zarr", "synthetic:cells@16x10", "synthetic:gaussians@x30"])
def test_the_second_start_reads_nothing(load: Load, folder: Path, tmp_path: Path, reads: Reads, kind: str) -> None:
    source = {"folder": folder, "npz": npz(tmp_path / "a.npz"), "zarr": zarr_array(tmp_path / "a.zarr")}.get(kind, kind)
    settings: dict[str, Any] = {"test_fraction": 0.3, "size": 16}
    plain, cold = load(source, **settings, cache="off"), load(source, **settings)
    assert reads
    reads.clear()
    warm, lazy = load(source, **settings), load(source, **settings, memory_gb=0.0)
    assert lazy.train.images is None
    for data in (cold, warm, lazy):
        assert data.preparation == plain.preparation
        assert data.train.ids == plain.train.ids
        assert data.test is not None
        assert plain.test is not None
        assert torch.equal(samples(data.train), samples(plain.train))
        assert torch.equal(samples(data.test), samples(plain.test))
    assert not reads
    assert load.heard == []


@pytest.mark.parametrize("cache", ["off", "auto"])
def test_the_first_start_decodes_once(load: Load, reads: Reads, cache: str) -> None:
    data = load(cache=cache)
    assert reads == dict.fromkeys(data.train.ids, 1)
    reads.clear()
    load(cache="off", memory_gb=4e-6)  # five files of 400 pixels fit into half of it
    assert sorted(reads.values()) == [1] * 5 + [2] * 4


def test_inference_finds_what_training_kept(load: Load, folder: Path, tmp_path: Path, reads: Reads) -> None:
    data = load(test_fraction=0.3)
    reads.clear()
    config = PretrainConfig(source="unused", cache=str(tmp_path / "cache"))
    everything = load_for_inference(str(folder), data.preparation, config)
    assert not reads
    assert data.test is not None
    rows = [everything.ids.index(name) for name in data.test.ids]
    assert torch.equal(everything.images_at(torch.tensor(rows)), samples(data.test))


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: save(folder / "3.png"),
    "touched": lambda folder: (folder / "3.png").touch(),
    "renamed": lambda folder: (folder / "3.png").rename(folder / "33.png"),
    "gained": lambda folder: save(folder / "new.png"),
    "lost": lambda folder: (folder / "3.png").unlink(),
    "swapped": lambda folder: (folder / "3.png").replace(folder / "4.png"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_folder_is_read_again(load: Load, folder: Path, reads: Reads, change: str) -> None:
    load()
    CHANGES[change](folder)
    reads.clear()
    data = load()
    assert set(reads) == set(data.train.ids)
    assert torch.equal(samples(data.train), samples(load(cache="off").train))


def test_other_pixels_under_the_old_size_and_time(load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    for k in range(4):
        np.save(folder / f"{k}.npy", RNG.normal(size=(20, 20)))
    load(folder)
    path = folder / "2.npy"
    before = path.stat()
    np.save(path, RNG.normal(size=(20, 20)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert torch.equal(samples(load(folder).train), samples(load(folder, cache="off").train))


def test_a_changed_array_is_read_again(load: Load, tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz")
    before = samples(load(path).train)
    npz(path)
    after = samples(load(path).train)
    assert not torch.equal(before, after)
    assert torch.equal(after, samples(load(path, cache="off").train))


def test_what_changes_while_it_is_read_is_read_again(
    load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch, reads: Reads
) -> None:
    read = FolderSource._read

    def meddling(self: FolderSource, position: int) -> Sample:
        sample = read(self, position)
        if position == 5:
            save(folder / "2.png")
        return sample

    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "_read", meddling)
        load()
    reads.clear()
    data = load()
    assert set(reads) == set(data.train.ids)
    assert torch.equal(samples(data.train), samples(load(cache="off").train))


def test_another_preparation_or_other_software_is_another_entry(
    load: Load, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    reads.clear()
    assert samples(load(size=12).train).shape[-1] == 12
    assert set(reads.values()) == {1}  # to prepare them; what they hold was known
    reads.clear()
    monkeypatch.setattr(source_cache, "_own_software", lambda: "a later version")
    load()
    assert len(reads) == 9


@pytest.mark.parametrize(("package", "is_read_again"), [("pillow", True), ("torch", True), ("nibabel", False)])
def test_another_version_of_what_decodes_these_files_is_another_entry(
    load: Load, reads: Reads, monkeypatch: pytest.MonkeyPatch, package: str, is_read_again: bool
) -> None:
    load()
    reads.clear()
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "99.0" if name == package else real(name))
    source_cache._own_software.cache_clear()
    load()
    source_cache._own_software.cache_clear()
    assert bool(reads) == is_read_again


def test_another_version_of_the_format_is_another_entry(
    load: Load, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    reads.clear()
    monkeypatch.setitem(FORMATS, ".png", dataclasses.replace(FORMATS[".png"], version=2))
    load()
    assert len(reads) == 9


def test_unreadable_samples_are_tried_again(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FolderSource._read

    def unlucky(self: FolderSource, position: int) -> Sample:
        if position == 4:
            raise OSError("the network is down")
        return read(self, position)

    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "_read", unlucky)
        for _ in range(2):
            assert [problem.id for problem in load(skip_unreadable=True).skipped] == ["4.png"]
        with pytest.raises(InputError, match=r"4\.png.*network is down"):
            load()
    data = load(skip_unreadable=True)
    assert len(data.train) == 9
    assert torch.equal(samples(data.train), samples(load(cache="off").train))


@pytest.mark.parametrize("memory", [None, 0.0])
def test_a_damaged_sample_comes_from_its_file(load: Load, tmp_path: Path, reads: Reads, memory: float | None) -> None:
    load()
    entry = next(e for e in Cache(tmp_path / "cache", print).entries() if e.about["kind"] == "samples")
    path = tmp_path / "cache" / f"{entry.key}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    reads.clear()
    data = load(memory_gb=memory)
    assert torch.equal(samples(data.train), samples(load(cache="off").train))
    (message,) = load.heard
    assert "damaged" in message
    reads.clear()
    load()
    assert len(reads) == 9  # made anew
    reads.clear()
    load()
    assert not reads


def test_damaged_facts_are_found_anew(load: Load, tmp_path: Path, reads: Reads) -> None:
    before = load(intensity="percentile")
    entry = next(e for e in Cache(tmp_path / "cache", print).entries() if e.about["kind"] == "facts")
    path = tmp_path / "cache" / f"{entry.key}.npy"
    content = bytearray(path.read_bytes())
    content[200:300] = bytes(100)
    path.write_bytes(content)
    reads.clear()
    assert load(intensity="percentile").preparation == before.preparation
    assert len(reads) == 9
    assert len(load.heard) == 1
    load(intensity="percentile")
    assert set(reads.values()) == {1}


class Gained(Source):
    """A source of a user, which says of itself what it has to."""

    def __init__(self, gain: int) -> None:
        super().__init__(name="gained", spatial_dims=2, ids=["a", "b", "c"])
        self.gain = gain

    def _read(self, position: int) -> Sample:
        return Sample(self.gain * np.arange(position, position + 64, dtype=np.uint8).reshape(1, 8, 8))

    def _identity(self) -> str:
        return "gained"


def test_a_source_of_a_user_is_read_anew(tmp_path: Path) -> None:
    config = PretrainConfig(source="object:gained", size=8, cache=str(tmp_path))
    for gain in (1, 3):
        images = load_data(config, source=Gained(gain)).train.images
        assert images is not None
        np.testing.assert_array_equal(images[0, 0], gain * np.arange(64).reshape(8, 8))


def test_without_a_place_to_write_the_samples_are_the_same(load: Load, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    data = load(cache=tmp_path / "file")
    assert torch.equal(samples(data.train), samples(load(cache="off").train))
    (message,) = load.heard
    assert "cannot be kept" in message
    with pytest.warns(UserWarning, match="cannot be kept"):  # also where nobody listens
        load_data(PretrainConfig(source="synthetic:gaussians@x10", cache=str(tmp_path / "file")))


def test_a_cache_among_the_data_is_refused(load: Load, folder: Path) -> None:
    with pytest.raises(InputError, match="lies inside the data"):
        load(cache=folder / "cache")
    load(cache=folder / ".cache")


def test_off_writes_nothing(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    load(cache="off")
    assert not (tmp_path / "user").exists()
    load(cache="auto")
    assert (tmp_path / "user" / "icone").is_dir()
    shutil.rmtree(tmp_path / "user")
