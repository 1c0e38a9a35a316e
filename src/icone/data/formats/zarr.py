"""Zarr stores: images of OME-Zarr (versions 0.4 and 0.5), one sample each, or plain arrays of many samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from icone.data.formats.axes import by_axes, spacing_along, spatial_axes
from icone.data.formats.base import Format, Header, Sample, colour_by_names
from icone.data.formats.lazy import LazyImage
from icone.data.formats.npy import axis_letters, bare_notes, bare_sample, pick_key
from icone.data.formats.tiff import millimetres
from icone.errors import InputError, printable

UNITS = {"micrometer": "um", "millimeter": "mm", "nanometer": "nm", "angstrom": "å", "centimeter": "cm", "meter": "m"}
"""Names of units in OME-Zarr, as TIFF metadata writes them."""


class ZarrFile:
    """A Zarr array, or a group of them; rows are read piece by piece."""

    def __init__(self, path: Path) -> None:
        self._arrays = _arrays(_open(path))
        self.headers = {name: Header(array.shape, array.dtype) for name, array in self._arrays.items()}

    def load(self, key: str) -> Any:
        return self._arrays[key]


def read_zarr(path: Path, axes: str | None = None) -> Sample:
    """The image of an OME-Zarr group at its full resolution, with its axes, spacing and channel names; or one array.

    An axis of time that is 1 long is dropped; a longer one is the depth where there is no Z, and else refused, unless
    `axes` asks for its mean.
    """
    opened = _open(path)
    about = _image(opened)
    if about is None:
        return bare_sample(np.asarray(_plain_array(opened)[...]), axes)
    named = [axis if isinstance(axis, dict) else {"name": axis} for axis in about["axes"]]
    level = about["datasets"][0]
    array, stored = np.asarray(opened[level["path"]][...]), "".join(str(axis["name"]).upper() for axis in named)
    ones = tuple(i for i, name in enumerate(stored) if name in "TZ" and array.shape[i] == 1)
    array, given = array.squeeze(ones), "".join(name for i, name in enumerate(stored) if i not in ones)
    if axes is None and {"T", "Z"} <= set(given):
        raise InputError(f"it has the axes {given}, time and depth: --axes={given} takes the mean over time")
    spatial = spatial_axes(axes or given)
    sample = by_axes(array, axes or given)
    found = _channel_names(opened)
    names = found if len(found) == len(sample) else ()
    return Sample(
        sample,
        spacing_along(_steps(named, level), spatial),
        is_colour=colour_by_names(names),
        names=names,
        notes=_notes(spatial, sample.shape, axes),
    )


def _notes(spatial: str, shape: tuple[int, ...], axes: str | None) -> tuple[str, ...]:
    """What was guessed of an image of OME-Zarr; `shape` is (C, *spatial)."""
    is_time = axes is None and spatial[0] == "T"
    return (f"its {shape[1]} points in time take the place of the depth",) if is_time else ()


def open_zarr(path: Path, axes: str | None = None, key: str = "") -> LazyImage:
    """The image of an OME-Zarr group with its lower resolutions, or one array, of which regions are read."""
    opened = _open(path / key)
    about = _image(opened)
    if about is None:
        array = _plain_array(opened)
        bare = LazyImage(array, axis_letters(array.shape, axes))
        bare.guesses = bare_notes(array.shape, axes)
        return bare
    stored = "".join(str(axis["name"] if isinstance(axis, dict) else axis).upper() for axis in about["axes"])
    units = {
        str(axis.get("unit", "")) for axis in about["axes"] if isinstance(axis, dict) and axis.get("type") == "space"
    }
    levels = [opened[level["path"]] for level in about["datasets"]]
    letters = axis_letters(levels[0].shape, axes) if axes else stored
    full = about["datasets"][0]
    image = LazyImage(
        levels[0],
        letters,
        steps=dict(zip(stored, _transformation(full, "scale"), strict=False)),
        offsets=dict(zip(stored, _transformation(full, "translation"), strict=False)),
        unit=units.pop() or None if len(units) == 1 else None,
        names=_channel_names(opened),
    )
    image.guesses = _notes(image.spatial, image.shape, axes)
    image.coarser = tuple(LazyImage(level, letters, spatial=image.spatial) for level in levels[1:])
    return image


def _transformation(level: dict[str, Any], kind: str) -> list[float]:
    found = [t[kind] for t in level.get("coordinateTransformations", ()) if t.get("type") == kind]
    return found[0] if found else []


def zarr_header(path: Path) -> Header:
    """What the array that is read declares."""
    opened = _open(path)
    about = _image(opened)
    array = _plain_array(opened) if about is None else opened[about["datasets"][0]["path"]]
    return Header(array.shape, np.dtype(array.dtype))


def images_in(path: Path) -> list[Path]:
    """The images of an OME-Zarr store: itself, or those of a plate or a collection; none of a store of arrays."""
    return [path / inner for inner in _walk(_open(path), "")]


def _walk(group: Any, place: str) -> Iterator[str]:
    if hasattr(group, "shape"):
        return
    if _image(group) is not None:
        yield place
        return
    for name, inner in sorted(group.groups()):
        yield from _walk(inner, f"{place}{name}/")


def _open(path: Path) -> Any:
    import zarr

    return zarr.open(str(path), mode="r")


def _arrays(opened: Any) -> dict[str, Any]:
    """The arrays of a group by name, or the one that was opened."""
    return {"array": opened} if hasattr(opened, "shape") else dict(opened.arrays())


def _plain_array(opened: Any) -> Any:
    """The array with the data, where nothing says what its axes are."""
    arrays = _arrays(opened)
    return arrays[pick_key(sorted(arrays))]


def _metadata(group: Any) -> Any:
    """The attributes of OME; version 0.5 has them under a name of their own."""
    return group.attrs.get("ome", group.attrs)


def _image(group: Any) -> Any:
    """The first multiscale image of a group; None where it has none."""
    scales = None if hasattr(group, "shape") else _metadata(group).get("multiscales")
    return scales[0] if scales and "axes" in scales[0] else None


def _channel_names(group: Any) -> tuple[str, ...]:
    channels = (_metadata(group).get("omero") or {}).get("channels", [])
    names = [str(channel.get("label", "")) for channel in channels]
    return tuple(map(printable, names)) if all(names) else ()


def _steps(axes: list[dict[str, Any]], level: dict[str, Any]) -> dict[str, float]:
    """Millimetres along every axis of space that has a unit."""
    found = {}
    for axis, step in zip(axes, _transformation(level, "scale"), strict=False):
        unit = str(axis.get("unit", ""))
        if axis.get("type") == "space" and unit in UNITS:
            found[str(axis["name"]).upper()] = float(step) * millimetres(UNITS[unit])
    return found


ZARR = Format(
    name="Zarr",
    suffixes=(".zarr",),
    read=read_zarr,
    header=zarr_header,
    open_arrays=ZarrFile,
    open_lazy=open_zarr,
    takes_axes=True,
    is_folder=True,
    samples=images_in,
    packages=("zarr",),
    extra="zarr",
)
