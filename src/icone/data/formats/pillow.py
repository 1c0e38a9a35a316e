"""PNG, JPEG and BMP images, through Pillow."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile

from icone.data.formats.axes import ORIENTATION, upright
from icone.data.formats.base import Array, Format, Header, Sample
from icone.errors import InputError


def read_image(path: Path) -> Sample:
    """A PNG, JPEG or BMP as (C, H, W): gray, RGB; transparent pixels become black, palettes their colours.

    It is turned as its EXIF data say. RGBA with 16 bits keeps its four channels: such files are measurements as often
    as pictures.
    """
    try:
        with Image.open(path) as image:
            is_deep = isinstance(image, PngImageFile) and _is_16_bit_colour(image)
            # EXIF data may follow the pixels, so they are asked for when these are decoded.
            array, exif = _decode_16_bit_colour(path) if is_deep else (pixels(image), image.getexif())
            return Sample(upright(array, exif.get(ORIENTATION)), is_colour=len(array) == 3)
    except UnidentifiedImageError as error:
        raise InputError("its content is not an image, whatever its name says") from error
    except Image.DecompressionBombError as error:
        raise InputError("it has more pixels than Pillow's safety limit; cut it into tiles first") from error


def pixels(image: Image.Image) -> Array:
    """An opened image as (C, H, W): gray or RGB."""
    key = _transparent_colour(image)
    if image.mode in ("1", "L", "I;16", "I;16B", "I;16L", "I", "F", "RGB"):
        array = np.asarray(image.convert("L") if image.mode == "1" else image)
        array = array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
        return array if key is None else _black_where(array, key)
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        rgba = np.moveaxis(np.asarray(image.convert("RGBA")), -1, 0)
        flat = drop_alpha(rgba)
        return flat[:1] if image.mode in ("LA", "La") else flat
    rgb = np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)  # palettes, CMYK, YCbCr, …
    is_gray_palette = image.mode == "P" and (rgb == rgb[:1]).all()
    return rgb[:1] if is_gray_palette else rgb


def drop_alpha(array: Array) -> Array:
    """Lay 8-bit (colours + alpha, …) over black, which is also what padding uses; opaque pixels stay exact."""
    assert array.dtype == np.uint8
    return np.rint(array[:-1] * (array[-1:] / np.float64(255))).astype(np.uint8)


def _transparent_colour(image: Image.Image) -> tuple[int, ...] | None:
    """The one colour of a gray or RGB PNG that is transparent (its chunk tRNS), in the units of its pixels."""
    key = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(key, tuple):
        return key
    if image.mode not in ("1", "L", "I", "I;16") or not isinstance(key, int):
        return None
    few_bits = {"L;2": 85, "L;4": 17}  # whose pixels are spread over 8 bits when they are decoded
    raw = str(image.tile[0].args) if isinstance(image, PngImageFile) and image.tile else ""
    return (key * few_bits.get(raw, 1),)


def _black_where(array: Array, key: tuple[int, ...]) -> Array:
    """Pixels (C, H, W) with those of one colour as black, as transparent ones become everywhere."""
    is_key = (array == np.array(key).reshape(-1, 1, 1)).all(axis=0)
    return np.where(is_key, array.dtype.type(0), array)


def _is_16_bit_colour(image: PngImageFile) -> bool:
    """Whether Pillow would reduce this PNG to 8 bit without a word."""
    return any(str(tile.args) in ("RGB;16B", "RGBA;16B", "LA;16B") for tile in image.tile)


def _decode_16_bit_colour(path: Path) -> tuple[Array, Image.Exif]:
    """A PNG with 16 bit per colour, decoded twice: Pillow keeps one byte of two, and can be told which."""
    images = [_decode_bytes(path, order) for order in "BL"]
    high, low = (np.moveaxis(np.asarray(image), -1, 0) for image in images)
    array = high.astype(np.uint16) * np.uint16(256) + low
    key = _transparent_colour(images[0])
    return array if key is None else _black_where(array, key), images[0].getexif()


def _decode_bytes(path: Path, order: str) -> Image.Image:
    with Image.open(path) as image:
        assert isinstance(image, PngImageFile)
        if str(image.tile[0].args).startswith("LA"):
            raise InputError("it is 16-bit gray with transparency, which cannot be read; save it without")
        image.tile = [tile._replace(args=f"{image.mode};16{order}") for tile in image.tile]
        image.load()
        return image


def image_header(path: Path) -> Header:
    """What an image declares; two bytes for every value, because 16 bits are decoded as two images of 8.

    Of a PNG the first chunk says it: to let Pillow open a small file only for that would take as long as reading it.
    """
    with path.open("rb") as file:
        start = file.read(PNG_HEADER.size)
    if len(start) == PNG_HEADER.size:
        signature, width, height, _, colour = PNG_HEADER.unpack(start)
        if signature == PNG_SIGNATURE and colour in PNG_BANDS and width * height <= (Image.MAX_IMAGE_PIXELS or 0):
            return Header((PNG_BANDS[colour], height, width), np.dtype(np.uint16))
    with Image.open(path) as image:
        return Header((len(image.getbands()), image.height, image.width), np.dtype(np.uint16))


PNG_HEADER = struct.Struct(">16sIIBB")
"""Signature, length and name of the first chunk; width, height, bit depth and colour type, as the PNG standard says."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
PNG_BANDS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels by colour type: gray, RGB, palette, gray and alpha, RGBA."""


IMAGE = Format(
    name="image",
    suffixes=(".png", ".jpg", ".jpeg", ".bmp"),
    read=read_image,
    header=image_header,
    spatial_dims=2,
    packages=("pillow",),
)
