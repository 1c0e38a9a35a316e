"""NRRD, MHA and MHD images and volumes, through SimpleITK."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.axes import FOURTH_AXIS, by_axes, spacing_along, spatial_axes
from icone.data.formats.base import Format, Header, Sample
from icone.errors import InputError, optional

DETACHED = re.compile(r"^(?:ElementDataFile\s*=|data ?file:)\s*(\S.*?)\s*$", re.MULTILINE | re.IGNORECASE)
"""The line of a text header that names the file of the values."""


def read_itk(path: Path, axes: str | None = None) -> Sample:
    """An image as (C, Y, X), a volume as (C, X, Y, Z), turned to right, anterior, superior like a NIfTI.

    Several values per pixel are channels, and so is a fourth axis. `axes` names the axes otherwise, in the order of the
    file, the fastest first: XYZT takes the mean over time, XYC is an image with channels.
    """
    with optional("itk", "reading NRRD and MetaImage files"):
        import SimpleITK

    image: Any = SimpleITK.ReadImage(str(path))
    if image.GetDimension() == 3 and (axes is None or "Z" in axes):
        image = SimpleITK.DICOMOrient(image, "RAS")
    array = SimpleITK.GetArrayFromImage(image)  # the slowest axis first, then perhaps the values of a pixel
    parts = image.GetNumberOfComponentsPerPixel()
    array = np.moveaxis(array, -1, 0) if parts > 1 else array[None]
    array = array.transpose(*range(array.ndim - 1, 0, -1), 0)  # X, Y, …, values of a pixel
    if image.GetDimension() not in (2, 3, 4) or (axes is None and image.GetDimension() == 4 and parts > 1):
        raise InputError(f"it has {image.GetDimension()} axes and {parts} values per pixel: no image or volume")
    is_fourth = image.GetDimension() == 4
    named = axes or ("XYZC" if is_fourth else "XYZ"[: image.GetDimension()])
    if parts > 1 and len(named) < array.ndim:
        named += "C"
    if parts == 1 and len(named) < array.ndim:
        array = array[..., 0]
    order = "XYZ" if "Z" in named else "ZYX"
    steps = dict(zip(named, map(float, image.GetSpacing()), strict=False))
    notes = (FOURTH_AXIS.format(array.shape[-1]),) if axes is None and is_fourth else ()
    return Sample(by_axes(array, named, order), spacing_along(steps, spatial_axes(named, order)), notes=notes)


def itk_header(path: Path) -> Header:
    """What the header of a file declares."""
    with optional("itk", "reading NRRD and MetaImage files"):
        import SimpleITK

    reader: Any = SimpleITK.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    bits = re.search(r"(\d+)-bit", SimpleITK.GetPixelIDValueAsString(reader.GetPixelID()))
    dtype = np.dtype(f"u{int(bits[1]) // 8}" if bits else "f8")
    return Header((reader.GetNumberOfComponents(), *reader.GetSize()), dtype)


def detached_files(path: Path) -> list[Path]:
    """The file that a text header names as that of its values, where it is one."""
    with path.open("rb") as file:
        head = file.read(2**16).decode("latin-1")
    found = DETACHED.search(head.partition("\n\n")[0] if path.suffix.lower() in (".nrrd", ".nhdr") else head)
    named = path.parent / found[1] if found and found[1].upper() not in ("LOCAL", "LIST") else None
    return [named] if named is not None and named.is_file() else []


ITK = Format(
    name="NRRD or MetaImage",
    suffixes=(".nrrd", ".nhdr", ".mha", ".mhd"),
    read=read_itk,
    header=itk_header,
    takes_axes=True,
    more_files=detached_files,
    packages=("SimpleITK",),
    extra="itk",
)
