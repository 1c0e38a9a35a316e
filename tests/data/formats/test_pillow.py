"""PNG, JPEG and BMP against the pixels that they were written from."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from icone.config import DataConfig
from icone.data import Sample, open_source
from icone.data.formats.pillow import image_header
from icone.errors import InputError

ReadOne = Callable[[Path], Sample]

RNG = np.random.default_rng(0)

GRAY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)

RGB = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "tiff", "PNG"])
def test_lossless_images_come_back_exactly(tmp_path: Path, read_one: ReadOne, suffix: str) -> None:
    Image.fromarray(RGB).save(tmp_path / f"a.{suffix}")
    sample = read_one(tmp_path)
    assert sample.array.dtype == np.uint8
    assert sample.spacing is None
    np.testing.assert_array_equal(sample.array, RGB.transpose(2, 0, 1))


def test_jpeg_is_close(tmp_path: Path, read_one: ReadOne) -> None:
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
def test_16_bit_png_keeps_its_16_bits_and_all_its_channels(tmp_path: Path, read_one: ReadOne, channels: int) -> None:
    pixels = RNG.integers(0, 2**16, (5, 4, channels)).astype(np.uint16)
    write_16_bit_png(tmp_path / "a.png", pixels)
    sample = read_one(tmp_path)
    np.testing.assert_array_equal(sample.array, pixels.transpose(2, 0, 1))
    assert sample.is_colour == (channels == 3)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_16_bit_png(path: Path, array: npt.NDArray[np.uint16], **chunks: bytes) -> None:
    """A PNG by hand, with further chunks before its pixels: Pillow cannot write colour with 16 bits."""
    height, width, channels = array.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    more = b"".join(chunk(name.encode(), content) for name, content in chunks.items())
    body = chunk(b"IHDR", header) + more + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def test_transparency_is_laid_over_black(tmp_path: Path, read_one: ReadOne) -> None:
    alpha = np.array([[0, 128, 255]], dtype=np.uint8)
    colour = np.full((1, 3, 3), 200, dtype=np.uint8)
    Image.fromarray(np.dstack([colour, alpha])).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_one(tmp_path).array, np.full((3, 1, 1), 1) * [[[0, 100, 200]]])


def test_gray_with_alpha_stays_gray(tmp_path: Path, read_one: ReadOne) -> None:
    Image.fromarray(np.dstack([GRAY, np.full_like(GRAY, 255)])).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_one(tmp_path).array, GRAY[None])


def test_palettes_become_their_colours(tmp_path: Path, read_one: ReadOne) -> None:
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


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_an_opened_image_is_turned_like_its_file(tmp_path: Path, read_one: ReadOne, suffix: str) -> None:
    exif = Image.fromarray(GRAY).getexif()
    exif[0x0112] = 6
    Image.fromarray(GRAY).save(tmp_path / f"a.{suffix}", exif=exif)
    with Image.open(tmp_path / f"a.{suffix}") as image:
        opened = open_source([image], DataConfig()).read(0).array
        shown = open_source([ImageOps.exif_transpose(image)], DataConfig()).read(0).array
    assert opened.shape == (1, 9, 6)
    np.testing.assert_array_equal(opened, read_one(tmp_path).array)
    np.testing.assert_array_equal(shown, opened)  # turned once, not twice


def test_exif_orientation_is_applied(tmp_path: Path, read_one: ReadOne) -> None:
    image = Image.fromarray(GRAY)
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned: rotate by 270 degrees to see it upright
    image.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_one(tmp_path).array[0], np.rot90(GRAY, -1))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpeg_is_turned_as_pillow_turns_it(orientation: int, tmp_path: Path, read_one: ReadOne) -> None:
    image = Image.fromarray(np.kron(GRAY, np.ones((8, 8), np.uint8)))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(tmp_path / "a.jpg", exif=exif)
    with Image.open(tmp_path / "a.jpg") as stored:
        np.testing.assert_array_equal(read_one(tmp_path).array[0], np.asarray(ImageOps.exif_transpose(stored)))


def test_16_bit_colour_is_turned_too(tmp_path: Path, read_one: ReadOne) -> None:
    pixels = RNG.integers(0, 2**16, (5, 4, 3)).astype(np.uint16)
    write_16_bit_png(
        tmp_path / "a.png", pixels, eXIf=b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0" + bytes(4)
    )
    np.testing.assert_array_equal(read_one(tmp_path).array, np.rot90(pixels, -1).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("array", "key"),
    [
        (GRAY, int(GRAY[2, 3])),
        (RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8), None),
        (GRAY.astype(np.uint16) * 257, int(GRAY[2, 3]) * 257),
    ],
    ids=["gray", "RGB", "16-bit gray"],
)
def test_the_colour_that_a_png_declares_transparent_is_black(
    array: npt.NDArray[np.uint8], key: int | None, tmp_path: Path, read_one: ReadOne
) -> None:
    wanted = tuple(array[2, 3].tolist()) if key is None else key
    Image.fromarray(array).save(tmp_path / "a.png", transparency=wanted)
    shown = np.atleast_3d(array).copy()
    shown[(shown == wanted).all(axis=2)] = 0
    sample = read_one(tmp_path)
    np.testing.assert_array_equal(sample.array, shown.transpose(2, 0, 1))
    assert sample.array.dtype == array.dtype
    assert (sample.array[:, 2, 3] == 0).all()


def test_the_transparent_colour_of_16_bit_rgb_is_black(tmp_path: Path, read_one: ReadOne) -> None:
    pixels = RNG.integers(0, 2**16, (5, 4, 3)).astype(np.uint16)
    near = pixels[1, 2] ^ np.array([1, 0, 0], np.uint16)  # another colour, with the same high bytes
    pixels[0, 0] = near
    write_16_bit_png(tmp_path / "a.png", pixels, tRNS=pixels[1, 2].astype(">u2").tobytes())
    array = read_one(tmp_path).array
    assert (array[:, 1, 2] == 0).all()
    np.testing.assert_array_equal(array[:, 0, 0], near)


def test_the_transparent_value_of_a_gray_png_of_4_bits_is_black(tmp_path: Path, read_one: ReadOne) -> None:
    """The key counts to 15, and the decoded pixels to 255."""
    header = struct.pack(">IIBBBBB", 4, 1, 4, 0, 0, 0, 0)
    chunks = {b"IHDR": header, b"tRNS": struct.pack(">H", 9), b"IDAT": zlib.compress(b"\0\x19\xf9"), b"IEND": b""}
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks.items()))
    np.testing.assert_array_equal(read_one(tmp_path).array, [[[17, 0, 255, 0]]])


def test_text_named_png(tmp_path: Path, read_one: ReadOne) -> None:
    (tmp_path / "a.png").write_text("not an image")
    with pytest.raises(InputError, match=r"a\.png: its content is not an image"):
        read_one(tmp_path)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "LA", "RGBA", "I;16"])
def test_the_header_of_a_png_is_what_pillow_says(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.png"
    Image.new(mode, (9, 6)).save(path)
    with Image.open(path) as image:
        assert image_header(path).shape == (len(image.getbands()), image.height, image.width)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(OSError, match=r"cannot identify|[Tt]runcated"):
        image_header(path)


def test_huge_image_is_refused_in_a_sentence(
    tmp_path: Path, read_one: ReadOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(GRAY).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(InputError, match="safety limit"):
        read_one(tmp_path)
