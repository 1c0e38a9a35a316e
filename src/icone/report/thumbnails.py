"""Small pictures of samples on a few sheets, so that a page with 20,000 of them stays light."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from icone.api.run_data import for_other_data, open_run_data
from icone.config import is_object, with_given
from icone.data import Dataset, Preparation, open_source
from icone.data.prepare import centre
from icone.errors import InputError
from icone.evaluation.duplicates import Pictures, small_picture
from icone.report.samples import Samples
from icone.run import Run

COLUMNS = 16
PER_SHEET = COLUMNS * COLUMNS
Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Sheets:
    """Tile i is in sheet i // 256, row (i % 256) // 16, column i % 16; sheets are JPEG as data addresses."""

    width: int
    height: int
    sheets: list[str]


def tile_edge(count: int) -> int:
    """Pixels per thumbnail: the more there are, the smaller."""
    return 64 if count <= 2000 else 48 if count <= 6000 else 32


@dataclass(frozen=True)
class Drawn:
    """What was made of the samples of a run when they were read again."""

    sheets: Sheets
    small: Pictures
    """The `small_picture` of every sample, by which near-duplicates are found."""
    examples: dict[int, Tensor]
    """Prepared samples of a few rows."""


def draw_samples(
    run: Run, samples: Samples, examples: Sequence[int] = (), data: Any = None, data_root: Path | None = None
) -> Drawn | None:
    """Thumbnails and small pictures of the samples, read again; None for points, which have no picture."""
    preparation = run.preparation
    if preparation.spatial_dims == 0:
        return None
    edge, every = tile_edge(len(samples.ids)), range(len(samples.ids))
    small: list[Pictures] = []
    kept: dict[int, Tensor] = {}

    def pictures() -> Iterator[Picture]:
        for row, image in enumerate(_images(run, samples, preparation, data, data_root, every)):
            small.append(small_picture(image))
            if row in examples:
                kept[row] = image
            yield picture(image, edge)

    try:
        return Drawn(lay_out(pictures(), edge), np.stack(small), kept)
    except InputError as error:
        without = "--no-thumbnails makes the page without them"
        raise InputError(f"no pictures of the samples: {error}. {without}") from error


def picture_of(
    run: Run, samples: Samples, rows: Sequence[int], data: Any = None, data_root: Path | None = None, edge: int = 128
) -> dict[int, Picture]:
    """Larger pictures of some rows; none for points."""
    preparation = run.preparation
    if preparation.spatial_dims == 0:
        return {}
    images = _images(run, samples, preparation, data, data_root, rows)
    return {row: picture(image, edge) for row, image in zip(rows, images, strict=True)}


def _images(
    run: Run, samples: Samples, preparation: Preparation, data: Any, data_root: Path | None, rows: Iterable[int]
) -> Iterator[Tensor]:
    """Prepared samples of these rows, one at a time."""
    config = dataclasses.replace(run.config, labels=None, label_column=(), group_column=None)
    config = with_given(config, data_root=data_root)
    datasets: dict[str, Dataset] = {}
    position: dict[tuple[str, str], int] = {}
    external = str(((run.result or {}).get("data") or {}).get("external_test"))
    for split in set(samples.splits):
        if split != "external":
            source = open_run_data(run.folder, dataclasses.replace(config, split=split), data)
        elif not is_object(external):
            source = open_source(external, dataclasses.replace(for_other_data(config), split="test"))
        else:  # it cannot be opened again: its samples have black pictures
            continue
        datasets[split] = Dataset(source, range(len(source)), preparation, resident=False)
        position |= {(split, name): i for i, name in enumerate(source.ids)}
    for row in rows:
        key = samples.splits[row], samples.source_ids[row]
        if key[0] not in datasets:
            yield torch.zeros((preparation.channels, *preparation.size))
            continue
        if key not in position:
            where = config.source if data is None else datasets[key[0]].source.name
            raise InputError(f"{where} does not hold {key[1]}: evaluate the run again")
        dataset = datasets[key[0]]
        if preparation.crops:
            yield _middle_crop(dataset, position[key])
        else:
            yield dataset.images_at(torch.tensor([position[key]]))[0]


def _middle_crop(dataset: Dataset, position: int) -> Tensor:
    """The crop in the middle of a sample of a run with `--crop`, whose prepared samples have their own shapes."""
    preparation = dataset.preparation
    sample = next(iter(dataset.source.each([position])))
    if isinstance(sample, InputError):
        raise sample
    return centre(preparation(sample)[None], preparation.size)[0]


def picture(image: Tensor, edge: int) -> Picture:
    """A sample (C, *size) as RGB: an image as it is, a volume as its three centre slices side by side.

    >>> picture(torch.rand(1, 20, 20, 20), 32).shape
    (32, 96, 3)
    """
    values = image.float() * (1.0 if image.dtype == torch.uint8 else 255.0)
    planes = [values]
    if values.dim() == 4:
        planes = [values.select(axis, values.shape[axis] // 2) for axis in (1, 2, 3)]
    return np.concatenate([_tile(plane, edge) for plane in planes], axis=1)


def _tile(plane: Tensor, edge: int) -> Picture:
    """A plane (C, H, W) of values in [0, 255] as (edge, edge, 3); other than 3 channels show their first."""
    channels = plane if len(plane) == 3 else plane[:1].expand(3, -1, -1)
    pixels = channels.clamp(0, 255).round().byte().permute(1, 2, 0).contiguous().numpy()
    return np.asarray(Image.fromarray(pixels).resize((edge, edge), Image.Resampling.LANCZOS))


def lay_out(pictures: Iterable[Picture], edge: int) -> Sheets:
    """Put pictures of one size on sheets of 16 x 16."""
    sheets: list[str] = []
    tiles: list[Picture] = []
    width = edge
    for tile in pictures:
        width = tile.shape[1]
        tiles.append(tile)
        if len(tiles) == PER_SHEET:
            sheets.append(_sheet(tiles))
            tiles = []
    if tiles:
        sheets.append(_sheet(tiles))
    return Sheets(width, edge, sheets)


def _sheet(tiles: list[Picture]) -> str:
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // COLUMNS)
    sheet = np.zeros((rows * height, COLUMNS * width, 3), np.uint8)
    for i, tile in enumerate(tiles):
        row, column = divmod(i, COLUMNS)
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = tile
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
