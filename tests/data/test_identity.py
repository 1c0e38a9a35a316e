"""Samples are known by their whole content, whatever holds them; what was read before is not read again."""

from __future__ import annotations

import io
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from icone.api.pretrain import pretrain
from icone.config import DataConfig
from icone.data import DigestMemory, compare_instances, identity, open_source
from icone.data.identity import file_digest
from icone.errors import InputError
from icone.training.checkpoint import load_state, save_state

Array = np.ndarray[Any, Any]


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(1, 200, shape, dtype=np.uint8)


def write_series(folder: Path, volume: Array) -> None:
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in enumerate(volume):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = CTImageStorage, ExplicitVRLittleEndian
        meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[str(folder), str(number)])
        one: Any = FileDataset(str(folder), {}, file_meta=meta, preamble=b"\0" * 128)
        one.SOPClassUID, one.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        one.SeriesInstanceUID = generate_uid(entropy_srcs=[str(folder)])
        one.Rows, one.Columns = pixels.shape
        one.BitsAllocated = one.BitsStored = 16
        one.HighBit, one.PixelRepresentation, one.SamplesPerPixel = 15, 0, 1
        one.PhotometricInterpretation = "MONOCHROME2"
        one.PixelSpacing, one.ImageOrientationPatient = [1.0, 1.0], [1, 0, 0, 0, 1, 0]
        one.ImagePositionPatient = [0.0, 0.0, float(number)]
        one.PixelData = pixels.astype(np.uint16).tobytes()
        pydicom.dcmwrite(folder / f"{number}.dcm", one, enforce_file_format=True)


def write_folder(place: Path, samples: Array) -> None:
    place.mkdir(exist_ok=True)
    for number, pixels in enumerate(samples):
        Image.fromarray(pixels[:, :, 0]).save(place / f"{number}.png")


def write_nifti(place: Path, samples: Array) -> None:
    import nibabel

    place.mkdir(exist_ok=True)
    for number, voxels in enumerate(samples):
        around: Array = np.zeros((40, 40, 40), np.uint8)  # so much empty around it that both ends are the same
        around[16:24, 16:24, 16:24] = voxels
        make: Any = nibabel.Nifti1Image
        nibabel.save(make(around, np.eye(4)), place / f"{number}.nii")


def write_all_series(place: Path, samples: Array) -> None:
    for number, voxels in enumerate(samples):
        write_series(place / str(number), voxels)


def write_zarr(place: Path, samples: Array) -> None:
    import zarr

    save: Any = zarr.save
    shutil.rmtree(place, ignore_errors=True)
    save(str(place), samples)


Write = Callable[[Path, Array], None]
KINDS: dict[str, tuple[str, Write, tuple[str, str]]] = {
    "images": ("data", write_folder, ("2.png", "3.png")),
    "nifti": ("data", write_nifti, ("2.nii", "3.nii")),
    "dicom": ("data", write_all_series, ("2", "3")),
    "npy": ("data.npy", lambda path, samples: np.save(path, samples), ("000002", "000003")),
    "npz": ("data.npz", lambda path, samples: np.savez_compressed(path, images=samples), ("000002", "000003")),
    "zarr": ("data.zarr", write_zarr, ("000002", "000003")),
}
"""File name, writer of samples (N, 8, 8, 8), ids of the third and the fourth sample."""
TINY: dict[str, Any] = {"size": 16, "epochs": 1, "batch_size": 3, "device": "cpu", "probe_every": 0}


def settings_of(kind: str) -> dict[str, Any]:
    return TINY | (
        {"encoder": "resnet10t", "size": 32} if kind == "images" else {"encoder": "resnet10_3d", "width": 0.125}
    )


def quiet() -> Console:
    return Console(file=io.StringIO())


def digests(place: Path, memory: DigestMemory | None = None) -> list[str]:
    source = open_source(str(place), DataConfig())
    return source.digests(range(len(source)), memory or DigestMemory())


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_value_changes_one_digest_and_a_gained_sample_none(kind: str, tmp_path: Path) -> None:
    name, write, _ = KINDS[kind]
    samples = noise(4, 8, 8, 8)
    write(tmp_path / name, samples[:3])
    before = digests(tmp_path / name)
    assert len(set(before)) == 3
    write(tmp_path / name, samples)
    assert digests(tmp_path / name)[:3] == before
    samples[1, 4, 4, 0] ^= 1
    write(tmp_path / name, samples)
    assert [a == b for a, b in zip(digests(tmp_path / name), before, strict=False)] == [True, False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_resume_refuses_changed_content_by_name_and_extend_goes_on(kind: str, tmp_path: Path) -> None:
    name, write, (changed, gained) = KINDS[kind]
    settings = settings_of(kind)
    samples = noise(3, 8, 8, 8)
    write(tmp_path / name, samples)
    pretrain(tmp_path / name, **settings, out=tmp_path / "run", console=quiet())
    samples[2, 4, 4, 0] ^= 1
    write(tmp_path / name, np.concatenate([samples, noise(1, 8, 8, 8, seed=1)]))
    with pytest.raises(InputError, match=rf"gained 1: {gained}; changed content 1: {changed}"):
        pretrain(tmp_path / name, **settings, out=tmp_path / "run", resume=True, console=quiet())
    run = pretrain(tmp_path / name, **settings, out=tmp_path / "run", extend=True, console=quiet())
    assert len(load_state(run).ids) == 4


def test_generated_sets_are_told_apart() -> None:
    specs = ["synthetic:cells@16x4", "synthetic:cells@24x4", "synthetic:shapes@16x4"]
    found = [open_source(s, DataConfig(split=split)) for s in specs for split in ("train", "test")]
    assert len({d for source in found for d in source.digests(range(4), DigestMemory())}) == 4 * len(found)


@pytest.mark.parametrize(
    ("old", "new", "said", "rows"),
    [
        ({"a": "0", "b": "0"}, {"c": "0", "d": "0"}, "renamed 2: a -> c, b -> d", [0, 1]),
        ({"a": "0", "b": "0"}, {"a": "0", "d": "0"}, "renamed 1: b -> d", [0, 1]),
        ({"a": "0", "b": "0"}, {"c": "0"}, "lost 1: b; renamed 1: a -> c", [0]),
        ({"a": "0"}, {"a": "0", "b": "0"}, "gained 1: b", [0, None]),
        ({"a": "1", "b": "2"}, {"a": "2", "b": "1"}, "renamed 2: b -> a, a -> b", [1, 0]),
        ({"a": "1", "b": "2"}, {"a": "3", "b": "2"}, "changed content 1: a", [0, 1]),
        ({"a": "1"}, {"a": "2", "b": "1"}, "gained 1: a; renamed 1: a -> b", [None, 0]),
        ({"0": "x", "1": "y"}, {"0": "n", "1": "x", "2": "y"}, "gained 1: 0; renamed 2: 0 -> 1, 1 -> 2", [None, 0, 1]),
    ],
)
def test_instances_are_matched_one_to_one_by_content(
    old: dict[str, str], new: dict[str, str], said: str, rows: list[int | None]
) -> None:
    change = compare_instances(list(old), old, list(new), new)
    assert (str(change), change.rows) == (said, rows)


def test_names_alone_decide_where_contents_are_not_known() -> None:
    assert not compare_instances(["a", "b"], {}, ["a", "b"], {"a": "1", "b": "2"})
    assert str(compare_instances(["a", "b"], {}, ["a", "c"], {"a": "1", "c": "2"})) == "gained 1: c; lost 1: b"


def test_digests_of_another_version_are_not_compared(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", noise(8, 2))
    settings = TINY | {"size": None, "features": 4}
    run = pretrain(tmp_path / "data.npy", **settings, out=tmp_path / "run", console=quiet())
    from icone.training import checkpoint

    saved = load_state(run)
    saved.digest_version, saved.digests = 1, ["0" * 24] * 8
    book = checkpoint.StateBook(**{f: getattr(saved, f) for f in checkpoint.StateBook.__dataclass_fields__})
    step: Any = SimpleNamespace(ranks=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_tensors", lambda _: saved.tensors)
        save_state(run, step, book)
    console = Console(file=io.StringIO(), width=500)
    pretrain(tmp_path / "data.npy", **settings, out=run.folder, resume=True, console=console)
    assert "digests of another version" in console.file.getvalue()  # type: ignore[attr-defined]
    assert load_state(run).digest_version == identity.DIGEST_VERSION


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files for older than they are: their inode's time cannot be set back."""
    monkeypatch.setattr(identity, "SETTLED", -1)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read for a digest."""
    found: list[Any] = []
    of_file, of_parts = identity._hash_file, identity.content_digest

    def noting(function: Callable[..., str], *parts: Any) -> str:
        found.append(parts)
        return function(*parts)

    monkeypatch.setattr(identity, "_hash_file", partial(noting, of_file))
    monkeypatch.setattr("icone.data.sources.array_file.content_digest", partial(noting, of_parts))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("settled")
def test_what_has_not_changed_is_not_read_again(kind: str, tmp_path: Path, hashed: list[Any]) -> None:
    name, write, _ = KINDS[kind]
    samples = noise(3, 8, 8, 8)
    write(tmp_path / name, samples)

    def again() -> list[str]:
        memory = DigestMemory(tmp_path / "cache", name)
        found = digests(tmp_path / name, memory)
        memory.save()
        hashed_now.append(len(hashed))
        hashed.clear()
        return found

    hashed_now: list[int] = []
    first = again()
    assert again() == first
    samples[0, 0, 0, 0] ^= 1
    write(tmp_path / name, samples)
    assert again()[1:] == first[1:]
    assert hashed_now[0] > 0
    assert hashed_now[1] == 0
    assert hashed_now[2] > 0


def test_a_fresh_file_is_not_remembered_because_its_times_may_not_move(tmp_path: Path) -> None:
    file = tmp_path / "file"
    memory = DigestMemory(tmp_path / "cache", "x")
    found = set()
    for text in ("one", "two", "six"):
        file.write_text(text)
        os.utime(file, ns=(1, 1))
        found |= {memory.of_file(file), file_digest(file)}
    assert len(found) == 3
    memory.save()
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", [b"", b"{}", b"\0" * 100, b"half", b"flipped", b"unsealed", b"folder", b"links"])
def test_a_damaged_memory_gives_no_wrong_digest(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    memory = DigestMemory(tmp_path / "cache", "x")
    right = memory.of_file(tmp_path / "file")
    memory.save()
    (kept,) = (tmp_path / "cache" / "digests").iterdir()
    content = kept.read_bytes()
    kept.unlink()
    if damage == b"folder":
        kept.mkdir()
    elif damage == b"links":
        kept.symlink_to(kept)
    else:
        wrong = content.replace(right.encode(), b"0" * len(right))
        kept.write_bytes(
            {b"half": content[: len(content) // 2], b"flipped": wrong, b"unsealed": wrong.partition(b"\n")[2]}.get(
                damage, damage
            )
        )
    memory = DigestMemory(tmp_path / "cache", "x")
    assert memory.of_file(tmp_path / "file") == right
    memory.save()


@pytest.mark.usefixtures("settled")
def test_many_writers_of_one_memory(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}").write_text(str(number))
    right = [file_digest(tmp_path / f"{number}") for number in range(8)]

    def work(number: int) -> None:
        for _ in range(10):
            memory = DigestMemory(tmp_path / "cache", "x")
            assert memory.of_file(tmp_path / f"{number}") == right[number]
            memory.keep("always", "new", str(time.time()))
            memory.save()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list((tmp_path / "cache" / "digests").iterdir())) == 1


def test_without_a_cache_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save(tmp_path / "data.npy", noise(8, 2))
    settings = TINY | {"size": None, "features": 4}
    pretrain(tmp_path / "data.npy", **settings, cache="off", out=tmp_path / "run", console=quiet())
    assert not (tmp_path / "cache").exists()


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", noise(3, 8, 8, 1))
    source = open_source(str(tmp_path / "data"), DataConfig())
    (tmp_path / "data" / "1.png").unlink()
    with pytest.raises(InputError, match=r"cannot read .*1\.png"):
        source.digests(range(3), DigestMemory())


@pytest.mark.parametrize("place", ["data/run", "data/deep/down/run", "data"])
def test_a_run_folder_inside_the_data_is_refused(place: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "data", noise(3, 8, 8, 1))
    with pytest.raises(InputError, match=r"run folder .* lies inside the data .* out="):
        pretrain(tmp_path / "data", **settings_of("images"), out=tmp_path / place, console=quiet())
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["0.png", "1.png", "2.png"]


def test_a_hidden_run_folder_inside_the_data_is_passed_over(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", noise(3, 8, 8, 1))
    place = tmp_path / "data" / ".run"
    assert pretrain(tmp_path / "data", **settings_of("images"), out=place, console=quiet()).finished


def test_seeding_leaves_other_gpus_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(seed: int) -> None:
        raise AssertionError("all GPUs were seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", forbidden)
    settings: dict[str, Any] = {"epochs": 1, "features": 4, "batch_size": 16, "device": "cpu"}
    from icone.api.evaluate import evaluate

    run = pretrain("synthetic:gaussians@x20", **settings, out=tmp_path / "run", console=quiet())
    evaluate(run, untrained=True, geometry_instances=4, device="cpu", console=quiet())
