"""Reading one file as one sample `(C, *spatial)`: images, NIfTI volumes, TIFF stacks, NumPy arrays."""

from __future__ import annotations

import gzip
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile

from icone.data.sources.base import Array, Sample
from icone.errors import InputError

MAX_CHANNELS = 4
"""The longest axis that is taken for channels where a bare array leaves it open."""

NUMPY_KEYS = ("image", "volume", "images", "data", "x", "arr_0")
"""Names under which an .npz with several arrays holds the data."""


def read_image(path: Path) -> Sample:
    """A PNG, JPEG or BMP as (C, H, W): gray, RGB; transparent pixels become black, palettes their colours.

    RGBA with 16 bits keeps its four channels: such files are measurements as often as pictures.
    """
    try:
        with Image.open(path) as image:
            if isinstance(image, PngImageFile) and _is_16_bit_colour(image):
                array = _decode_16_bit_colour(path)
            else:
                array = pixels(ImageOps.exif_transpose(image))
            return Sample(array, is_colour=len(array) == 3)
    except UnidentifiedImageError as error:
        raise InputError("its content is not an image, whatever its name says") from error
    except Image.DecompressionBombError as error:
        raise InputError("it has more pixels than Pillow's safety limit; cut it into tiles first") from error


def pixels(image: Image.Image) -> Array:
    """A Pillow image as (C, H, W): gray or RGB; transparent pixels become black, palettes their colours."""
    if image.mode in ("1", "L", "I;16", "I;16B", "I;16L", "I", "F", "RGB"):
        array = np.asarray(image.convert("L") if image.mode == "1" else image)
        return array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        rgba = np.moveaxis(np.asarray(image.convert("RGBA")), -1, 0)
        flat = _drop_alpha(rgba)
        return flat[:1] if image.mode in ("LA", "La") else flat
    rgb = np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)  # palettes, CMYK, YCbCr, …
    is_gray_palette = image.mode == "P" and (rgb == rgb[:1]).all()
    return rgb[:1] if is_gray_palette else rgb


def _drop_alpha(array: Array) -> Array:
    """Lay 8-bit (colours + alpha, …) over black, which is also what padding uses; opaque pixels stay exact."""
    assert array.dtype == np.uint8
    return np.rint(array[:-1] * (array[-1:] / np.float64(255))).astype(np.uint8)


def _is_16_bit_colour(image: PngImageFile) -> bool:
    """Whether Pillow would reduce this PNG to 8 bit without a word."""
    return any(str(tile.args) in ("RGB;16B", "RGBA;16B", "LA;16B") for tile in image.tile)


def _decode_16_bit_colour(path: Path) -> Array:
    """A PNG with 16 bit per colour, decoded twice: Pillow keeps one byte of two, and can be told which."""
    high, low = (_decode_bytes(path, order) for order in "BL")
    return np.moveaxis(high.astype(np.uint16) * np.uint16(256) + low, -1, 0)


def _decode_bytes(path: Path, order: str) -> Array:
    with Image.open(path) as image:
        assert isinstance(image, PngImageFile)
        if str(image.tile[0].args).startswith("LA"):
            raise InputError("it is 16-bit gray with transparency, which cannot be read; save it without")
        image.tile = [tile._replace(args=f"{image.mode};16{order}") for tile in image.tile]
        return np.asarray(image)


def read_nifti(path: Path) -> Sample:
    """A NIfTI volume as (C, X, Y, Z), turned to right, anterior, superior; a fourth axis is channels.

    The file is read, not mapped: if it is cut meanwhile, a mapped file would end the process.
    """
    import nibabel

    turn: Callable[[Any], Any] = nibabel.as_closest_canonical
    image: Any = nibabel.load(path, mmap=False)
    if suffix_of(path.name) == ".nii.gz":
        with gzip.open(path) as stream:
            image = turn(image.from_file_map(image.make_file_map({"image": stream})))
            array = np.asanyarray(image.dataobj)
            while stream.read(2**20):  # gzip checks length and checksum when it comes to the end
                pass
    else:
        image = turn(image)
        array = np.asanyarray(image.dataobj)
    while array.ndim > 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (3, 4):
        raise InputError(f"it has shape {array.shape}, but a volume has three axes, or four with channels")
    spacing = tuple(float(step) for step in image.header.get_zooms()[:3])
    array = array[None] if array.ndim == 3 else np.moveaxis(array, -1, 0)
    return Sample(array, spacing if min(spacing) > 0 else None)


def read_tiff(path: Path) -> Sample:
    """A TIFF as (C, H, W), or as (C, D, H, W) where it has several pages; then with its spacing, if it says so.

    A sample that the file declares as opacity is applied to 8-bit colour or gray and dropped. All other samples are
    channels: writers declare the fourth of four as opacity without being asked, and with 16 bits it is a measurement.
    """
    import tifffile

    with tifffile.TiffFile(path) as file:
        _check_complete(file)
        series, first = file.series[0], file.pages.first
        array, axes = np.asarray(series.asarray()), str(series.axes)
        photometric, extra = int(first.photometric), [int(kind) for kind in first.extrasamples]
        spacing = _tiff_spacing(file)
    sample = _arrange(array, axes)
    colours = {0: 1, 1: 1, 2: 3, 6: 3}.get(photometric) if "S" in axes and "C" not in axes else None  # gray, RGB, YCbCr
    if array.dtype == np.uint8 and extra in ([1], [2]) and len(sample) - 1 == colours:
        sample = _drop_alpha(sample)
    has_depth = "Z" in axes and array.shape[axes.index("Z")] > 1
    return Sample(sample, spacing if has_depth else None, is_colour=len(sample) == 3 == colours)


MILLIMETRES = {
    "m": 1e3, "cm": 10.0, "mm": 1.0, "um": 1e-3, "micron": 1e-3, "nm": 1e-6, "pm": 1e-9, "å": 1e-7, "in": 25.4,
    "inch": 25.4,
}  # fmt: skip
"""Units of length in TIFF metadata, in lower case."""


def _tiff_spacing(file: Any) -> tuple[float, ...] | None:
    """Millimetres per voxel along (Z, Y, X) of an OME-TIFF or an ImageJ TIFF that gives all three with units."""
    try:
        steps = _ome_steps(file.ome_metadata) if file.is_ome else _imagej_steps(file) if file.is_imagej else {}
        spacing = tuple(float(steps[axis][0]) * _millimetres(str(steps[axis][1])) for axis in "ZYX")
    except (KeyError, TypeError, ValueError, ZeroDivisionError, ElementTree.ParseError):  # it does not say
        return None
    return spacing if all(0 < step < math.inf for step in spacing) else None


def _millimetres(unit: str) -> float:
    """The length of a unit; both signs for micro are in use, and ImageJ writes one as an escape."""
    plain = unit.strip().lower().replace("\\u00b5", "u").replace("\u00b5", "u").replace("\u03bc", "u")
    return MILLIMETRES[plain.removesuffix("s")]


def _ome_steps(xml: str) -> dict[str, tuple[Any, Any]]:
    """Step and unit along each axis, from the first image's PhysicalSizeX, Y and Z; their unit is µm by default."""
    pixels = ElementTree.fromstring(xml).find(".//{*}Pixels")
    found = {} if pixels is None else pixels.attrib
    sizes = {axis: f"PhysicalSize{axis}" for axis in "ZYX"}
    return {axis: (found[key], found.get(f"{key}Unit", "um")) for axis, key in sizes.items() if key in found}


def _imagej_steps(file: Any) -> dict[str, tuple[Any, Any]]:
    """Step and unit along each axis, from ImageJ's `spacing` and the TIFF's pixels per unit."""
    about, tags = file.imagej_metadata, file.pages.first.tags
    steps = {"Z": (about["spacing"], about["unit"])}
    for axis, tag in (("Y", "YResolution"), ("X", "XResolution")):
        pixels, per = tags[tag].value
        steps[axis] = (per / pixels, about["unit"])
    return steps


def _check_complete(file: Any) -> None:
    """tifffile reads the pages that a cut file still has; the link to a next page betrays a missing one."""
    file.filehandle.seek(file.pages.next_page_offset)
    if any(file.filehandle.read(file.tiff.offsetsize)):
        raise InputError("it is truncated: it announces more pages than it holds")


def _arrange(array: Array, axes: str) -> Array:
    """Bring TIFF axes to (C, [D,] H, W): S and C are channels, any other long axis is depth."""
    dropped = tuple(i for i, name in enumerate(axes) if name not in "YXSC" and array.shape[i] == 1)
    array, axes = array.squeeze(dropped), "".join(a for i, a in enumerate(axes) if i not in dropped)
    depth = [i for i, name in enumerate(axes) if name not in "YXSC"]
    if len(depth) > 1:
        raise InputError(f"it has the axes {axes}, but only one besides Y, X and channels can be the depth")
    channels = [i for i, name in enumerate(axes) if name in "SC"]
    array = array.transpose(*channels, *depth, axes.index("Y"), axes.index("X"))
    return array.reshape(-1, *array.shape[len(channels) :])


def read_npy(path: Path) -> Sample:
    """One image or volume from a .npy file; `channels_first` says how its axes are understood."""
    return Sample(channels_first(load_numpy(path)))


def read_npz(path: Path) -> Sample:
    """One image or volume from a .npz file, see `channels_first` and `NUMPY_KEYS`."""
    with load_numpy(path) as arrays:
        return Sample(channels_first(arrays[pick_key(arrays.files)]))


def load_numpy(path: Path) -> Any:
    """`numpy.load`, never unpickling."""
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        if "pickle" in str(error) or "Python objects" in str(error):
            raise InputError(PICKLED) from error
        raise


PICKLED = "it holds Python objects or is no NumPy file; pickles are never opened, save plain numbers instead"


def pick_key(keys: list[str]) -> str:
    """The name of the data among the arrays of a file.

    >>> pick_key(["labels", "images"])
    'images'
    """
    if len(keys) == 1:
        return keys[0]
    for key in NUMPY_KEYS:
        if key in keys:
            return key
    raise InputError(f"it holds the arrays {', '.join(keys)}; name the one with the data 'image' or 'images'")


def channels_first(array: Array) -> Array:
    """Bring one image or volume to (C, *spatial) by its shape alone; `channel_axis` is the rule.

    >>> channels_first(np.zeros((32, 40, 3))).shape, channels_first(np.zeros((20, 32, 40))).shape
    ((3, 32, 40), (1, 20, 32, 40))
    """
    axis = channel_axis(array.shape)
    return array[None] if axis is None else np.moveaxis(array, axis, 0)


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Which axis of one sample's shape holds channels: 0, -1, or None.

    Two axes: none. Three: the last if it is 1 to 4 long, else the first if it is, else none (a volume).
    Four: the shorter of the last and the first (the last if they are equal).
    """
    if len(shape) == 2:
        return None
    if len(shape) == 3:
        return next((axis for axis in (-1, 0) if shape[axis] <= MAX_CHANNELS), None)
    if len(shape) == 4:
        return -1 if shape[-1] <= shape[0] else 0
    raise InputError(f"one sample has the shape {shape}, but it should have two to four axes")


@contextmanager
def quiet_readers() -> Iterator[None]:
    """Keep the decoders' warnings and log lines from the user; what matters becomes an error."""
    loggers = [getLogger(name) for name in ("tifffile", "nibabel.global", "pydicom")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


Reader = Callable[[Path], Sample]

READERS: dict[str, Reader] = {
    ".png": read_image,
    ".jpg": read_image,
    ".jpeg": read_image,
    ".bmp": read_image,
    ".tif": read_tiff,
    ".tiff": read_tiff,
    ".npy": read_npy,
    ".npz": read_npz,
    ".nii": read_nifti,
    ".nii.gz": read_nifti,
}

SPATIAL_DIMS: dict[Reader, int] = {read_image: 2, read_nifti: 3}
"""What the suffix alone tells; the other readers must look into the file."""


def suffix_of(name: str) -> str:
    """The suffix of a file name in lower case, `.nii.gz` as a whole.

    >>> suffix_of("scan.01.NII.GZ"), suffix_of("a.png"), suffix_of("IM0001")
    ('.nii.gz', '.png', '')
    """
    lower = name.lower()
    return ".nii.gz" if lower.endswith(".nii.gz") else os.path.splitext(lower)[1]
