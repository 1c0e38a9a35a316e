"""Tiles of huge files: a tile is a slice, background is left out, and only tiles are read."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr

from icone.config import DataConfig, PretrainConfig
from icone.data import DigestMemory, inspect_data, load_data, load_for_inference, open_source
from icone.data.background import find_content, otsu_threshold, thumbnail
from icone.data.formats.base import Array
from icone.data.formats.lazy import LazyImage, RawArray
from icone.data.sources.tiles import TilesSource
from icone.errors import InputError

RNG = np.random.default_rng(0)
VOLUME = RNG.integers(0, 4000, (40, 50, 70)).astype(np.uint16)
SLIDE = RNG.integers(0, 256, (92, 75, 3), dtype=np.uint8)


def opened(path: str | Path, tiles: int = 16, **settings: Any) -> TilesSource:
    source = open_source(path, DataConfig(tiles=tiles, **settings))
    assert isinstance(source, TilesSource)
    return source


def save_npy(path: Path, array: Array) -> Path:
    np.save(path / "a.npy", array)
    return path / "a.npy"


def save_fortran(path: Path, array: Array) -> Path:
    return save_npy(path, np.asfortranarray(array))


def save_zarr(path: Path, array: Array) -> Path:
    zarr.create_array(str(path / "a.zarr"), data=array, chunks=(16,) * array.ndim)
    return path / "a.zarr"


def save_ome_zarr(path: Path, array: Array) -> Path:
    axes = ["z", "y", "x"] if array.shape[-1] > 3 else ["y", "x", "c"]
    kinds = [{"name": a, "type": "channel" if a == "c" else "space", "unit": "micrometer"} for a in axes]
    group = zarr.open_group(str(path / "a.zarr"), mode="w", zarr_format=2)
    levels: list[Any] = []
    for level in range(3):
        group.create_array(str(level), data=array[:: 2**level, :: 2**level], chunks=(16,) * array.ndim)
        scale = [{"type": "scale", "scale": [2.0, 0.5, 0.5]}]
        levels.append({"path": str(level), "coordinateTransformations": scale})
    group.attrs["multiscales"] = [{"version": "0.4", "axes": kinds, "datasets": levels}]
    return path / "a.zarr"


def save_hdf5(path: Path, array: Array) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("raw/image", data=array, chunks=(16,) * (array.ndim - 1) + array.shape[-1:])
    return Path(f"{path}/a.h5:/raw/image")


def save_tiff(path: Path, array: Array) -> Path:
    photometric = "rgb" if array.shape[-1] == 3 else "minisblack"
    tifffile.imwrite(path / "a.tif", array, photometric=photometric)
    return path / "a.tif"


def save_tiled_tiff(path: Path, array: Array) -> Path:
    photometric = "rgb" if array.shape[-1] == 3 else "minisblack"
    tifffile.imwrite(path / "a.tif", array, photometric=photometric, tile=(32, 32), compression="zlib")
    return path / "a.tif"


WRITERS = [save_npy, save_fortran, save_zarr, save_ome_zarr, save_hdf5, save_tiff, save_tiled_tiff]


@pytest.mark.parametrize("array", [VOLUME, SLIDE], ids=["volume", "slide"])
@pytest.mark.parametrize("save", WRITERS)
def test_a_tile_is_a_slice(save: Callable[[Path, Array], Path], array: Array, tmp_path: Path) -> None:
    source = opened(save(tmp_path, array), stride=12, background="keep")
    first = array[None] if array is VOLUME else np.moveaxis(array, -1, 0)
    assert source.spatial_dims == first.ndim - 1
    counts = [math.ceil((n - 16) / 12) + 1 for n in first.shape[1:]]
    assert len(source) == math.prod(counts)  # every remainder here is at least half a tile
    for position in range(0, len(source), 3):
        name, _, place = source.ids[position].partition("/")
        start = [int(number) for number in place.split(",")]
        expected = first[(slice(None), *(slice(a, a + 16) for a in start))]
        tile = source.read(position).array
        assert name.startswith("a.")
        np.testing.assert_array_equal(tile[tuple(map(slice, expected.shape))], expected)
        assert tile.shape == (len(first), *(16,) * source.spatial_dims)
    assert set(source.groups or ()) == {name}


def test_what_lies_beyond_the_end_is_mirrored(tmp_path: Path) -> None:
    source = opened(save_npy(tmp_path, VOLUME[:10, :16, :24]), background="keep")
    assert source.ids == ("a.npy/0,0,0", "a.npy/0,0,16")  # 8 of 16 are half a tile
    tile = source.read(1).array[0]
    np.testing.assert_array_equal(tile[:10, :, 8:], VOLUME[:10, :16, 16:24][:, :, ::-1])
    np.testing.assert_array_equal(tile[10:], tile[4:10][::-1])
    assert opened(save_npy(tmp_path, VOLUME[:16, :16, :23]), background="keep").ids == ("a.npy/0,0,0",)


def test_otsu_is_the_threshold_of_scikit_image() -> None:
    filters = pytest.importorskip("skimage.filters")
    values = np.concatenate([RNG.normal(0, 1, 4000), RNG.normal(7, 2, 700)])
    width = np.ptp(values) / 256
    assert abs(otsu_threshold(values) - filters.threshold_otsu(values, nbins=256)) <= width


@pytest.mark.parametrize("side", ["dark", "bright"])
def test_background_is_left_out_and_counted(side: str, tmp_path: Path) -> None:
    shown = np.zeros((64, 96), dtype=bool)
    shown[20:50, 40:90] = True
    noise = RNG.integers(0, 4, shown.shape)
    content = RNG.integers(90, 200, shown.shape)
    image = np.where(shown, content, noise if side == "dark" else 255 - noise).astype(np.uint8)
    source = opened(save_npy(tmp_path, image))
    expected = []
    for y in range(0, 64, 16):
        for x in range(0, 96, 16):
            if shown[y : y + 16 : 2, x : x + 16 : 2].mean() >= 0.05:
                expected.append(f"a.npy/{y},{x}")
    assert list(source.ids) == expected
    assert 0 < len(expected) < 24
    assert source.notes[0].startswith(
        f"{len(expected)} of 24 tiles of 16×16 are samples; {24 - len(expected)} are back"
    )
    assert side in source.notes[0]
    assert len(opened(save_npy(tmp_path, image), background="keep")) == 24
    opposite: Any = "bright" if side == "dark" else "dark"
    assert source.ids != opened(save_npy(tmp_path, image), background=opposite).ids


def test_constant_and_empty_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"all 12 tiles of a\.npy are background: background=.keep"):
        opened(save_npy(tmp_path, np.zeros((64, 48), np.uint8)))


def test_tiles_with_nan_are_left_out(tmp_path: Path) -> None:
    image = RNG.random((64, 32)).astype(np.float32)
    image[:16, :16] = np.nan
    source = opened(save_npy(tmp_path, image))
    assert "a.npy/0,0" not in source.ids
    assert len(source) == 7


@pytest.mark.parametrize("inspected", [512, 3], ids=["all", "some"])
def test_tiles_that_cannot_be_used_are_left_out_if_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inspected: int
) -> None:
    monkeypatch.setattr("icone.data.load.INSPECTED", inspected)
    image = RNG.random((64, 32)).astype(np.float32)
    image[[0, 40], :4] = np.nan
    config: Any = {"source": str(save_npy(tmp_path, image)), "tiles": 16, "background": "keep", "cache": "off"}
    with pytest.raises(InputError, match=r"a\.npy: it holds NaN"):
        load_data(PretrainConfig(**config))
    skipping = PretrainConfig(**config, skip_unreadable=True, subset=4)
    data = load_data(skipping)
    assert [problem.id for problem in data.skipped] == ["a.npy/0,0", "a.npy/32,0"]
    assert len(data.train) == 4
    assert not {"a.npy/0,0", "a.npy/32,0"} & {*data.train.ids}
    everything = load_for_inference(config["source"], data.preparation, skipping)
    assert len(everything) == 6
    assert [problem.id for problem in everything.skipped] == ["a.npy/0,0", "a.npy/32,0"]
    summary, _ = inspect_data(PretrainConfig(**config, skip_unreadable=True))
    assert (summary.samples, len(summary.skipped), summary.splits["train"]) == (6, 2, 6)
    summary, _ = inspect_data(PretrainConfig(**config))
    assert summary.samples == summary.splits["train"] == 8 - len(summary.skipped)
    assert any("skip_unreadable" in note or "skip-unreadable" in note for note in summary.notes)


def test_a_thumbnail_is_every_nth_value_or_a_lower_resolution(tmp_path: Path) -> None:
    plain = opened(save_zarr(tmp_path, VOLUME), tiles=32).images[0].image
    np.testing.assert_array_equal(thumbnail(plain, 32)[0], VOLUME[::4, ::4, ::4])
    (tmp_path / "ome").mkdir()
    ome = opened(save_ome_zarr(tmp_path / "ome", VOLUME), tiles=32).images[0].image
    read: list[Any] = []
    ome.read = lambda *region: read.append(region)  # type: ignore[method-assign,assignment]
    np.testing.assert_array_equal(thumbnail(ome, 32)[0], VOLUME[::4, ::4, ::4])
    assert not read  # the full resolution was not touched
    assert find_content(plain, 32).foreground.shape == (10, 13, 18)


def test_a_raw_array_reads_any_region(tmp_path: Path) -> None:
    array = RNG.random((3, 5, 6, 7))
    (tmp_path / "raw").write_bytes(b"head" + array.tobytes())
    raw = RawArray(tmp_path / "raw", 4, array.shape, array.dtype)
    for _ in range(50):
        ends = [sorted(RNG.integers(0, n + 1, 2)) for n in array.shape]
        region = tuple(slice(int(a), int(b)) for a, b in ends)
        np.testing.assert_array_equal(raw[region], array[region])
    blocks = list(LazyImage(raw, "CZYX").blocks(limit=500))
    counts = np.zeros(array.shape[1:], int)
    for start, stop in blocks:
        counts[tuple(map(slice, start, stop))] += 1
    assert (counts == 1).all()
    assert len(blocks) > 1


def test_digests_tell_changed_files_from_moved_ones(tmp_path: Path) -> None:
    source = opened(save_npy(tmp_path, VOLUME), background="keep")
    everything = range(len(source))
    before = source.digests(everything, DigestMemory())
    assert len(set(before)) == len(source)
    (tmp_path / "moved").mkdir()
    (tmp_path / "a.npy").rename(tmp_path / "moved" / "b.npy")
    moved = opened(tmp_path / "moved" / "b.npy", background="keep")
    assert moved.digests(everything, DigestMemory()) == before
    changed = opened(save_npy(tmp_path, VOLUME // 2), background="keep")
    assert not set(changed.digests(everything, DigestMemory())) & set(before)


def test_a_folder_of_files_has_groups_classes_and_splits(tmp_path: Path) -> None:
    for name in ("train/sick/1", "train/sick/2", "train/well/1", "train/well/2", "test/well/3", "test/sick/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / f"{name}.npy", RNG.integers(0, 9, (32, 48)).astype(np.uint8))
    source = opened(tmp_path)
    row = source.ids.index("test/well/3.npy/16,32")
    assert source.groups is not None
    assert source.labels is not None
    assert source.assigned is not None
    assert (source.groups[row], source.labels[row], source.assigned[row]) == ("test/well/3.npy", "well", "test")
    data = load_data(PretrainConfig(source=str(tmp_path), tiles=16))
    assert (len(data.train), len(data.test or ())) == (24, 12)
    assert data.preparation.size == (16, 16)


def test_tiles_of_a_tiff_that_is_to_be_turned_say_so(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 48), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", image, extratags=[(274, "H", 1, 6, True)])
    source = open_source(str(tmp_path), DataConfig(tiles=16, background="keep"))
    assert any("orientation tag (6) is not applied" in note for note in source.notes)
    np.testing.assert_array_equal(source.read(1).array[0], image[:16, 16:32])


def test_tiles_of_a_tiff_with_opacity_say_so(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 48, 4), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", image, photometric="rgb", extrasamples=["unassalpha"])
    source = open_source(str(tmp_path), DataConfig(tiles=16, background="keep"))
    assert any("the opacity of the TIFF is channel 4 of its tiles" in note for note in source.notes)
    np.testing.assert_array_equal(source.read(1).array, np.moveaxis(image[:16, 16:32], -1, 0))


def test_what_tiles_cannot_be_made_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"save it as \.npy or \.zarr"):
        open_source(VOLUME, DataConfig(tiles=16))
    (tmp_path / "images").mkdir()
    tifffile.imwrite(
        tmp_path / "images" / "a.tif",
        np.zeros((5, 6, 20, 20), np.uint8),
        photometric="minisblack",
        metadata={"axes": "TZYX"},
    )
    with pytest.raises(InputError, match="at most one other axis"):
        opened(tmp_path / "images")
    np.savez(tmp_path / "a.npz", VOLUME)
    with pytest.raises(InputError, match="cannot be read by tiles"):
        opened(tmp_path / "a.npz")
    with pytest.raises(InputError, match="give tiles= too"):
        PretrainConfig(source="a", stride=4)
    with pytest.raises(InputError, match="at least 8"):
        PretrainConfig(source="a", tiles=4)


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    """A volume of 200 MB is opened, inspected and read through within 50 MB of what Python and NumPy allocate."""
    shape, limit = (200, 1000, 1000), 50e6
    array = zarr.create_array(
        str(tmp_path / "big.zarr"), shape=shape, chunks=(50, 100, 100), dtype="uint8", compressors=None
    )
    slab = RNG.integers(0, 256, (50, 1000, 1000), dtype=np.uint8)
    for z in range(0, 200, 50):
        array[z : z + 50] = slab
    del slab
    tracemalloc.start()
    try:
        config = PretrainConfig(source=str(tmp_path / "big.zarr"), tiles=50, memory_gb=limit / 1e9, cache="off")
        data = load_data(config)
        assert data.train.images is None
        assert len(data.train) * data.preparation.nbytes >= 4 * limit
        for position in range(0, len(data.train), 16):
            data.source.read(position)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit


def test_labels_of_files_are_those_of_their_tiles(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        np.save(tmp_path / f"{name}.npy", VOLUME[:20, :34, :34])
    table = tmp_path / "labels.csv"
    table.write_text("id,label,patient\na.npy,ill,p1\nb,well,p1\n")
    source = open_source(tmp_path, DataConfig(tiles=16, background="keep", labels=table))
    assert source.labels is not None
    assert source.groups is not None
    for name, label, group in zip(source.ids, source.labels, source.groups, strict=True):
        expected = {"a": ("ill", "p1"), "b": ("well", "p1"), "c": (None, "c.npy")}[name[0]]
        assert (label, group) == expected
    assert open_source(tmp_path, DataConfig(tiles=16, background="keep"), ["x", "y", "z"]).labels == tuple(
        {"a": "x", "b": "y", "c": "z"}[name[0]] for name in source.ids
    )
    table.write_text("id,label\nb.npy/0,16,0,ill\n".replace("b.npy/0,16,0", '"b.npy/0,16,0"'))
    labels = open_source(tmp_path, DataConfig(tiles=16, background="keep", labels=table)).labels
    assert labels == tuple("ill" if name == "b.npy/0,16,0" else None for name in source.ids)
    table.write_text("id,label\nnobody,ill\n")
    with pytest.raises(InputError, match=r"ids such as a\.npy"):
        open_source(tmp_path, DataConfig(tiles=16, background="keep", labels=table))
