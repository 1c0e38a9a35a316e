"""Listing folders: what counts, what is passed over, what becomes a class."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icone.config import DataConfig, PretrainConfig
from icone.data import load_data, open_source, read_labels
from icone.errors import InputError

VOLUME = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def image(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.arange(value, value + 12, dtype=np.uint8).reshape(3, 4)).save(path)


def ids(folder: Path) -> tuple[str, ...]:
    return open_source(str(folder), DataConfig()).ids


def fingerprint(folder: Path) -> str:
    return open_source(str(folder), DataConfig()).fingerprint()


def test_lists_recursively_and_passes_over_the_rest(tmp_path: Path) -> None:
    for name in ("b.png", "a.png", "deep/er/c.jpg", ".hidden.png", ".git/d.png", "__MACOSX/e.png"):
        image(tmp_path / name)
    for name in ("labels.csv", "README", "notes.txt"):
        (tmp_path / name).write_text("x")
    source = open_source(str(tmp_path), DataConfig())
    assert source.ids == ("a.png", "b.png", "deep/er/c.jpg")
    assert source.paths == tuple(tmp_path / name for name in source.ids)
    assert source.spatial_dims == 2
    assert source.labels is None


@pytest.mark.parametrize("channels_from", [None, "{id}_{red,green}.png"])
def test_the_own_table_of_labels_is_no_file_of_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channels_from: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("0_red", "0_green"):
        image(tmp_path / "cells" / f"{name}.png")
    (tmp_path / "cells" / "labels.csv").write_text("id,label\n0,a\n0_red,a\n")
    config = DataConfig(labels=Path("cells/labels.csv"), channels_from=channels_from)
    assert not [note for note in open_source("./cells", config).notes if "other types" in note]
    (tmp_path / "cells" / "others.csv").write_text("x")
    assert "files of other types are passed over: 1 .csv" in open_source("./cells", config).notes


def test_links_are_followed_without_circles(tmp_path: Path) -> None:
    image(tmp_path / "elsewhere" / "a.png")
    folder = tmp_path / "data"
    image(folder / "b.png")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "circle").symlink_to(folder)
    assert ids(folder) == ("b.png", "linked/a.png")


def test_subfolders_are_classes(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/x/2.png", "dog/1.png", "dog/2.png"):
        image(tmp_path / name)
    assert open_source(str(tmp_path), DataConfig()).labels == ("cat", "cat", "dog", "dog")


@pytest.mark.parametrize(
    "names",
    [
        ["cat/1.png", "cat/2.png", "dog/1.png"],
        ["cat/1.png", "cat/2.png"],
        ["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png", "top.png"],
        ["train/1.png", "train/2.png", "Test/1.png", "Test/2.png"],
    ],
    ids=["lone file", "one folder", "file at the top", "splits"],
)
def test_folders_that_are_no_classes(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        image(tmp_path / name)
    assert open_source(str(tmp_path), DataConfig()).labels is None


def test_one_volume_per_patient_is_no_class(tmp_path: Path, write_nifti: Callable[..., None]) -> None:
    for patient in ("p1", "p2", "p3"):
        write_nifti(tmp_path / patient / "scan.nii.gz", VOLUME)
    source = open_source(str(tmp_path), DataConfig())
    assert source.labels is None
    assert source.ids == ("p1/scan.nii.gz", "p2/scan.nii.gz", "p3/scan.nii.gz")


def test_mixed_dimensions_name_one_of_each(tmp_path: Path, write_nifti: Callable[..., None]) -> None:
    image(tmp_path / "flat.png")
    write_nifti(tmp_path / "thick.nii", VOLUME)
    with pytest.raises(InputError, match=r"flat\.png is 2D and .*thick\.nii is 3D"):
        open_source(str(tmp_path), DataConfig())


def test_dimensions_of_open_types_come_from_the_first_readable(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"broken")
    np.save(tmp_path / "b.npy", np.zeros((8, 9, 10)))
    assert open_source(str(tmp_path), DataConfig()).spatial_dims == 3


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"the only file cannot be read: .*a\.npy"):
        open_source(str(tmp_path), DataConfig())


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*nowhere"):
        open_source(str(tmp_path / "nowhere"), DataConfig())
    with pytest.raises(InputError, match=r"it is empty; files that can be read end with \.png"):
        open_source(str(tmp_path), DataConfig())
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"it holds files with the suffixes \.txt"):
        open_source(str(tmp_path), DataConfig())


def test_single_file_is_explained(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"a\.png is one file; give the folder"):
        open_source(str(tmp_path / "a.png"), DataConfig())


def test_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:  # chmod would not stop a test that runs as root
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match="no permission to read the folder"):
        open_source(str(tmp_path), DataConfig())


class Entry:
    """A directory entry that behaves as one that is gone or closed by the time it is looked at."""

    def __init__(self, name: str, error: type[OSError] | None = None) -> None:
        self.name, self.path, self._error = name, f"/nowhere/{name}", error

    def is_symlink(self) -> bool:
        return False

    def is_dir(self) -> bool:
        if self._error:
            raise self._error(0, "gone")
        return "." not in self.name

    def is_file(self) -> bool:
        return not self.is_dir()


def test_what_vanishes_while_a_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(tmp_path / "a.png")
    really = os.scandir

    def scan(path: Path) -> object:
        entries = list(really(path))
        return contextlib.nullcontext([*entries, Entry("gone.png"), Entry("folder"), Entry("IM0001.")])

    monkeypatch.setattr(os, "scandir", lambda path: scan(path) if path == tmp_path else really(path))
    source = open_source(str(tmp_path), DataConfig())
    assert source.ids == ("a.png", "gone.png")
    assert source.fingerprint()
    with pytest.raises(InputError, match=r"cannot read .*gone\.png: .*No such file"):
        source.read(1)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied"), "no permission to read the folder .*closed; change its rights"),
        (OSError(5, "Input/output error"), "cannot list the folder .*closed: .*Input/output error"),
        (NotADirectoryError(20, "Not a directory"), "cannot list the folder .*closed: .*Not a directory"),
    ],
)
def test_a_subfolder_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    image(tmp_path / "a.png")
    image(tmp_path / "closed" / "b.png")
    really = os.scandir

    def scan(path: Path) -> object:
        if path.name == "closed":
            raise error
        return really(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(InputError, match=message):
        open_source(str(tmp_path), DataConfig())


def test_links_that_lead_nowhere_are_named_and_can_be_left_out(tmp_path: Path) -> None:
    for k in range(3):
        image(tmp_path / f"{k}.png", k)
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "missing.png").symlink_to(tmp_path / "elsewhere.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "pipe2.png").symlink_to("pipe.png")  # opening it would wait for ever
    assert ids(tmp_path) == ("0.png", "1.png", "2.png", "loop.png", "missing.png")
    settings = {"source": str(tmp_path), "size": 8}
    with pytest.raises(InputError, match=r"loop\.png.*\(1 more of 5 samples has problems\).*skip_unreadable=True"):
        load_data(PretrainConfig(**settings))  # type: ignore[arg-type]
    data = load_data(PretrainConfig(**settings, skip_unreadable=True))  # type: ignore[arg-type]
    assert [problem.id for problem in data.skipped] == ["loop.png", "missing.png"]


def test_a_file_without_suffix_and_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(tmp_path / "a.png")
    (tmp_path / "IM0001").touch()

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"no permission to read the file .*IM0001"):
        open_source(str(tmp_path), DataConfig())


NAMES = {
    b"caf\xe9.png": r"caf\xe9.png",
    b"\x1b[2J.png": r"\x1b[2J.png",
    b"two\nlines\t.png": r"two\nlines\t.png",
    b"\xc2\x9b31m.png": r"\u009b31m.png",
    "gr\u00fc\u00df \u202f\u732b.png".encode(): "gr\u00fc\u00df \u202f\u732b.png",
    rb"back\slash.png": r"back\slash.png",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_become_printable_ids(tmp_path: Path, name: bytes) -> None:
    image(tmp_path / os.fsdecode(name))
    source = open_source(str(tmp_path), DataConfig())
    assert source.ids == (NAMES[name],)
    assert source.where(0).encode().decode().endswith(NAMES[name])
    assert source.read(0).array.shape == (1, 3, 4)
    table = tmp_path / "labels.csv"
    for written in (NAMES[name], f"/data/{NAMES[name]}"):
        table.write_text(f'id,label\n"{written}",x\n')
        assert read_labels(table, source.ids) == ("x",)
    (tmp_path / os.fsdecode(name)).write_bytes(b"broken")
    with pytest.raises(InputError) as caught:
        source.read(0)
    assert NAMES[name] in str(caught.value).encode().decode()


def test_names_that_look_alike_when_printed_are_refused(tmp_path: Path) -> None:
    image(tmp_path / os.fsdecode(b"a\xff.png"))
    image(tmp_path / r"a\xff.png")
    with pytest.raises(InputError, match=r"would share the id a\\xff\.png: rename one"):
        open_source(str(tmp_path), DataConfig())


def test_a_path_that_is_not_utf8_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"d\xff")
    image(folder / "a.png")
    with pytest.raises(InputError, match=r"the path .*d\\xff is not UTF-8; rename it, or make a link"):
        open_source(str(folder), DataConfig())
    with pytest.raises(InputError, match=r"the path .*d\\xff is not UTF-8"):
        open_source(str(tmp_path), DataConfig(labels=folder))


def test_fingerprint_follows_content_not_place(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        image(tmp_path / "one" / name)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    original = fingerprint(tmp_path / "one")
    assert fingerprint(tmp_path / "two") == original
    (tmp_path / "two" / "b.png").write_bytes(b"longer or shorter")
    assert fingerprint(tmp_path / "two") != original
    (tmp_path / "one" / "b.png").rename(tmp_path / "one" / "c.png")
    assert fingerprint(tmp_path / "one") != original


def test_many_files_list_quickly(tmp_path: Path) -> None:
    for i in range(5000):
        (tmp_path / f"{i:05d}.png").touch()
    start = time.perf_counter()
    assert len(ids(tmp_path)) == 5000
    assert time.perf_counter() - start < 2


def test_a_folder_has_its_own_name_whatever_links_to_it(tmp_path: Path) -> None:
    """The order in which a file system lists names decided whether ids, and classes, were those of the link."""
    for name in ("m", "x/y"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(2):
            Image.new("L", (4, 4), i).save(tmp_path / name / f"{i}.png")
    for link in ("a", "z", "b", "x/q"):
        (tmp_path / link).symlink_to(tmp_path / ("x/y" if link == "b" else "m"))
    assert open_source(str(tmp_path), DataConfig()).ids == ("m/0.png", "m/1.png", "x/y/0.png", "x/y/1.png")
