"""The whole way from a folder to prepared data, and bad input along it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import nibabel
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch
from PIL import Image

from icone.api.build import make_views
from icone.config import DataConfig, PretrainConfig
from icone.data import Data, inspect_source, load_data, load_for_inference, open_source
from icone.data.inspection import SMALL
from icone.data.sources.base import Sample, Source
from icone.errors import InputError

RNG = np.random.default_rng(0)


def save(path: Path, array: npt.NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        Image.fromarray(array).save(path)


def noise(*shape: int) -> npt.NDArray[np.uint8]:
    return RNG.integers(0, 256, shape or (16, 16), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of 12 and 8 gray images."""
    for k in range(12):
        save(tmp_path / "big" / f"{k:02d}.png", noise())
    for k in range(8):
        save(tmp_path / "small" / f"{k:02d}.png", noise())
    return tmp_path


def load(folder: Path, **settings: Any) -> Data:
    return load_data(PretrainConfig(source=str(folder), **{"size": 16, **settings}))


def test_plain_loading(folder: Path) -> None:
    data = load(folder)
    assert data.test is None
    assert data.skipped == []
    assert data.train.ids == data.source.ids
    assert data.train.paths == data.source.paths
    assert data.train.class_names == ("big", "small")
    assert data.train.labels.tolist() == [0] * 12 + [1] * 8
    assert data.notes == ["the 2 subfolders are taken as classes", "intensity: 0 to 255 becomes 0 to 1"]
    assert data.train.images is not None
    for index, path in enumerate(data.train.paths):
        assert path is not None
        np.testing.assert_array_equal(data.train.images[index, 0].numpy(), np.asarray(Image.open(path)))


def test_lazy_reading_gives_the_same_samples(folder: Path) -> None:
    resident, index = load(folder).train, torch.tensor([5, 0, 19])
    for cache, where in (("auto", "from the cache"), ("off", "from their files")):
        lazy = load(folder, memory_gb=0.0, cache=cache)
        assert lazy.train.images is None
        assert any(f"read {where} every epoch" in note for note in lazy.notes)
        assert torch.equal(lazy.train.images_at(index), resident.images_at(index))


def test_partition_and_subset(folder: Path) -> None:
    data = load(folder, subset=10, test_fraction=0.2)
    assert data.test is not None
    assert not set(data.train.ids) & set(data.test.ids)
    assert np.bincount(data.train.labels).tolist() == [5, 3]
    assert np.bincount(data.test.labels).tolist() == [1, 1]
    again = load(folder, subset=10, test_fraction=0.2, seed=9)
    assert again.train.ids == data.train.ids
    assert load(folder, subset=10, test_fraction=0.2, split_seed=1).train.ids != data.train.ids


def test_asking_for_more_than_there_is_says_so(folder: Path) -> None:
    data = load(folder, subset=5000)
    assert len(data.train) == 20
    assert "asked for 5000 samples, 20 are available and used" in data.notes


def test_imbalance_names_the_minority(folder: Path) -> None:
    data = load(folder, imbalance=4)
    (minority,) = data.minority_classes
    counts = dict(zip(data.train.class_names, np.bincount(data.train.labels), strict=True))
    assert counts[minority] == {"big": 3, "small": 2}[minority]
    assert any(f"subsampled by 4: {minority}" in note for note in data.notes)


def test_intensities_come_from_the_training_part_only(tmp_path: Path) -> None:
    for k in range(10):
        save(tmp_path / f"{k}.npy", RNG.normal(size=(16, 16)))
    before = load(tmp_path, test_fraction=0.3)
    assert before.test is not None
    for name in before.test.ids:
        save(tmp_path / name, RNG.normal(1000, 1000, (16, 16)))
    assert load(tmp_path, test_fraction=0.3).preparation == before.preparation


def test_labels_from_a_table(folder: Path, tmp_path: Path) -> None:
    names = open_source(str(folder), DataConfig()).ids
    table = tmp_path / "labels.csv"
    table.write_text("id,label\n" + "\n".join(f"{name},{'xy'[i % 2]}" for i, name in enumerate(names)))
    assert load(folder, labels=table).train.labels.tolist() == [0, 1] * 10


def test_progress_counts_to_the_end(folder: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    config = PretrainConfig(source=str(folder), size=16)
    load_data(config, progress=lambda *call: calls.append(call))
    first, second, third = (f"{what} the samples" for what in ("looking at", "preparing", "reading"))
    assert calls == [*((what, k, 20) for what in (first, second) for k in range(1, 21)), (third, 20, 20)]


@pytest.mark.parametrize("kind", ["png", "npz", "npy"])
def test_samples_read_and_prepared_together_are_those_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (70, 12, 15, 3), dtype=np.uint8)
    source = tmp_path / f"data.{kind}"
    if kind == "png":
        source.mkdir()
        for number, image in enumerate(images):  # two sizes, in turns
            Image.fromarray(image[: 12 - number % 2]).save(source / f"{number:02d}.png")
    elif kind == "npz":
        np.savez(source, images=images.astype(np.float32))
    else:
        np.save(source, images)
    config = PretrainConfig(source=str(source), size=9, cache="off", workers=1)
    opened = open_source(str(source), config)
    pieces: list[int] = []
    each = type(opened).each

    def counted(self: Source, positions: Sequence[int]) -> Iterator[Sample | InputError]:
        pieces.append(len(positions))
        return each(self, positions)

    monkeypatch.setattr(type(opened), "each", counted)
    together, facts = load_data(config, source=opened), inspect_source(opened, config, workers=1).facts
    assert max(pieces) > 1
    monkeypatch.setattr("icone.data.threads.CHUNKS_PER_WORKER", 10**6)
    pieces.clear()
    alone = load_data(config, source=opened)
    assert set(pieces) == {1}
    assert together.train.images is not None
    assert alone.train.images is not None
    assert torch.equal(together.train.images, alone.train.images)
    assert together.preparation == alone.preparation
    for fact, image in zip(facts, images, strict=True):
        kept = image[: fact.shape[1]].reshape(-1, 3)
        assert (fact.low, fact.high) == (tuple(kept.min(0)), tuple(kept.max(0)))
        places = np.random.default_rng(fact.position).integers(0, len(kept), fact.values.shape[1])
        assert (fact.values == kept[places].T).all()


OME = {"photometric": "minisblack", "metadata": {"axes": "CYX", "Channel": {"Name": ["DAPI", "GFP", "RFP"]}}}


@pytest.mark.parametrize(
    ("writing", "colour", "is_rgb", "shares_range"),
    [
        ({"photometric": "rgb"}, "auto", True, True),
        ({"photometric": "rgb"}, "no", False, False),
        (OME, "auto", False, False),
        (OME, "yes", True, True),
        ({"photometric": "minisblack", "imagej": True, "metadata": {"axes": "CYX"}}, "auto", False, False),
        (None, "auto", True, False),  # an array does not say what its channels are
    ],
)  # fmt: skip
def test_three_channels_are_colours_unless_the_files_declare_others(
    tmp_path: Path, writing: dict[str, Any] | None, colour: Any, is_rgb: bool, shares_range: bool
) -> None:
    images = RNG.integers(0, 60_000, (4, 3, 20, 24), dtype=np.uint16)
    folder = tmp_path / "images"
    folder.mkdir()
    for number, image in enumerate(images):
        if writing is None:
            np.save(folder / f"{number}.npy", image)
        else:
            stored = image if "metadata" in writing else np.moveaxis(image, 0, -1)
            name = f"{number}.tif" if writing.get("imagej") else f"{number}.ome.tif"
            tifffile.imwrite(folder / name, stored, **writing)
    found = load(folder, colour=colour)
    assert (found.preparation.is_rgb, found.preparation.shares_range) == (is_rgb, shares_range)
    assert any("no colours" in note for note in found.notes) == (not is_rgb and colour == "auto")
    described = make_views(PretrainConfig(source=str(folder)), found.preparation).describe()
    assert ("hue" in cast(dict[str, str], described["left_out"])) != is_rgb


def bad_samples() -> dict[str, tuple[npt.NDArray[Any] | bytes, str]]:
    nan = np.ones((16, 16), np.float32)
    nan[3, 3] = np.nan
    infinite = np.ones((16, 16), np.float32)
    infinite[0, 0] = np.inf
    return {
        "nan.npy": (nan, "holds NaN or infinite values"),
        "inf.npy": (infinite, "holds NaN or infinite values"),
        "minus_inf.npy": (-infinite, "holds NaN or infinite values"),
        "flat.npy": (np.full((16, 16), 7.0), "is constant: every value is 7"),
        "black.png": (np.zeros((16, 16), np.uint8), "is constant: every value is 0"),
        "text.png": (b"hello", "its content is not an image"),
        "void.npy": (np.zeros((0, 16, 16)), "is empty"),
    }


@pytest.mark.parametrize("name", bad_samples())
def test_bad_samples_are_errors_or_left_out(folder: Path, name: str) -> None:
    content, reason = bad_samples()[name]
    path = folder / "big" / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save(path, content)
    with pytest.raises(InputError, match=f"{name}.*{reason}.*skip_unreadable=True") as caught:
        load(folder)
    assert "more of" not in str(caught.value)
    lines: list[str] = []
    data = load_data(PretrainConfig(source=str(folder), size=16, skip_unreadable=True), report=lines.append)
    assert len(data.train) == 20
    assert f"big/{name}" not in data.train.ids
    assert [(problem.id, reason in problem.reason) for problem in data.skipped] == [(f"big/{name}", True)]
    assert dict(data.summary.lines())["skipped"] == f"1: {data.skipped[0].reason}"
    assert not any("left out" in text for text in [*lines, *data.notes])  # it is said once


def test_several_bad_files_are_counted(folder: Path) -> None:
    for name in ("x.png", "y.png", "z.png"):
        (folder / "big" / name).write_text("no image")
    with pytest.raises(InputError, match=r"x\.png.*\(2 more of 23 samples have problems\)"):
        load(folder)


def test_skipping_still_fills_the_subset(folder: Path) -> None:
    for k in range(10):
        (folder / "big" / f"a{k}.png").write_text("no image")
    assert len(load(folder, subset=20, skip_unreadable=True).train) == 20


def test_only_drawn_samples_are_read(folder: Path) -> None:
    drawn = set(load(folder, subset=5).train.ids)
    for name in set(open_source(str(folder), DataConfig()).ids) - drawn:
        (folder / name).write_text("broken since")
    assert set(load(folder, subset=5).train.ids) == drawn


def test_mixed_channels(folder: Path) -> None:
    save(folder / "small" / "colour.png", noise(16, 16, 3))
    with pytest.raises(InputError, match=r"has 1 and .*colour\.png has 3; .*channels=.gray. or channels=.rgb"):
        load(folder)
    for channels, count in (("gray", 1), ("rgb", 3)):
        images = load(folder, channels=channels).train.images
        assert images is not None
        assert images.shape == (21, count, 16, 16)


def test_other_channels_cannot_become_colours(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        save(tmp_path / name, noise(16, 16, 2))
    with pytest.raises(InputError, match="has 2 channels and cannot be turned into rgb"):
        load(tmp_path, channels="rgb")


def test_mixed_dimensions_within_a_type(tmp_path: Path) -> None:
    save(tmp_path / "a.npy", noise(16, 16))
    save(tmp_path / "b.npy", noise(16, 16, 16))
    with pytest.raises(InputError, match=r"a\.npy is 2D and .*b\.npy is 3D"):
        load(tmp_path, skip_unreadable=True)


@pytest.mark.parametrize("settings", [{}, {"test_fraction": 0.5}, {"skip_unreadable": True}])
def test_fewer_than_two_images(tmp_path: Path, settings: dict[str, Any]) -> None:
    save(tmp_path / "only.png", noise())
    if "skip_unreadable" in settings:
        (tmp_path / "text.png").write_text("no image")
    with pytest.raises(InputError, match=r"leaves 1 of . samples? to train on.*at least 2"):
        load(tmp_path, **settings)


def test_one_member_class_in_a_partition(folder: Path, tmp_path: Path) -> None:
    names = open_source(str(folder), DataConfig()).ids
    table = tmp_path / "labels.csv"
    rows = [f"{name},{'rare' if i == 3 else 'often'}" for i, name in enumerate(names)]
    table.write_text("id,label\n" + "\n".join(rows))
    with pytest.raises(InputError, match="class rare has one member"):
        load(folder, labels=table, test_fraction=0.2)


def test_a_subset_that_leaves_one_of_a_class_is_named(folder: Path, tmp_path: Path) -> None:
    names = open_source(str(folder), DataConfig()).ids
    table = tmp_path / "labels.csv"
    rows = [f"{name},{'rare' if i < 3 else 'often'}" for i, name in enumerate(names)]
    table.write_text("id,label\n" + "\n".join(rows))
    subset = len(names) // 3
    with pytest.raises(InputError, match=rf"subset={subset} keeps one of the 3 samples of class rare.*test_fraction"):
        load(folder, labels=table, test_fraction=0.2, subset=subset)
    data = load(folder, labels=table, test_fraction=0.2, subset=len(names) - 1)
    assert data.test is not None
    assert len(data.train) + len(data.test) == len(names) - 1


def test_one_sample_without_a_label_is_no_class(folder: Path, tmp_path: Path) -> None:
    names = open_source(str(folder), DataConfig()).ids
    table = tmp_path / "labels.csv"
    table.write_text("id,label\n" + "\n".join(f"{name},{'ab'[i % 2]}" for i, name in enumerate(names[1:])))
    data = load(folder, labels=table, test_fraction=0.2)
    assert names[0] in data.train.ids


def test_spacing_is_needed_of_every_volume(tmp_path: Path, write_nifti: Callable[..., None]) -> None:
    for name in ("a", "b"):
        write_nifti(tmp_path / f"{name}.nii.gz", noise(9, 10, 11), np.diag([1, 1, 2, 1]))
    data = load(tmp_path, spacing=1.0)
    assert data.preparation.spacing == 1.0
    save(tmp_path / "c.npy", noise(9, 10, 11))
    with pytest.raises(InputError, match=r"c\.npy does not say its spacing"):
        load(tmp_path, spacing=1.0)
    with pytest.raises(InputError, match=r"c\.npy does not say its spacing"):
        load_for_inference(str(tmp_path), data.preparation, PretrainConfig(source="unused"))


def test_a_spacing_that_is_missing_at_inference_is_said(tmp_path: Path, write_nifti: Callable[..., None]) -> None:
    for name in ("a", "b"):
        write_nifti(tmp_path / "scans" / f"{name}.nii.gz", noise(9, 10, 11), np.diag([1, 1, 2, 1]))
    preparation = load(tmp_path / "scans").preparation
    save(tmp_path / "arrays" / "c.npy", noise(9, 10, 11))
    lines: list[str] = []
    for folder in ("scans", "arrays"):
        load_for_inference(str(tmp_path / folder), preparation, PretrainConfig(source="unused"), report=lines.append)
    assert lines == ["1 of 1 sample does not say its spacing: its voxels are taken for cubes"]


def test_enlarging_is_noted_where_nobody_asked_for_the_size(folder: Path) -> None:
    assert "samples are enlarged from 16 to 224; --size=16 keeps their size" in load(folder, size=None).notes
    assert not any("enlarged" in note for note in load(folder, size=32).notes)


def test_inference_uses_the_given_preparation(folder: Path, tmp_path: Path) -> None:
    preparation = load(folder).preparation
    other = tmp_path / "other"
    save(other / "one.png", noise(32, 32))
    dataset = load_for_inference(str(other), preparation, PretrainConfig(source="unused"))
    assert dataset.ids == ("one.png",)
    assert dataset.images is not None
    assert dataset.images.shape == (1, 1, 16, 16)


def test_inference_refuses_what_the_encoder_cannot_take(folder: Path, tmp_path: Path) -> None:
    preparation = load(folder).preparation
    colour, thick = tmp_path / "colour", tmp_path / "thick"
    save(colour / "c.png", noise(16, 16, 3))
    save(thick / "t.npy", noise(16, 16, 16))
    config = PretrainConfig(source="unused")
    with pytest.raises(InputError, match=r"c\.png has 3 channels, but the encoder takes 1"):
        load_for_inference(str(colour), preparation, config)
    with pytest.raises(InputError, match=r"t\.npy has 3 spatial axes, but the encoder was trained on 2"):
        load_for_inference(str(thick), preparation, config)
    rgb = dataclasses.replace(preparation, channels=3)
    with pytest.raises(InputError, match=r"png has 1 channel, but the encoder takes 3: .*`icone.pretrain.*channels="):
        load_for_inference(str(folder / "big"), rgb, config)
    gray = dataclasses.replace(preparation, colour="gray")
    assert len(load_for_inference(str(colour), gray, config)) == 1


def test_inference_skips_and_lists(folder: Path) -> None:
    preparation = load(folder).preparation
    (folder / "big" / "broken.png").write_text("no image")
    config = PretrainConfig(source="unused", skip_unreadable=True)
    dataset = load_for_inference(str(folder), preparation, config)
    assert len(dataset) == 20
    assert [problem.id for problem in dataset.skipped] == ["big/broken.png"]
    for path in folder.rglob("*.png"):
        path.write_text("no image")
    with pytest.raises(InputError, match="none of the 21 samples"):
        load_for_inference(str(folder), preparation, config)


def test_a_file_that_vanishes_later_is_named(folder: Path) -> None:
    train = load(folder, memory_gb=0.0, cache="off").train
    assert train.paths[4] is not None
    train.paths[4].unlink()
    with pytest.raises(InputError, match=r"cannot read .*04\.png"):
        train.images_at(torch.tensor([4]))


def test_facts_do_not_depend_on_threads(folder: Path) -> None:
    source = open_source(str(folder), DataConfig())
    one, four = (inspect_source(source, DataConfig(), workers=workers).facts for workers in (1, 4))
    for a, b in zip(one, four, strict=True):
        assert a[:7] + a[8:] == b[:7] + b[8:]
        np.testing.assert_array_equal(a.values, b.values)
        assert set(a.values[0].astype(int)) <= set(source.read(a.position).array.ravel().tolist())


def test_facts_are_per_channel(tmp_path: Path) -> None:
    array = np.stack([noise(), noise() // 4 + 7, noise() // 16], axis=-1)
    save(tmp_path / "a.npy", array)
    (fact,) = inspect_source(open_source(str(tmp_path), DataConfig()), DataConfig()).facts
    assert fact.low == tuple(array.min((0, 1)).astype(float))
    assert fact.high == tuple(array.max((0, 1)).astype(float))
    flat, places = array.reshape(-1, 3).tolist(), fact.values.T.astype(int).tolist()
    assert all(place in flat for place in places)  # the same places in every channel


def test_facts_do_not_depend_on_the_order_in_memory(tmp_path: Path) -> None:
    """NIfTI stores the first axis fastest; a large volume is looked at as it lies, without a copy."""
    volume = np.random.default_rng(0).integers(-500, 500, (64, 60, 48), dtype=np.int16)
    assert volume.nbytes > SMALL
    save(tmp_path / "npy" / "a.npy", volume)
    (tmp_path / "nii").mkdir()
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / "nii" / "a.nii")
    (one,), (other,) = (
        inspect_source(open_source(str(tmp_path / name), DataConfig()), DataConfig()).facts for name in ("npy", "nii")
    )
    assert (one.low, one.high) == (other.low, other.high) == ((volume.min(),), (volume.max(),))
    np.testing.assert_array_equal(one.values, other.values)


MAXIMA = (65535, 5992, 731, 229)


@pytest.mark.parametrize("intensity", ["auto", "percentile", "sample"])
@pytest.mark.parametrize("suffix", ["tif", "npy"])
def test_every_channel_uses_the_whole_range(tmp_path: Path, suffix: str, intensity: str) -> None:
    for k in range(4):
        pixels = (RNG.uniform(0, 1, (16, 16, 4)) * MAXIMA).astype(np.uint16)
        pixels[0, 0], pixels[-1, -1] = 0, MAXIMA
        if suffix == "npy":
            save(tmp_path / f"{k}.npy", pixels)
        else:
            tifffile.imwrite(tmp_path / f"{k}.tif", pixels)
    data = load(tmp_path, intensity=intensity)
    assert data.train.images is not None
    assert data.train.images.shape == (4, 4, 16, 16)
    assert data.train.images.amax((2, 3)).eq(1).all()
    torch.testing.assert_close(data.train.images.mean((0, 2, 3)), torch.full((4,), 0.5), atol=0.05, rtol=0)
    note = next(note for note in data.notes if note.startswith("intensity: "))
    assert ("each channel by itself" if intensity == "sample" else "channel 4: ") in note
    dataset = load_for_inference(str(tmp_path), data.preparation, PretrainConfig(source="unused"))
    assert torch.equal(dataset.images_at(torch.arange(4)), data.train.images)


def test_a_dead_channel_is_zero_and_noted(tmp_path: Path) -> None:
    for k in range(4):
        pixels = RNG.normal(size=(16, 16, 2))
        pixels[..., 1] = 1e8
        save(tmp_path / f"{k}.npy", pixels)
    for intensity in ("auto", "percentile", "sample"):
        data = load(tmp_path, intensity=intensity)
        assert data.train.images is not None
        assert data.train.images[:, 1].eq(0).all()
        assert data.train.images[:, 0].amax() == 1
        assert any(note.startswith("channel 2 is constant over all training samples") for note in data.notes)


def test_a_window_is_the_same_for_all(tmp_path: Path) -> None:
    for k in range(2):
        save(tmp_path / f"{k}.npy", np.linspace(-1000, 3000, 16 * 16 * 2).reshape(16, 16, 2) + k)
    data = load(tmp_path, window=(-160, 240))
    raw = torch.from_numpy(np.stack([np.load(tmp_path / f"{k}.npy") for k in range(2)])).movedim(-1, 1)
    torch.testing.assert_close(data.train.images, ((raw + 160) / 400).clamp(0, 1).float())
    assert "intensity: -160 to 240 becomes 0 to 1" in data.notes
    with pytest.raises(InputError, match="window= is for images and volumes"):
        load_data(PretrainConfig(source="synthetic:gaussians@x10", window=(0, 1)))


def test_a_window_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 60_000, (6, 16, 16)).astype(np.uint16))
    load_data(PretrainConfig(source=str(tmp_path / "a.npy"), window=(100, 50_000), cache="off"))
    with pytest.raises(InputError, match=r"window=.100000, 200000. leaves nothing of .*whose values are"):
        load_data(PretrainConfig(source=str(tmp_path / "a.npy"), window=(100_000, 200_000), cache="off"))


def test_a_window_beside_the_values_and_a_table_beside_the_files_are_told(tmp_path: Path) -> None:
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", np.arange(256 * i, 256 * i + 1024, dtype=np.float32).reshape(32, 32))
    (tmp_path / "labels.csv").write_text("file,label\n0.npy,a\n")
    said = " ".join(load_data(PretrainConfig(source=str(tmp_path), size=32, window=(-160, 1000))).notes)
    assert "--window" not in said
    assert f"--labels={tmp_path}/labels.csv reads them" in said
    said = " ".join(load_data(PretrainConfig(source=str(tmp_path), size=32, window=(-160, 800))).notes)
    assert '--window="-160 800" does not hold' in said
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "table.csv").write_text("file,label\nb.npy,a\n")
    with pytest.raises(InputError, match=r"there is no file .*b\.npy.*FOLDER labels=.*table\.csv"):
        load_data(PretrainConfig(source=str(tmp_path / "elsewhere" / "table.csv")))
