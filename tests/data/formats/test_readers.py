"""Every file type against the array it was written from."""

from __future__ import annotations

import gzip
import logging
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image

from icone.config import DataConfig
from icone.data import Sample, Source, open_source, read_sample
from icone.data.formats.readers import channel_axis, quiet_readers
from icone.errors import InputError

WriteNifti = Callable[..., None]

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)
RGB = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)
VOLUME = RNG.normal(size=(7, 8, 9)).astype(np.float32)


def read_one(folder: Path) -> Sample:
    return open_one(folder).read(0)


def open_one(folder: Path) -> Source:
    source = open_source(str(folder), DataConfig())
    assert len(source) == 1
    return source


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "tiff", "PNG"])
def test_lossless_images_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(RGB).save(tmp_path / f"a.{suffix}")
    sample = read_one(tmp_path)
    assert sample.array.dtype == np.uint8
    assert sample.spacing is None
    np.testing.assert_array_equal(sample.array, RGB.transpose(2, 0, 1))


def test_jpeg_is_close(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(32), np.arange(40)).astype(np.uint8) * 3
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=95)
    array = read_one(tmp_path).array
    assert array.shape == (1, 32, 40)
    assert np.abs(array[0].astype(int) - smooth).max() < 8


def test_gray_and_16_bit_gray(tmp_path: Path) -> None:
    wide = GRAY.astype(np.uint16) * 257 - 3
    for name, array in (("a", GRAY), ("b", wide)):
        Image.fromarray(array).save(tmp_path / f"{name}.png")
    source = open_source(str(tmp_path), DataConfig())
    np.testing.assert_array_equal(source.read(0).array, GRAY[None])
    np.testing.assert_array_equal(source.read(1).array, wide[None])
    assert source.read(1).array.dtype == np.uint16


@pytest.mark.parametrize("channels", [3, 4])
def test_16_bit_png_keeps_its_16_bits_and_all_its_channels(tmp_path: Path, channels: int) -> None:
    pixels = RNG.integers(0, 2**16, (5, 4, channels)).astype(np.uint16)
    write_16_bit_png(tmp_path / "a.png", pixels)
    sample = read_one(tmp_path)
    np.testing.assert_array_equal(sample.array, pixels.transpose(2, 0, 1))
    assert sample.is_colour == (channels == 3)


def write_16_bit_png(path: Path, array: npt.NDArray[np.uint16]) -> None:
    """A PNG by hand: Pillow cannot write colour with 16 bits."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = array.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_transparency_is_laid_over_black(tmp_path: Path) -> None:
    alpha = np.array([[0, 128, 255]], dtype=np.uint8)
    colour = np.full((1, 3, 3), 200, dtype=np.uint8)
    Image.fromarray(np.dstack([colour, alpha])).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_one(tmp_path).array, np.full((3, 1, 1), 1) * [[[0, 100, 200]]])


def test_gray_with_alpha_stays_gray(tmp_path: Path) -> None:
    Image.fromarray(np.dstack([GRAY, np.full_like(GRAY, 255)])).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_one(tmp_path).array, GRAY[None])


def test_palettes_become_their_colours(tmp_path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putdata([0, 1, 2])
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_one(tmp_path).array[:, 0], [[10, 40, 70], [20, 50, 80], [30, 60, 90]])


def test_gray_palette_and_black_and_white_are_gray(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putdata([1, 0])
    image.putpalette([5, 5, 5, 9, 9, 9])
    image.save(tmp_path / "a.png")
    bits = Image.new("1", (2, 1))
    bits.putdata([1, 0])
    bits.save(tmp_path / "b.png")
    source = open_source(str(tmp_path), DataConfig())
    np.testing.assert_array_equal(source.read(0).array, [[[9, 5]]])
    np.testing.assert_array_equal(source.read(1).array, [[[255, 0]]])


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.fromarray(GRAY)
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned: rotate by 270 degrees to see it upright
    image.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_one(tmp_path).array[0], np.rot90(GRAY, -1))


@pytest.mark.parametrize(
    ("array", "options", "expected"),
    [
        (VOLUME[0], {}, VOLUME[:1]),
        (VOLUME, {}, VOLUME[None]),
        (VOLUME, {"compression": "zlib"}, VOLUME[None]),
        (np.moveaxis(VOLUME, 0, -1), {"photometric": "minisblack", "planarconfig": "contig"}, VOLUME),
        (VOLUME, {"photometric": "minisblack", "planarconfig": "separate"}, VOLUME),
        (
            VOLUME.reshape(7, 2, 4, 9),
            {"imagej": True, "metadata": {"axes": "ZCYX"}},
            VOLUME.reshape(7, 2, 4, 9).swapaxes(0, 1),
        ),
    ],
    ids=["float image", "pages", "compressed pages", "channels last", "channels first", "ImageJ stack"],
)
def test_tiff_axes(
    tmp_path: Path, array: npt.NDArray[np.float32], options: dict[str, object], expected: npt.NDArray[np.float32]
) -> None:
    tifffile.imwrite(tmp_path / "a.tif", array, **options)  # type: ignore[arg-type]
    source = open_one(tmp_path)
    np.testing.assert_array_equal(source.read(0).array, expected)
    assert source.spatial_dims == expected.ndim - 1


@pytest.mark.parametrize("kind", ["unassalpha", "assocalpha"])
def test_8_bit_tiff_alpha_is_applied(tmp_path: Path, kind: str) -> None:
    alpha = RNG.choice(np.array([0, 255], np.uint8), (6, 9, 1))
    tifffile.imwrite(tmp_path / "a.tif", np.dstack([RGB, alpha]), photometric="rgb", extrasamples=[kind])
    tifffile.imwrite(tmp_path / "b.tif", np.dstack([GRAY, alpha]), photometric="minisblack", extrasamples=[kind])
    source = open_source(str(tmp_path), DataConfig())
    np.testing.assert_array_equal(source.read(0).array, np.where(alpha, RGB, 0).transpose(2, 0, 1))
    np.testing.assert_array_equal(source.read(1).array, np.where(alpha[..., 0], GRAY, 0)[None])
    assert [source.read(i).is_colour for i in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("dtype", "samples", "options"),
    [
        (np.uint16, 4, {}),
        (np.uint16, 4, {"metadata": {"axes": "YXC"}}),
        (np.uint16, 4, {"photometric": "rgb", "extrasamples": ["assocalpha"]}),
        (np.uint16, 2, {"photometric": "minisblack", "extrasamples": ["unassalpha"]}),
        (np.float32, 4, {"photometric": "rgb"}),
        (np.uint8, 4, {"metadata": {"axes": "YXC"}}),
        (np.uint8, 4, {"photometric": "rgb", "extrasamples": ["unspecified"]}),
        (np.uint8, 4, {"photometric": "minisblack", "planarconfig": "contig"}),
        (np.uint8, 5, {"photometric": "rgb", "extrasamples": ["unassalpha", "unspecified"]}),
    ],
)
def test_tiff_samples_that_are_no_opacity_are_channels(
    tmp_path: Path, dtype: npt.DTypeLike, samples: int, options: dict[str, Any]
) -> None:
    pixels = RNG.integers(0, 256, (6, 9, samples)).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    sample = read_one(tmp_path)
    np.testing.assert_array_equal(sample.array, pixels.transpose(2, 0, 1))
    assert sample.array.dtype == dtype
    assert not sample.is_colour


@pytest.mark.parametrize(
    ("name", "options", "is_colour"),
    [
        ("a.png", {}, True),
        ("a.tif", {}, True),
        ("a.tif", {"photometric": "minisblack", "planarconfig": "contig"}, False),
        ("a.tif", {"metadata": {"axes": "YXC"}}, False),
        ("a.npy", {}, False),
    ],
)
def test_what_is_colour(tmp_path: Path, name: str, options: dict[str, Any], is_colour: bool) -> None:
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
        "c.dcm": r"c\.dcm as one sample; give the folder of its series",
        "broken.png": r"cannot read .*broken\.png: its content is not an image",
        "missing.npy": r"cannot read .*missing\.npy: ",
    }.items():
        with pytest.raises(InputError, match=message):
            read_sample(tmp_path / name)


def test_nifti_is_turned_to_canonical_axes(tmp_path: Path, write_nifti: WriteNifti) -> None:
    # Stored as (inferior, right-to-left, anterior): canonical X = -axis 1, Y = axis 2, Z = -axis 0.
    affine = np.array([[0, -2, 0, 0], [0, 0, 3, 0], [-5, 0, 0, 0], [0, 0, 0, 1.0]])
    write_nifti(tmp_path / "a.nii.gz", VOLUME, affine)
    array, spacing, _ = read_one(tmp_path)
    np.testing.assert_array_equal(array[0], VOLUME.transpose(1, 2, 0)[::-1, :, ::-1])
    assert spacing == (2.0, 3.0, 5.0)


def test_nifti_scaling_and_channels(tmp_path: Path, write_nifti: WriteNifti) -> None:
    stored = np.arange(48, dtype=np.int16).reshape(2, 3, 4, 2)
    write_nifti(tmp_path / "a.nii", stored, scaling=(2.0, -10.0))
    np.testing.assert_allclose(read_one(tmp_path).array, np.moveaxis(2.0 * stored - 10, -1, 0))


def test_nifti_keeps_integers(tmp_path: Path, write_nifti: WriteNifti) -> None:
    write_nifti(tmp_path / "a.nii", np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    assert read_one(tmp_path).array.dtype == np.uint8


def test_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VOLUME)
    np.savez(tmp_path / "b.npz", image=VOLUME + 1, mask=VOLUME > 0)
    source = open_source(str(tmp_path), DataConfig())
    np.testing.assert_array_equal(source.read(0).array, VOLUME[None])
    np.testing.assert_array_equal(source.read(1).array, VOLUME[None] + 1)


def test_boolean_arrays_become_black_and_white(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VOLUME > 0)
    array = read_one(tmp_path).array
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array[0] == 255, VOLUME > 0)
    np.testing.assert_array_equal(array[0] == 0, VOLUME <= 0)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((20, 30), None),
        ((3, 3), None),
        ((20, 30, 3), -1),
        ((20, 30, 4), -1),
        ((3, 20, 30), 0),
        ((20, 30, 5), None),
        ((20, 20, 20, 2), -1),
        ((6, 20, 20, 20), 0),
        ((20, 20, 20, 9), -1),
    ],
)
def test_channel_rule(shape: tuple[int, ...], axis: int | None) -> None:
    assert channel_axis(shape) == axis


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


def test_text_named_png(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("not an image")
    with pytest.raises(InputError, match=r"a\.png: its content is not an image"):
        read_one(tmp_path)


def test_damaged_gzip_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.nii.gz"
    path.write_bytes(gzip.compress(b"far too short for a header"))
    with pytest.raises(InputError, match=r"cannot read .*a\.nii\.gz"):
        read_one(tmp_path)


@pytest.mark.parametrize(
    ("damage_it", "message"),
    [
        (lambda raw: raw[:-8] + b"abcd" + raw[-4:], "CRC check failed"),
        (lambda raw: raw[:-4] + b"abcd", "Incorrect length"),
        (lambda raw: raw[:-4], "ended before the end-of-stream"),
        (lambda raw: raw[:-9], "ended before the end-of-stream"),
        (lambda raw: raw + b"rubbish", "Not a gzipped file"),
        (lambda raw: raw[:2000] + bytes(64) + raw[2064:], "."),
        (lambda raw: raw[:-40] + bytes(16) + raw[-24:], "."),
    ],
    ids=[
        "checksum",
        "length",
        "no length",
        "no checksum",
        "rubbish at the end",
        "overwritten",
        "overwritten at the end",
    ],
)
def test_damaged_volumes_in_gzip(
    tmp_path: Path, write_nifti: WriteNifti, damage_it: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "a.nii.gz"
    write_nifti(path, RNG.integers(0, 256, (12, 13, 14), dtype=np.uint8))
    path.write_bytes(damage_it(path.read_bytes()))
    with pytest.raises(InputError, match=rf"cannot read .*a\.nii\.gz: .*{message}"):
        read_one(tmp_path)


def test_zeros_after_gzip_are_padding(tmp_path: Path, write_nifti: WriteNifti) -> None:
    write_nifti(tmp_path / "a.nii.gz", VOLUME)
    with (tmp_path / "a.nii.gz").open("ab") as file:
        file.write(bytes(512))
    np.testing.assert_array_equal(read_one(tmp_path).array, VOLUME[None])


def test_volumes_are_not_mapped(tmp_path: Path, write_nifti: WriteNifti) -> None:
    """A mapped file that is cut later would end the process."""
    write_nifti(tmp_path / "a.nii", VOLUME)
    array = read_one(tmp_path).array
    (tmp_path / "a.nii").write_bytes(b"")
    np.testing.assert_array_equal(array, VOLUME[None])


STACK = RNG.integers(0, 2**16, (6, 7, 8)).astype(np.uint16)
OME = {"axes": "ZYX", "PhysicalSizeX": 0.2, "PhysicalSizeY": 0.3, "PhysicalSizeZ": 1.5}
UNITS = {"PhysicalSizeXUnit": "nm", "PhysicalSizeYUnit": "mm", "PhysicalSizeZUnit": "\u03bcm"}


@pytest.mark.parametrize(
    ("name", "array", "options", "spacing"),
    [
        ("a.ome.tif", STACK, {"metadata": OME}, (1.5e-3, 0.3e-3, 0.2e-3)),
        ("a.ome.tif", STACK, {"metadata": OME | UNITS}, (1.5e-3, 0.3, 0.2e-6)),
        ("a.ome.tif", STACK.reshape(2, 3, 7, 8), {"metadata": OME | {"axes": "CZYX"}}, (1.5e-3, 0.3e-3, 0.2e-3)),
        ("a.ome.tif", STACK.reshape(2, 3, 7, 8), {"metadata": OME | {"axes": "ZCYX"}}, (1.5e-3, 0.3e-3, 0.2e-3)),
        ("a.ome.tif", STACK[:, None], {"metadata": OME | {"axes": "TZYX"}}, None),
        ("a.ome.tif", STACK, {"metadata": OME | {"axes": "TYX"}}, None),
        ("a.ome.tif", STACK[0], {"metadata": OME | {"axes": "YX"}}, None),
        ("a.ome.tif", STACK, {"metadata": OME | {"PhysicalSizeZUnit": "pixel"}}, None),
        ("a.ome.tif", STACK, {"metadata": OME | {"PhysicalSizeZ": 0.0}}, None),
        ("a.ome.tif", STACK, {"metadata": {"axes": "ZYX", "PhysicalSizeX": 0.2}}, None),
        ("a.tif", STACK, {"imagej": True, "metadata": {"axes": "ZYX", "spacing": 2.0}}, None),
        ("a.tif", STACK, {}, None),
    ],
)  # fmt: skip
def test_spacing_of_tiff_volumes(
    tmp_path: Path,
    name: str,
    array: npt.NDArray[np.uint16],
    options: dict[str, object],
    spacing: tuple[float, ...] | None,
) -> None:
    tifffile.imwrite(tmp_path / name, array, **options)  # type: ignore[arg-type]
    found = read_one(tmp_path).spacing
    assert found == (None if spacing is None else pytest.approx(spacing))


@pytest.mark.parametrize(
    ("unit", "millimetres"),
    [
        ("um", 1e-3), (r"\u00B5m", 1e-3), ("micron", 1e-3), ("Microns", 1e-3), ("nm", 1e-6), ("mm", 1.0), ("cm", 10.0),
        ("inch", 25.4), ("pixel", None), ("", None),
    ],
)  # fmt: skip
def test_spacing_of_imagej_volumes(tmp_path: Path, unit: str, millimetres: float | None) -> None:
    about = {"axes": "ZYX", "spacing": 2.0, "unit": unit}
    tifffile.imwrite(tmp_path / "a.tif", STACK, imagej=True, resolution=(5, 4), metadata=about)
    found = read_one(tmp_path).spacing
    assert found == (
        None if millimetres is None else pytest.approx([2 * millimetres, millimetres / 4, millimetres / 5])
    )


def test_object_array_is_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.write_text, (tmp_path / "sprung", "!"))

    np.save(tmp_path / "a.npy", np.array([[Trap()] * 2] * 2, dtype=object), allow_pickle=True)
    np.save(tmp_path / "b.npy", VOLUME)
    source = open_source(str(tmp_path), DataConfig())
    with pytest.raises(InputError, match=r"a\.npy: .*pickles are never opened"):
        source.read(0)
    assert not (tmp_path / "sprung").exists()


def test_complex_values_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VOLUME.astype(np.complex64))
    with pytest.raises(InputError, match="complex64"):
        read_one(tmp_path)


def test_quiet_readers_restores_levels() -> None:
    logger = logging.getLogger("tifffile")
    before = logger.level
    with quiet_readers():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.level == before


def test_huge_image_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(GRAY).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(InputError, match="safety limit"):
        read_one(tmp_path)
