"""One array of many samples: axes, splits, labels, laziness, and what is refused."""

from __future__ import annotations

import os
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

from icone.config import DataConfig, PretrainConfig
from icone.data import load_data, memory, open_source
from icone.data.formats import npy
from icone.data.identity import DigestMemory
from icone.errors import InputError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "dims", "sample"),
    [
        ((5, 2), 0, (2,)),
        ((5, 12, 10), 2, (1, 12, 10)),
        ((5, 12, 10, 3), 2, (3, 12, 10)),
        ((5, 3, 12, 10), 2, (3, 12, 10)),
        ((5, 12, 10, 11), 3, (1, 12, 10, 11)),
        ((5, 12, 10, 11, 2), 3, (2, 12, 10, 11)),
        ((5, 2, 12, 10, 11), 3, (2, 12, 10, 11)),
    ],
)
@pytest.mark.parametrize("kind", ["npy", "npz", "zarr"])
def test_axes(tmp_path: Path, kind: str, shape: tuple[int, ...], dims: int, sample: tuple[int, ...]) -> None:
    array = RNG.integers(0, 1000, shape).astype(np.int16)
    path = tmp_path / f"data.{kind}"
    if kind == "npy":
        np.save(path, array)
    elif kind == "npz":
        np.savez_compressed(path, array)
    else:
        zarr.create_array(str(path), data=array)
    source = open_source(str(path), DataConfig())
    assert (source.spatial_dims, len(source), source.labels) == (dims, 5, None)
    assert source.ids == ("000000", "000001", "000002", "000003", "000004")
    read = source.read(3).array
    assert read.shape == sample
    assert read.dtype == np.int16
    moved = array[3] if sample == shape[1:] else array[3][None]
    if len(shape) > 3 and shape[-1] < 4:
        moved = np.moveaxis(array[3], -1, 0)
    np.testing.assert_array_equal(read, moved)


def test_splits_with_labels(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for k, split in enumerate(("train", "val", "test")):
        arrays[f"{split}_images"] = np.full((3 + k, 8, 8), k, np.uint8)
        arrays[f"{split}_labels"] = np.arange(3 + k, dtype=np.uint8)[:, None] % 2
    np.savez(tmp_path / "set.npz", **arrays)
    for k, split in enumerate(("train", "val", "test")):
        source = open_source(str(tmp_path / "set.npz"), DataConfig(split=split))  # type: ignore[arg-type]
        assert source.read(0).array[0, 0, 0] == k
        assert source.labels == tuple(str(i % 2) for i in range(3 + k))


def test_missing_split_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", train_images=np.zeros((2, 8, 8)))
    with pytest.raises(InputError, match="no split 'test'; it has train"):
        open_source(str(tmp_path / "set.npz"), DataConfig(split="test"))


def test_plain_labels_beside_the_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=np.zeros((3, 8, 8)), labels=np.array(["b", "a", "b"]))
    assert open_source(str(tmp_path / "set.npz"), DataConfig()).labels == ("b", "a", "b")
    np.savez(tmp_path / "short.npz", images=np.zeros((3, 8, 8)), labels=np.array(["b", "a"]))
    with pytest.raises(InputError, match="3 samples but 2 labels"):
        open_source(str(tmp_path / "short.npz"), DataConfig())


@pytest.mark.filterwarnings("ignore:The data type")  # of texts has no specification in Zarr yet
@pytest.mark.parametrize("kind", ["npz", "npz of bytes", "h5", "h5 of bytes", "zarr"])
def test_texts_are_labels_as_they_are_in_python(tmp_path: Path, kind: str) -> None:
    images, labels = np.zeros((4, 8, 8)), np.array(["b", "", " a ", "b"])
    path = tmp_path / f"set.{kind.split()[0]}"
    if kind == "zarr":
        group = zarr.create_group(str(path))
        group.create_array("images", data=images)
        group.create_array("labels", data=labels)
    elif kind.startswith("npz"):
        np.savez(path, images=images, labels=labels.astype("S") if "bytes" in kind else labels)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["images"] = images
            file["labels"] = labels.astype("S") if "bytes" in kind else labels.tolist()
    found = open_source(str(path), DataConfig()).labels
    assert found == ("b", None, "a", "b") == open_source(images, DataConfig(), labels.tolist()).labels


def test_zarr_group(tmp_path: Path) -> None:
    group = zarr.create_group(str(tmp_path / "set.zarr"))
    group.create_array("images", data=np.arange(192).reshape(3, 8, 8))
    group.create_array("labels", data=np.array([1, 0, 1]))
    source = open_source(str(tmp_path / "set.zarr"), DataConfig())
    assert source.labels == ("1", "0", "1")
    np.testing.assert_array_equal(source.read(2).array[0], np.arange(128, 192).reshape(8, 8))


def test_several_labels_per_sample_and_real_numbers(tmp_path: Path) -> None:
    labels = np.eye(3, 14, dtype=int) + np.eye(3, 14, 1, dtype=int)
    np.savez(tmp_path / "set.npz", images=np.zeros((3, 8, 8)), labels=labels)
    several = open_source(str(tmp_path / "set.npz"), DataConfig())
    assert several.labels == ("0|1", "1|2", "2|3")
    assert several.task == "multilabel"
    np.savez(tmp_path / "set.npz", images=np.zeros((3, 8, 8)), labels=np.array([0.5, 2, np.nan]))
    numbers = open_source(str(tmp_path / "set.npz"), DataConfig())
    assert (numbers.labels, numbers.task) == (("0.5", "2", None), "regression")


def test_texts_of_a_dataframe_are_told_apart_from_a_damaged_file(tmp_path: Path) -> None:
    """A column of few texts takes fewer bytes than one per pointer, so that the file seemed to be truncated."""
    images, texts = np.zeros((351, 2, 2)), np.array(["benign", "malign", "benign"] * 117, dtype=object)
    path = tmp_path / "cells.npz"
    np.savez(path, images=images, labels=texts)
    with pytest.raises(InputError, match=r"its array labels holds Python objects.*save labels\.astype\(str\)"):
        open_source(str(path), DataConfig())
    np.savez(path, images=images, notes=texts)  # what nobody asks for is no obstacle
    assert len(open_source(str(path), DataConfig())) == 351
    np.savez(path, images=images, labels=texts.astype(str))
    assert set(open_source(str(path), DataConfig()).labels or ()) == {"benign", "malign"}
    np.save(tmp_path / "cells.npy", texts)
    with pytest.raises(InputError, match=r"cells\.npy: it.* holds Python objects.*array\.astype\(str\)"):
        open_source(str(tmp_path / "cells.npy"), DataConfig())
    np.savez(path, image=texts.reshape(-1, 3))
    with pytest.raises(InputError, match=r"cells\.npz: its array image holds Python objects"):
        open_source([path], DataConfig())


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_objects_are_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.write_text, (tmp_path / "sprung", "!"))

    array = np.array([[Trap(), Trap()]], dtype=object)
    if name.endswith("npy"):
        np.save(tmp_path / name, array, allow_pickle=True)
    else:
        np.savez(tmp_path / name, images=array)
    with pytest.raises(InputError, match=f"{name}: .*pickles are never opened"):
        open_source(str(tmp_path / name), DataConfig())
    assert not (tmp_path / "sprung").exists()


def test_object_labels_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8)), labels=np.array(["a", None], dtype=object))
    with pytest.raises(InputError, match=r"a\.npz"):
        open_source(str(tmp_path / "a.npz"), DataConfig())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), "at least the axes"),
        (np.zeros((0, 8, 8)), "holds nothing"),
        (np.zeros((2, 3, 4, 5, 6, 7)), "two to four axes"),
    ],
)
def test_shapes_that_are_no_samples(tmp_path: Path, array: npt.NDArray[np.float64], message: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=message):
        open_source(str(tmp_path / "a.npy"), DataConfig())


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.zarr"])
def test_missing_or_broken_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"there is no file .*{name}"):
        open_source(str(tmp_path / name), DataConfig())
    (tmp_path / name).write_bytes(b"not an array at all")
    with pytest.raises(InputError, match=f"cannot read .*{name}"):
        open_source(str(tmp_path / name), DataConfig())


def test_npz_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", np.zeros((100, 100, 100), np.uint8))
    source = open_source(str(tmp_path / "a.npz"), DataConfig())
    monkeypatch.setattr(memory, "free_bytes", lambda: 500_000)
    with pytest.raises(InputError, match=r"needs 0\.0 GB of memory but .* save it as \.npy or \.zarr"):
        source.read(0)


def test_close_frees_and_reading_goes_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", np.arange(128).reshape(2, 8, 8))
    source = open_source(str(tmp_path / "a.npz"), DataConfig())
    before = source.read(1).array.copy()
    whole = weakref.ref(source._array)  # type: ignore[attr-defined]
    source.close()
    assert whole() is None
    np.testing.assert_array_equal(source.read(1).array, before)


def test_fingerprint_follows_shape_and_type(tmp_path: Path) -> None:
    digests = set()
    for array in (np.zeros((3, 8, 8)), np.zeros((3, 8, 8), np.uint8), np.zeros((3, 8, 9)), np.zeros((4, 8, 8))):
        np.save(tmp_path / "a.npy", array)
        digests.add(open_source(str(tmp_path / "a.npy"), DataConfig()).fingerprint())
    assert len(digests) == 4


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i2", ">f4", "|b1"])
def test_orders_and_types_of_an_npy(tmp_path: Path, order: Any, dtype: str) -> None:
    array = np.asarray(RNG.integers(0, 2, (5, 6, 7)).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", array)
    source = open_source(str(tmp_path / "a.npy"), DataConfig())
    read = source._read(3).array
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array[3][None])
    rows: Any = source._store.load("array")  # type: ignore[attr-defined]
    np.testing.assert_array_equal(rows[1:4], array[1:4])
    np.testing.assert_array_equal(rows[3:9], array[3:])


def test_an_npy_in_fortran_order_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 60, 70), order="F"))
    source = open_source(str(tmp_path / "a.npy"), DataConfig())
    monkeypatch.setattr(memory, "free_bytes", lambda: 1000)
    with pytest.raises(InputError, match=r"a\.npy, which is in Fortran order, needs .* save it in C order"):
        source.read(0)


@pytest.mark.parametrize("is_single", [False, True], ids=["array of samples", "one sample"])
@pytest.mark.parametrize("keep", [60, 128, 2000])
def test_an_npy_that_is_cut_while_it_is_used(tmp_path: Path, keep: int, is_single: bool) -> None:
    """Mapped into memory, this would end the process by SIGBUS."""
    path = tmp_path / "a.npy"
    np.save(path, RNG.normal(size=(4, 16, 16)))
    source = open_source(str(tmp_path if is_single else path), DataConfig())
    first = source.read(0).array
    os.truncate(path, keep)
    with pytest.raises(InputError, match=r"cannot read .*a\.npy: "):
        source.read(0 if is_single else 3)
    assert np.isfinite(first).all()  # what was read stays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_of_a_large_npz_only_the_rows_that_are_drawn_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any
) -> None:
    """40 of 2,000 rows of 12 KB; the file has two members, so the large one does not begin where the file does."""
    monkeypatch.setattr(npy, "WHOLE", 2**20)
    monkeypatch.setattr(npy, "RECENT", 2**20)
    images = RNG.integers(0, 256, (2000, 64, 64, 3), dtype=np.uint8)
    save(tmp_path / "data.npz", train_labels=np.arange(2000)[:, None] % 2, train_images=images)
    drawn = sorted(RNG.choice(2000, 40, replace=False).tolist())
    tracemalloc.start()
    source = open_source(str(tmp_path / "data.npz"), DataConfig())
    digests = source.digests(drawn, DigestMemory())
    samples = [source.read(position).array for position in drawn]
    backwards = [source.read(position).array for position in (drawn[3], 7, 1900, 2)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6 < images.nbytes / 4
    expected = np.moveaxis(images, -1, 1)
    np.testing.assert_array_equal(samples, expected[drawn])
    np.testing.assert_array_equal(backwards, expected[[drawn[3], 7, 1900, 2]])
    np.save(tmp_path / "plain.npy", images)
    assert digests == open_source(str(tmp_path / "plain.npy"), DataConfig()).digests(drawn, DigestMemory())


def test_a_subset_of_a_large_compressed_npz_takes_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspection, digests and preparation, each with several threads, ask for the same rows."""
    monkeypatch.setattr(npy, "WHOLE", 2**10)
    passes = []
    stream = npy.StreamedRows._stream

    def counted(rows: npy.StreamedRows) -> Iterator[npt.NDArray[Any]]:
        passes.append(1)
        return stream(rows)

    monkeypatch.setattr(npy.StreamedRows, "_stream", counted)
    images = RNG.integers(0, 256, (300, 16, 16), dtype=np.uint8)
    np.savez_compressed(tmp_path / "data.npz", images=images, labels=np.arange(300) % 2)
    config = PretrainConfig(source=str(tmp_path / "data.npz"), subset=50, test_fraction=0.2, workers=4, size=16)
    train = load_data(config).train
    assert len(train) == 40
    assert sum(passes) == 1
    assert train.images is not None
    np.testing.assert_array_equal(train.images[:, 0], images[list(train.positions)])
