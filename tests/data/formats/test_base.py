"""All formats: cut files are named, and small files that declare huge sizes are refused before they are decoded."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import numpy.lib.format as npy
import pytest
import tifffile
import zarr
from PIL import Image

from icone.config import DataConfig, PretrainConfig
from icone.data import load_data, memory, open_source
from icone.data.formats.registry import quiet_readers
from icone.errors import InputError

WriteNifti = Callable[..., None]

RNG = np.random.default_rng(0)


def npy_claiming(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(100)


def write_npy(path: Path) -> None:
    path.write_bytes(npy_claiming((30000, 30000, 30000)))


def write_npz(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("image.npy", npy_claiming((30000, 30000, 30000)))


def write_nii(path: Path) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape((30000, 30000, 30000))
    header["vox_offset"], header["magic"] = 352, b"n+1"
    content = header.binaryblock + bytes(400)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_tif(path: Path) -> None:
    """One page of 60,000 × 60,000 pixels, with one strip of a few bytes."""
    tags = [(256, 4, 60000), (257, 4, 60000), (258, 3, 16), (259, 3, 8), (262, 3, 1), (273, 4, 200), (277, 3, 1)]
    tags += [(278, 4, 60000), (279, 4, 50)]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    head = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + bytes(4)
    path.write_bytes(head.ljust(200, b"\0") + zlib.compress(bytes(1000)).ljust(50, b"\0"))


def write_png(path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 13000, 13000, 8, 6, 0, 0, 0)  # below Pillow's own limit
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def write_plain(path: Path, edge: int) -> None:
    array = RNG.integers(0, 255, (edge, edge, edge), dtype=np.uint8)
    if path.name.endswith((".nii", ".nii.gz")):
        make = nibabel.Nifti1Image
        nibabel.save(make(array, np.eye(4)), path)
    elif path.suffix == ".npz":
        np.savez(path, array)
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        Image.fromarray(array[0]).save(path)


@pytest.mark.parametrize(
    ("suffix", "write", "reason"),
    [
        (".npy", write_npy, "its header declares 30000×30000×30000 values .* more than the file can hold"),
        (".npz", write_npz, "its header declares 30000×30000×30000 values .* more than the file can hold"),
        (".nii", write_nii, "its header declares 30000×30000×30000 values .* more than the file can hold"),
        (".nii.gz", write_nii, "its header declares 30000×30000×30000 values .* more than the file can hold"),
        (".tif", write_tif, r"takes about 64\.8 GB of memory .* 1\.0 GB are free"),
        (".png", write_png, r"takes about 12\.2 GB of memory .* 1\.0 GB are free"),
    ],
)
def test_a_file_that_declares_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, write: Callable[[Path], None], reason: str
) -> None:
    for name in ("a", "b"):
        write_plain(tmp_path / f"{name}{suffix}", 8)
    write(tmp_path / f"huge{suffix}")
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**9)
    settings = {"source": str(tmp_path), "size": 8, "cache": "off"}
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"huge\{suffix}.*{reason}.*skip_unreadable=True"):
        load_data(PretrainConfig(**settings))  # type: ignore[arg-type]
    data = load_data(PretrainConfig(**settings, skip_unreadable=True))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.train.ids == (f"a{suffix}", f"b{suffix}")
    assert [problem.id for problem in data.skipped] == [f"huge{suffix}"]
    assert peak < 50e6


def test_only_such_files(tmp_path: Path) -> None:
    write_npy(tmp_path / "huge.npy")
    with pytest.raises(InputError, match=r"the only file cannot be read: .*huge\.npy: its header decl"):
        open_source(str(tmp_path), DataConfig())


@pytest.mark.parametrize("kind", ["npy", "npz", "zarr", "sparse npy"])
def test_an_array_that_declares_too_many_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**9)
    path = tmp_path / f"data.{kind.split()[-1]}"
    shape, reason = (10**9, 2), "more than the file can hold"
    if kind == "npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("images.npy", npy_claiming(shape))
    elif kind == "zarr":
        zarr.create_array(str(path), shape=shape, chunks=(1000, 2), dtype="uint8")
    else:
        path.write_bytes(npy_claiming(shape))
    if kind == "sparse npy":
        with path.open("r+b") as file:
            file.truncate(3 * 10**9)
    if kind in ("zarr", "sparse npy"):
        reason = r"a list of its 1000000000 samples needs 200\.0 GB .* cut it into smaller files"
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"cannot read .*data\.\w+: .*{reason}"):
        open_source(str(path), DataConfig())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_one_row_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.npy"
    path.write_bytes(npy_claiming((2, 1000, 1000, 1000)))
    with path.open("r+b") as file:
        file.truncate(2 * 10**9 + 200)
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**9)
    with pytest.raises(InputError, match=r"sample 000000 of data\.npy takes about 17\.0 GB of memory"):
        load_data(PretrainConfig(source=str(path), cache="off"))


def damage(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "1.tif", "n.tif", "a.nii", "a.nii.gz", "a.npy", "a.npz"])
def test_truncated_files_are_named(tmp_path: Path, write_nifti: WriteNifti, name: str, keep: float) -> None:
    noise = RNG.integers(0, 256, (32, 33, 34), dtype=np.uint8)
    for path in (tmp_path / f"intact_{name}", tmp_path / f"z_{name}"):
        if name.endswith(("png", "jpg", "bmp")):
            Image.fromarray(noise[0]).save(path)
        elif name.endswith("tif"):
            tifffile.imwrite(path, noise[0] if name == "1.tif" else noise, compression="zlib")
        elif ".nii" in name:
            write_nifti(path, noise)
        else:
            (np.save if name.endswith("npy") else np.savez)(path, noise)
    damage(tmp_path / f"z_{name}", keep)
    source = open_source(str(tmp_path), DataConfig())
    with quiet_readers():
        assert source.read(0).array.size > 0
        with pytest.raises(InputError, match=f"cannot read .*z_{name}: ."):
            source.read(1)
