"""The features of tiles at their places: a map that lies over the image, as OME-Zarr, and a picture of it."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from icone.api.export.base import new_folder
from icone.data import Dataset
from icone.data.sources.tiles import TiledImage, TilesSource
from icone.data.threads import read_ahead
from icone.errors import optional
from icone.evaluation.features import FrozenEncoder
from icone.files import replacing

BLOCK = {2: 32, 3: 8}
"""Tiles along the edge of a chunk of the map, by the number of dimensions."""
WINDOW = 2.0
"""Standard deviations of a component around its mean that are shown."""
COLOURS = ("FF0000", "00FF00", "0000FF")
PICTURE = 512
"""The longer edge of the picture in pixels, at least."""

Floats = npt.NDArray[np.float32]
Block = tuple[int, npt.NDArray[np.int64], Floats]
"""The number of an image, places (n, axes) in its grid that lie in one chunk of the map, and their features (n, d)."""


class PrincipalAxes:
    """Principal components of features that come in pieces, exactly: from their sum and their products (float64)."""

    def __init__(self, features: int) -> None:
        self._count, self._sum, self._products = 0, np.zeros(features), np.zeros((features, features))

    def add(self, features: Floats) -> None:
        exact = features.astype(np.float64)
        self._count += len(exact)
        self._sum += exact.sum(axis=0)
        self._products += exact.T @ exact

    def fit(self, count: int) -> tuple[Floats, Floats, Floats]:
        """Mean (d,), the first axes (d, count), each with its largest entry positive, and standard deviations."""
        mean = self._sum / self._count
        variances, axes = np.linalg.eigh(self._products / self._count - np.outer(mean, mean))
        axes = axes[:, ::-1][:, :count]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        spreads = np.sqrt(np.maximum(variances[::-1][:count], 0))
        return mean.astype(np.float32), axes.astype(np.float32), spreads.astype(np.float32)


def write_tile_map(
    encoder: FrozenEncoder, dataset: Dataset, target: Path, batch_size: int, components: int | None, console: Console
) -> list[Path]:
    """Write the map of every image, chunk by chunk, and beside it a picture of three components; returns the pictures.

    A map is (features, *grid), or (components, *grid); 0 where a tile is background. Several images are groups below
    `target`. A picture has the first three principal components of all tiles as red, green and blue; of a volume, of
    the middle slice of tiles.
    """
    with optional("zarr", "a map of features"):
        import zarr
    source = dataset.source
    assert isinstance(source, TilesSource)
    is_single = len(source.images) == 1
    names = [_plain_name(one.name) for one in source.images]
    principal, pictures = PrincipalAxes(encoder.num_features), []
    positions = np.array(dataset.positions)
    with new_folder(target) as folder:

        def new_group(base: Path, number: int) -> Any:
            group = zarr.open_group(str(base), mode="a", zarr_format=2)
            return group if is_single else group.require_group(names[number])

        scratch = folder if components is None else folder / ".features"
        groups = [new_group(scratch, number) for number in range(len(names))]
        arrays = [_new_array(*pair, encoder.num_features) for pair in zip(groups, source.images, strict=True)]
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("embedding", total=len(dataset))
            for number, cells, features in _blocks(encoder, dataset, batch_size):
                _write(arrays[number], cells, features)
                principal.add(features)
                bar.advance(task, len(cells))
        mean, axes, spreads = principal.fit(max(3, components or 0))
        for number, one in enumerate(source.images):
            cells = source.cells[positions[source.image_of[positions] == number]]
            if components is not None:
                groups[number] = new_group(folder, number)
                reduced = _new_array(groups[number], one, axes[:, :components].shape[1])
                for rows in _alike(cells // BLOCK[source.spatial_dims]):
                    centred: Floats = _read(arrays[number], cells[rows]) - mean
                    _write(reduced, cells[rows], centred @ axes[:, :components])
            groups[number].attrs.update(
                _metadata(one, names[number], None if components is None else spreads[:components])
            )
            path = target.with_suffix(".png") if is_single else target.with_name(f"{target.stem}-{names[number]}.png")
            pictures.append((path, _picture(arrays[number], one, cells, mean, axes[:, :3], spreads[:3])))
        if components is not None:
            shutil.rmtree(scratch)
    for path, picture in pictures:
        with replacing(path) as temporary:
            picture.save(temporary, format="png")
    return [path for path, _ in pictures]


def _blocks(encoder: FrozenEncoder, dataset: Dataset, batch_size: int) -> Iterator[Block]:
    """Features of all tiles, those of one chunk of a map together."""
    source = dataset.source
    assert isinstance(source, TilesSource)
    positions = np.array(dataset.positions)
    image_of, cells = source.image_of[positions], source.cells[positions]
    groups = list(_alike(np.column_stack([image_of, cells // BLOCK[source.spatial_dims]])))
    batches = [torch.tensor(group[i : i + batch_size]) for group in groups for i in range(0, len(group), batch_size)]
    images = read_ahead(dataset.images_at, batches, workers=2, ahead=2)
    with torch.inference_mode():
        for group in groups:
            found = [
                encoder.encode_prepared(next(images).to(encoder.device)).float().cpu().numpy()
                for _ in range(0, len(group), batch_size)
            ]
            yield int(image_of[group[0]]), cells[group], np.concatenate(found)


def _alike(keys: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers of the rows (n, k) that are equal, for each row that there is, in order."""
    order = np.lexsort(keys.T[::-1])
    ends = np.flatnonzero((np.diff(keys[order], axis=0) != 0).any(axis=1)) + 1
    yield from (rows for rows in np.split(order, ends) if len(rows))


def _window(cells: npt.NDArray[np.int64]) -> tuple[Any, tuple[Any, ...]]:
    """The part of a map around places, and these places within it."""
    low, high = cells.min(axis=0), cells.max(axis=0) + 1
    part = (slice(None), *(slice(int(a), int(b)) for a, b in zip(low, high, strict=True)))
    return part, (slice(None), *(cells - low).T)


def _write(array: Any, cells: npt.NDArray[np.int64], features: Floats) -> None:
    part, inner = _window(cells)
    content = np.zeros((array.shape[0], *(s.stop - s.start for s in part[1:])), np.float32)
    content[inner] = features.T
    array[part] = content


def _read(array: Any, cells: npt.NDArray[np.int64]) -> Floats:
    part, inner = _window(cells)
    features: Floats = np.asarray(array[part])[inner].T
    return features


def _new_array(group: Any, one: TiledImage, channels: int) -> Any:
    block = BLOCK[len(one.grid)]
    return group.create_array(
        "0",
        shape=(channels, *one.grid),
        chunks=(channels, *(min(block, n) for n in one.grid)),
        dtype="float32",
        fill_value=0,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )


def _metadata(one: TiledImage, name: str, spreads: Floats | None) -> dict[str, Any]:
    """Attributes of OME-Zarr 0.4: a place of the map is where the middle of its tile is in the image."""
    letters = [letter if letter in "zyx" else "z" for letter in one.image.spatial.lower()]
    unit = {"unit": one.image.unit} if one.image.unit else {}
    scale = [step * one.stride for step in one.image.steps]
    middle = [
        offset + (one.tile - 1) / 2 * step for offset, step in zip(one.image.offsets, one.image.steps, strict=True)
    ]
    where = [{"type": "scale", "scale": [1.0, *scale]}, {"type": "translation", "translation": [0.0, *middle]}]
    axes = [{"name": "c", "type": "channel"}, *({"name": letter, "type": "space", **unit} for letter in letters)]
    image = {"version": "0.4", "name": name, "axes": axes}
    datasets = [{"path": "0", "coordinateTransformations": where}]
    about: dict[str, Any] = {"multiscales": [{**image, "datasets": datasets}]}
    if spreads is not None:
        about["omero"] = {
            "channels": [
                {
                    "label": f"component {number}",
                    "color": COLOURS[number - 1] if number <= len(COLOURS) else "FFFFFF",
                    "active": number <= len(COLOURS),
                    "window": {"min": -end, "max": end, "start": -end, "end": end},
                }
                for number, end in enumerate((WINDOW * np.maximum(spreads, 1e-12)).tolist(), start=1)
            ]
        }
    return about


def _picture(
    array: Any, one: TiledImage, cells: npt.NDArray[np.int64], mean: Floats, axes: Floats, spreads: Floats
) -> Image.Image:
    """The first three components as red, green and blue, the background black."""
    if len(one.grid) == 3 and len(cells):  # the slice with tiles that is closest to the middle
        depth = cells[np.abs(cells[:, 0] - (one.grid[0] - 1) / 2).argmin(), 0]
        cells = cells[cells[:, 0] == depth]
    pixels = np.zeros((*one.grid[-2:], 3), np.uint8)
    for rows in _alike(cells // BLOCK[len(one.grid)]):
        part = cells[rows]
        unit = 0.5 + (_read(array, part) - mean) @ axes / (2 * WINDOW * np.maximum(spreads, 1e-12))
        pixels[part[:, -2], part[:, -1], : unit.shape[1]] = (unit.clip(0, 1) * 255).round()
    zoom = max(1, math.ceil(PICTURE / max(one.grid[-2:])))
    return Image.fromarray(pixels.repeat(zoom, axis=0).repeat(zoom, axis=1))


def _plain_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)
