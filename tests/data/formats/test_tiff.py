"""TIFF axes, opacity and spacing against the arrays that were written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image, ImageOps

from icone.config import DataConfig
from icone.data import Sample, Source, open_source

OpenOne = Callable[[Path], Source]
ReadOne = Callable[[Path], Sample]

RNG = np.random.default_rng(0)

GRAY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)

RGB = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)

VOLUME = RNG.normal(size=(7, 8, 9)).astype(np.float32)


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
    tmp_path: Path,
    open_one: OpenOne,
    array: npt.NDArray[np.float32],
    options: dict[str, object],
    expected: npt.NDArray[np.float32],
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
    assert [source.read(i).is_colour for i in (0, 1)] == [True, None]


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
    tmp_path: Path, read_one: ReadOne, dtype: npt.DTypeLike, samples: int, options: dict[str, Any]
) -> None:
    pixels = RNG.integers(0, 256, (6, 9, samples)).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    sample = read_one(tmp_path)
    np.testing.assert_array_equal(sample.array, pixels.transpose(2, 0, 1))
    assert sample.array.dtype == dtype
    assert not sample.is_colour


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("axes", [None, "YX", "XY"])
def test_a_tiff_is_turned_as_its_orientation_says(orientation: int, axes: str | None, tmp_path: Path) -> None:
    """Pillow turns images so by the same tag; where the user calls columns rows, it says nothing."""
    tifffile.imwrite(tmp_path / "a.tif", GRAY, extratags=[(274, "H", 1, orientation, True)])
    array = open_source(str(tmp_path), DataConfig(axes=axes)).read(0).array
    image = Image.fromarray(GRAY)
    image.getexif()[274] = orientation
    shown = np.asarray(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(array[0], GRAY.T if axes == "XY" else shown)


def test_spacing_and_slices_turn_with_the_pages(tmp_path: Path, read_one: ReadOne) -> None:
    tags = [(274, "H", 1, 6, True)]
    tifffile.imwrite(tmp_path / "a.ome.tif", STACK, metadata=OME, extratags=tags)
    sample = read_one(tmp_path)
    np.testing.assert_array_equal(sample.array[0], np.rot90(STACK, -1, axes=(1, 2)))
    assert sample.spacing == pytest.approx((1.5e-3, 0.2e-3, 0.3e-3))


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
        ("a.ome.tif", STACK[0], {"metadata": OME | {"axes": "YX"}}, (0.3e-3, 0.2e-3)),
        ("a.ome.tif", STACK, {"metadata": OME | {"PhysicalSizeZUnit": "pixel"}}, None),
        ("a.ome.tif", STACK, {"metadata": OME | {"PhysicalSizeZ": 0.0}}, None),
        ("a.ome.tif", STACK, {"metadata": {"axes": "ZYX", "PhysicalSizeX": 0.2}}, None),
        ("a.tif", STACK, {"imagej": True, "metadata": {"axes": "ZYX", "spacing": 2.0}}, None),
        ("a.tif", STACK, {}, None),
    ],
)  # fmt: skip
def test_spacing_of_tiff_volumes(
    tmp_path: Path,
    read_one: ReadOne,
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
def test_spacing_of_imagej_volumes(tmp_path: Path, read_one: ReadOne, unit: str, millimetres: float | None) -> None:
    about = {"axes": "ZYX", "spacing": 2.0, "unit": unit}
    tifffile.imwrite(tmp_path / "a.tif", STACK, imagej=True, resolution=(5, 4), metadata=about)
    found = read_one(tmp_path).spacing
    assert found == (
        None if millimetres is None else pytest.approx([2 * millimetres, millimetres / 4, millimetres / 5])
    )
