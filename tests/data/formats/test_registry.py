"""The formats as one table: by suffix, with their packages; and a format of a user's own, from files to features."""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from rich.console import Console

import icone
from icone.config import DataConfig
from icone.data import Format, Sample, open_source, read_sample, register_format
from icone.data.formats.registry import ARRAY_FORMATS, FORMATS, find_format, quiet_readers, software_of
from icone.errors import InputError

ReadOne = Callable[[Path], Sample]
WriteNifti = Callable[..., None]

RNG = np.random.default_rng(0)

GRAY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)

RGB = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)

VOLUME = RNG.normal(size=(7, 8, 9)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "options", "is_colour"),
    [
        ("a.png", {}, True),
        ("a.tif", {}, True),
        ("a.tif", {"photometric": "minisblack", "planarconfig": "contig"}, False),
        ("a.tif", {"metadata": {"axes": "YXC"}}, None),  # RGB, but an axis of channels: it does not say
        ("a.npy", {}, None),
    ],
)
def test_what_is_colour(
    tmp_path: Path, read_one: ReadOne, name: str, options: dict[str, Any], is_colour: bool | None
) -> None:
    if name == "a.png":
        Image.fromarray(RGB).save(tmp_path / name)
    elif name == "a.npy":
        np.save(tmp_path / name, RGB)
    else:
        tifffile.imwrite(tmp_path / name, RGB, **options)
    assert read_one(tmp_path).is_colour is is_colour


def test_one_file_is_read_as_training_reads_it(tmp_path: Path, write_nifti: WriteNifti) -> None:
    write_nifti(tmp_path / "scans" / "a.nii.gz", VOLUME, np.diag([-1.0, 1, 2, 1]))
    np.save(tmp_path / "mask.npy", VOLUME > 0)
    scan, mask = read_sample(tmp_path / "scans" / "a.nii.gz"), read_sample(str(tmp_path / "mask.npy"))
    np.testing.assert_array_equal(scan.array, VOLUME[None, ::-1])
    assert scan.spacing == (1.0, 1.0, 2.0)
    np.testing.assert_array_equal(mask.array, np.where(VOLUME > 0, 255, 0)[None])
    np.testing.assert_array_equal(read_sample(tmp_path / "scans").array, scan.array)


def test_what_is_not_one_sample_is_refused(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, GRAY)
    (tmp_path / "broken.png").write_text("no image")
    for name, message in {
        "": r"holds 3 samples; give one file",
        "c.txt": r"c\.txt as one sample; known: \.png",
        "c.dcm": r"cannot read .*c\.dcm: ",
        "broken.png": r"cannot read .*broken\.png: its content is not an image",
        "missing.npy": r"cannot read .*missing\.npy: ",
    }.items():
        with pytest.raises(InputError, match=message):
            read_sample(tmp_path / name)


def test_quiet_readers_restores_levels() -> None:
    logger = logging.getLogger("tifffile")
    before = logger.level
    with quiet_readers():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.level == before


@pytest.fixture(autouse=True)
def _formats() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    before = dict(FORMATS), dict(ARRAY_FORMATS)
    yield
    for table, kept in zip((FORMATS, ARRAY_FORMATS), before, strict=True):
        table.clear()
        table.update(kept)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("a.nii.gz", "nibabel", "nifti"),
        ("a.tif", "tifffile", "tiff"),
        ("a.dcm", "pydicom", "dicom"),
        ("a.zarr", "zarr", "zarr"),
    ],
)
def test_without_its_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    real = metadata.version

    def version(wanted: str) -> str:
        if wanted == package:
            raise metadata.PackageNotFoundError(wanted)
        return real(wanted)

    monkeypatch.setattr(metadata, "version", version)
    (tmp_path / name).touch()
    source = tmp_path / name if name == "a.zarr" else tmp_path
    with pytest.raises(InputError, match=rf"needs {package}; run pip install 'icone\[{extra}\]'"):
        open_source(str(source), DataConfig())


def test_importing_the_formats_imports_no_package_that_is_an_extra() -> None:
    """Looked at in the source of every format, because the tests have imported the packages themselves."""
    for known in FORMATS.values():
        module = importlib.import_module((known.read or known.open_arrays).__module__)
        assert not set(vars(module)) & {package for one in FORMATS.values() if one.extra for package in one.packages}


def test_the_software_of_files_is_that_of_their_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    images, volumes, unknown = [Path("a.png")], [Path("a.png"), Path("b.NII.gz")], [Path("a.png"), Path("IM0001")]
    before = [software_of(files) for files in (images, volumes, unknown)]
    monkeypatch.setattr(metadata, "version", lambda name: "99" if name == "nibabel" else real(name))
    after = [software_of(files) for files in (images, volumes, unknown)]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]


def test_what_cannot_be_registered() -> None:
    def read(path: Path) -> Sample:
        return Sample(RGB)

    for wrong, message in {
        Format(name="none", suffixes=(".foo",)): "neither read one sample",
        Format(name="dotless", suffixes=("foo",), read=read): "with its dot",
        Format(name="upper", suffixes=(".FOO",), read=read): "in lower case",
        Format(name="taken", suffixes=(".png",), read=read): r"\.png files are read as image already",
    }.items():
        with pytest.raises(InputError, match=message):
            register_format(wrong)
    register_format(Format(name="foo", suffixes=(".foo", ".bar"), read=read))
    register_format(Format(name="foo", suffixes=(".foo",), read=read, version=2))  # a cell that is run again
    known = find_format(Path("a.foo"))
    assert known is not None
    assert known.version == 2
    assert find_format(Path("a.bar")) is None


FOO = """
import numpy as np

from icone.data import Format, Header, Sample

def read(path):
    height, width, *pixels = (int(word) for word in path.read_text().split())
    return Sample(np.array(pixels, np.uint8).reshape(1, height, width) {change})

def header(path):
    return Header((1, *map(int, path.read_text().split()[:2])), np.dtype(np.uint8))

FOO = Format(name="foo", suffixes=(".foo",), read=read, header=header)
"""


def load_foo(path: Path, change: str = "") -> Format:
    """The format as a module of somebody else."""
    path.write_text(FOO.format(change=change))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Format = module.FOO
    return found


def test_a_format_of_ones_own_from_files_to_features(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    images = RNG.integers(0, 256, (6, 16, 12), dtype=np.uint8)
    for number, image in enumerate(images):
        (folder / f"{number}.foo").write_text(" ".join(map(str, (*image.shape, *image.ravel()))))
    with pytest.raises(InputError, match=r"suffixes \.foo; files that can be read end with .*\.png"):
        open_source(str(folder), DataConfig())
    register_format(load_foo(tmp_path / "foo.py"))
    source = open_source(str(folder), DataConfig())
    for position, image in enumerate(images):
        np.testing.assert_array_equal(source.read(position).array, image[None])
    run = icone.pretrain(
        folder,
        out=tmp_path / "run",
        cache=str(tmp_path / "cache"),
        encoder="resnet10t",
        size=32,
        epochs=1,
        batch_size=3,
        probe_every=0,
        device="cpu",
        console=Console(file=io.StringIO()),
    )
    table = icone.embed(run, folder, device="cpu", console=Console(file=io.StringIO()))
    assert sorted(table["id"]) == [f"{number}.foo" for number in range(6)]
    assert table.filter(regex=r"^f\d").shape[1] > 0


def test_a_format_of_ones_own_for_arrays(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (5, 8, 9), dtype=np.uint8)
    np.save(tmp_path / "a.npy", images)
    (tmp_path / "a.npy").rename(tmp_path / "a.bar")
    register_format(Format(name="bar", suffixes=(".bar",), open_arrays=FORMATS[".npy"].open_arrays))
    source = open_source(str(tmp_path / "a.bar"), DataConfig())
    np.testing.assert_array_equal([source.read(i).array[0] for i in range(len(source))], images)
    register_format(Format(name="bar", suffixes=(".baz",), open_arrays=FORMATS[".npy"].open_arrays))
    with pytest.raises(InputError, match="is one file; give the folder"):
        open_source(str(tmp_path / "a.bar"), DataConfig())


def test_another_reader_of_the_same_files_is_other_software(tmp_path: Path) -> None:
    files = [Path("a.foo")]
    register_format(load_foo(tmp_path / "foo.py"))
    before = software_of(files)
    register_format(load_foo(tmp_path / "foo.py"))
    assert software_of(files) == before
    register_format(load_foo(tmp_path / "foo.py", change="[:, ::-1]"))
    assert software_of(files) != before
