"""Crops of samples at their own resolution: equal to slices of the array, overlapping, a function of the seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
import zarr

from icone.config import PretrainConfig
from icone.data import Loader, Preparation, Sample, Source, inspect_data, load_data
from icone.data.crops import CropDataset, draw_crops, window_starts
from icone.data.formats.base import Array
from icone.errors import InputError
from icone.views.base import unit_range

SHAPES = [(40, 50, 70), (33, 64, 31), (20, 90, 45)]
SIZE = (24, 32, 40)


def volume(number: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(number).integers(0, 4000, shape).astype(np.uint16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("volumes")
    for number, shape in enumerate(SHAPES):
        np.save(folder / f"{number}.npy", volume(number, shape))
    return folder


def crops(folder: Path, **settings: object) -> CropDataset:
    config = PretrainConfig(source=str(folder), **{"crop": SIZE, "window": (0, 4000), **settings})  # type: ignore[arg-type]
    train = load_data(config).train
    assert isinstance(train, CropDataset)
    return train


def padded(number: int) -> Array:
    """A volume in [0, 1] with zeros around it where it is smaller than a crop."""
    array = volume(number, SHAPES[number]) / 4000
    margins = [max(0, edge - n) for n, edge in zip(array.shape, SIZE, strict=True)]
    return np.pad(array, [(m // 2, m - m // 2) for m in margins])


@pytest.mark.parametrize("cache", ["auto", "off"], ids=["on disk", "in memory"])
def test_a_window_is_a_slice(folder: Path, cache: str) -> None:
    data = crops(folder, cache=cache)
    assert data.is_on_disk == (cache == "auto")
    for number in range(len(SHAPES)):
        whole, starts = padded(number), data.window_starts(number)
        covered = np.zeros(whole.shape, bool)
        windows = data.windows_at(number, starts)
        for start, window in zip(starts, windows, strict=True):
            place = tuple(slice(a, a + n) for a, n in zip(start, SIZE, strict=True))
            covered[place] = True
            np.testing.assert_allclose(unit_range(window)[0].numpy(), whole[place], atol=1 / 65_535)
        assert covered.all()
        assert len(starts) == np.prod([-(-n // edge) for n, edge in zip(whole.shape, SIZE, strict=True)])
        middle = tuple((n - edge) // 2 for n, edge in zip(whole.shape, SIZE, strict=True))
        place = tuple(slice(a, a + n) for a, n in zip(middle, SIZE, strict=True))
        found = unit_range(data.images_at(torch.tensor([number])))
        np.testing.assert_allclose(found[0, 0], whole[place], atol=1 / 65_535)


@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.9, 1.0])
def test_crops_of_a_sample_share_enough(overlap: float) -> None:
    shape, rng = (100, 70, 30), np.random.default_rng(0)
    shares = []
    for _ in range(300):
        starts = draw_crops(shape, SIZE, overlap, 3, rng)
        assert (starts >= 0).all()
        assert (starts + SIZE <= np.maximum(shape, SIZE)).all()
        for a, b in ((0, 1), (0, 2), (1, 2)):
            common = np.maximum(0, np.array(SIZE) - abs(starts[a] - starts[b]))
            shares.append(np.prod(common) / np.prod(SIZE))
    assert min(shares) >= overlap
    assert np.mean(shares) <= (1 if overlap == 1 else 0.99)
    if overlap < 1:
        assert len({tuple(draw_crops(shape, SIZE, overlap, 1, rng)[0]) for _ in range(50)}) > 20


def test_crops_are_a_function_of_seed_epoch_and_sample(folder: Path) -> None:
    data = crops(folder)
    every = torch.arange(3)
    first = data.for_views(every, 2, seed=1, epoch=4)
    assert first.shape == (3, 2, 1, *SIZE)
    assert torch.equal(first[[2, 0]], data.for_views(torch.tensor([2, 0]), 2, seed=1, epoch=4))
    for other in (data.for_views(every, 2, 2, 4), data.for_views(every, 2, 1, 5)):
        assert not torch.equal(first[0], other[0])
    assert torch.equal(data.subset([2, 1]).windows_at(0, window_starts(SHAPES[2], SIZE)[:1]),
                       data.windows_at(2, window_starts(SHAPES[2], SIZE)[:1]))  # fmt: skip


def test_constant_crops_are_drawn_again(tmp_path: Path) -> None:
    for number in range(2):
        array = np.zeros((60, 60, 60), np.uint16)
        array[:20] = volume(number, (20, 60, 60)) + 1
        np.save(tmp_path / f"{number}.npy", array)
    data = crops(tmp_path, crop=16)
    found = torch.cat([data.for_views(torch.arange(2), 2, seed=0, epoch=epoch) for epoch in range(40)])
    constant = (found.flatten(2).amin(2) == found.flatten(2).amax(2)).float().mean()
    assert constant < 0.05  # half of the places would be


def test_the_loader_reads_crops_ahead_over_the_end_of_an_epoch(folder: Path) -> None:
    data = crops(folder)
    loader = Loader(data, 2, seed=3, num_views=2)
    loader.begin(0)
    stream = loader._stream  # the same for all epochs
    for epoch in range(3):
        loader.begin(epoch)
        assert loader._stream is stream
        for number, size in enumerate(loader.sizes):
            loader.advance([size])
            batch = loader.take(0, size)
            index = loader.order(epoch).split(loader.sizes)[number]
            assert torch.equal(batch.index, index)
            assert torch.equal(batch.images, data.for_views(index, 2, seed=3, epoch=epoch))
    assert loader.waited > 0
    loader.begin(1, start=1)  # elsewhere than the stream is: as when a run is resumed
    loader.advance([loader.sizes[1]])
    assert torch.equal(loader.take(0, loader.sizes[1]).index, loader.order(1).split(loader.sizes)[1])
    loader.end()


def test_chunks_are_kept_whatever_the_crop(folder: Path, tmp_path: Path) -> None:
    crops(folder, cache=str(tmp_path))
    entries = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npy")}
    crops(folder, cache=str(tmp_path), crop=16, crop_overlap=0.5)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npy")} == entries


def test_damaged_chunks_are_said(folder: Path, tmp_path: Path) -> None:
    data = crops(folder, cache=str(tmp_path))
    chunks = max(tmp_path.glob("*.npy"), key=lambda path: path.stat().st_size)
    with chunks.open("r+b") as file:
        file.seek(200)
        file.write(b"damage")
    with pytest.raises(InputError, match="damaged, and is deleted"):
        data.windows_at(0, np.zeros((1, 3), int))
    assert not chunks.exists()


@pytest.mark.parametrize("suffix", ["npy", "zarr"])
def test_a_large_file_is_never_decoded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    for number in range(2):
        array = volume(number, (70, 40, 50))
        if suffix == "npy":
            np.save(tmp_path / f"{number}.npy", array)
        else:
            zarr.create_array(str(tmp_path / f"{number}.zarr"), data=array, chunks=(16, 16, 16))
    whole = crops(tmp_path, cache="off", window=None)
    summary, _ = inspect_data(PretrainConfig(source=str(tmp_path), crop=SIZE))

    def refuse(self: Source, position: int) -> Sample:
        raise AssertionError("read whole")

    monkeypatch.setattr(Source, "read", refuse)
    monkeypatch.setattr("icone.data.load.LARGE", 1e12)
    by_regions, _ = inspect_data(PretrainConfig(source=str(tmp_path), crop=SIZE, cache="off"))
    assert by_regions == summary
    parts = crops(tmp_path, cache="off", window=None)
    assert parts.preparation == whole.preparation
    every = window_starts((70, 40, 50), SIZE)
    assert all(torch.equal(parts.windows_at(row, every), whole.windows_at(row, every)) for row in (0, 1))


SLIDE = np.random.default_rng(0).integers(0, 256, (90, 70, 4), dtype=np.uint8)
SLICES = volume(0, (20, 60, 50))
ALPHA: dict[str, Any] = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
STEPS = {"axes": "ZYX", "PhysicalSizeX": 0.2, "PhysicalSizeY": 0.6}


@pytest.mark.parametrize(
    ("array", "options", "has_regions"),
    [
        (SLIDE[..., :3], {"photometric": "rgb"}, True),
        (SLIDE, ALPHA, False),
        (SLIDE.astype(np.uint16), ALPHA, True),
        (SLIDE[..., 0], {"extratags": [(274, "H", 1, 6, True)]}, False),
        (SLIDE[..., 0], {"photometric": "miniswhite"}, True),
        (SLICES, {}, True),
        (SLICES, {"ome": True, "metadata": STEPS}, True),
        (SLICES, {"ome": True, "metadata": STEPS | {"PhysicalSizeZ": 1.0}}, True),
    ],
    ids=["colours", "opacity", "16 bit", "turned", "0 is white", "slices", "two steps", "three steps"],
)
def test_a_large_tiff_is_the_same_by_regions(
    array: Array, options: dict[str, Any], has_regions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        tifffile.imwrite(tmp_path / f"{number}.tif", array + number, **options)
    if "ome" not in options:
        tifffile.imwrite(tmp_path / "1.tif", SLIDE[:9, :9, 0], append=True)  # of another shape: a second image
    config: Any = {"crop": 16, "window": (0, 200), "cache": "off"}
    summary, whole = inspect_data(PretrainConfig(source=str(tmp_path), **config)), crops(tmp_path, **config)
    monkeypatch.setattr("icone.data.load.LARGE", 1e12)
    parts = crops(tmp_path, **config)
    assert inspect_data(PretrainConfig(source=str(tmp_path), **config)) == summary
    assert any("the first image of a file is read" in note for note in summary[0].notes) == ("ome" not in options)
    assert [parts.shape(row) for row in (0, 1)] == [whole.shape(row) for row in (0, 1)]
    every = window_starts(whole.shape(0), whole.preparation.size)
    assert all(torch.equal(parts.windows_at(row, every), whole.windows_at(row, every)) for row in (0, 1))
    assert (parts.source.regions(0) is not None) == has_regions


def test_large_channels_in_files_of_their_own_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {(key, name): volume(ord(key) + len(name), (70, 40, 50)) for key in "ab" for name in ("t1", "flair")}
    for (key, name), array in arrays.items():
        np.save(tmp_path / f"{key}_{name}.npy", array)
    monkeypatch.setattr("icone.data.load.LARGE", 1e12)
    data = crops(tmp_path, channels_from="{id}_{t1,flair}.npy")
    assert data.preparation.channels == 2
    for row, key in enumerate("ab"):
        (found,) = unit_range(data.windows_at(row, np.zeros((1, 3), int)))
        for channel, name in zip(found.numpy(), ("t1", "flair"), strict=True):
            expected = arrays[key, name][tuple(map(slice, SIZE))] / 4000
            np.testing.assert_allclose(channel, expected, atol=1 / 65_535)


def test_slabs_have_the_percentiles_of_the_whole_sample() -> None:
    array = np.stack([volume(0, (5, 8, 9)), volume(1, (5, 8, 9)) // 7])
    made = {"spatial_dims": 3, "channels": 2, "size": (4, 4, 4), "fit": "pad", "spacing": None, "dtype": "float32"}
    for shares in (True, False):
        one = Preparation(**made, low=None, high=None, shares_range=shares, crops=True)  # type: ignore[arg-type]
        whole, own = one.batch(array[None])[0], one.with_range_of(array)
        torch.testing.assert_close(own.batch(array[None])[0], whole)
        assert (whole.amin() >= 0) & (whole.amax() <= 1)


def test_spacing_and_what_inspect_says(folder: Path, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    for number in (0, 1):
        image = nibabel.Nifti1Image(volume(number, (30, 30, 12)).astype(np.int16), np.diag([1.0, 1.0, 3.0, 1.0]))
        nibabel.save(image, tmp_path / f"{number}.nii.gz")
    config = PretrainConfig(source=str(tmp_path), crop=16)
    summary, preparation = inspect_data(config)
    assert (summary.size, summary.scale, summary.windows) == ([16, 16, 16], [1, 1, 1], [4, 4])
    assert not preparation.needs_spacing
    assert any("2 of 2 samples are smaller" in note for note in summary.notes)
    assert any("no cubes (1 × 1 × 3 mm)" in note for note in summary.notes)
    resampled = crops(tmp_path, crop=16, spacing=1.0, window=None)
    assert [resampled.shape(row) for row in (0, 1)] == [(30, 30, 36)] * 2
    summary, _ = inspect_data(PretrainConfig(source=str(tmp_path), crop=(16, 16, 16), spacing=1.0))
    assert summary.windows == [12, 12]
    assert summary.scale == [1, 1, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop": 4}, "crop must be at least 8"),
        ({"crop": (16, 16)}, "crop= has 2 edges"),
        ({"crop": 16, "size": 32}, "leave size="),
        ({"crop": None, "crop_overlap": 0.5}, "give crop= too"),
        ({"crop_overlap": 1.5}, "crop_overlap must be a share"),
        ({"cache": "off", "memory_gb": 1e-6}, "cache=.DIR"),
    ],
)
def test_what_cannot_be_is_said(folder: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        crops(folder, **settings)
