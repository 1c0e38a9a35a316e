"""Synthetic images of stained white blood cells: nucleus, cytoplasm, granules, red cells around."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from icone.data.sources.base import Array

Floats = npt.NDArray[np.float32]
Rng = np.random.Generator

BACKGROUND = (0.93, 0.88, 0.87)
RED_CELL = (0.88, 0.66, 0.66)
CYTOPLASM = (0.74, 0.76, 0.88)
NUCLEUS = (0.42, 0.26, 0.58)
ORANGE, BLUE = (0.86, 0.45, 0.36), (0.24, 0.16, 0.45)


class Kind(NamedTuple):
    """What makes a class of cells."""

    lobes: tuple[int, int]
    """Fewest and most lobes of the nucleus."""
    radius: tuple[float, float]
    """Radius of a lobe, in radii of the cell."""
    spread: float
    """Distance of the lobes from the cell's centre, in radii of the cell."""
    notch: bool = False
    """Whether the nucleus is bitten into, like a kidney."""
    granules: tuple[float, float, float] | None = None


CELLS = {
    "basophil": Kind((2, 3), (0.32, 0.42), 0.3, granules=BLUE),
    "eosinophil": Kind((2, 2), (0.32, 0.42), 0.4, granules=ORANGE),
    "lymphocyte": Kind((1, 1), (0.72, 0.88), 0.05),
    "monocyte": Kind((1, 1), (0.62, 0.75), 0.1, notch=True),
    "neutrophil": Kind((3, 5), (0.24, 0.32), 0.42),
}


def draw_cell(label: str, size: int, rng: Rng) -> Array:
    """One image (3, size, size), uint8, of the class `label`; place, size, stain, light and noise vary."""
    kind = CELLS[label]
    steps = np.linspace(-1, 1, size, dtype=np.float32)
    grid = np.stack(np.meshgrid(steps, steps, indexing="ij"))
    edge = rng.uniform(0.02, 0.06)
    centre, radius = rng.uniform(-0.2, 0.2, 2), rng.uniform(0.45, 0.65)
    image = np.ones((3, size, size), np.float32) * _colour(BACKGROUND, rng)
    image = _red_cells(image, grid, edge, rng)
    cell = _blob(grid, centre, radius, edge, rng)
    image = _paint(image, cell, _colour(CYTOPLASM, rng))
    image = _paint(image, 0.95 * _nucleus(kind, grid, centre, radius, edge, rng), _colour(NUCLEUS, rng))
    if kind.granules is not None:
        image = _paint(image, 0.8 * cell * _granules(grid, centre, radius, rng), _colour(kind.granules, rng))
    return _photograph(image, grid, rng)


def _photograph(image: Floats, grid: Floats, rng: Rng) -> Array:
    """Stain strength, uneven light, noise, 8 bit."""
    image = image ** rng.uniform(0.7, 1.4)
    tilt = rng.uniform(-0.1, 0.1, 2).astype(np.float32)
    image = image * (rng.uniform(0.85, 1.05) + np.tensordot(tilt, grid, axes=1))
    image = image + rng.uniform(0.01, 0.04) * rng.standard_normal(image.shape, dtype=np.float32)
    pixels: Array = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return pixels


def _red_cells(image: Floats, grid: Floats, edge: float, rng: Rng) -> Floats:
    """Pale discs with a paler middle, around and below the white cell."""
    for _ in range(rng.integers(2, 6)):
        centre = rng.uniform(-1.1, 1.1, 2)
        disc = _blob(grid, centre, 0.33, edge, rng)
        image = _paint(image, disc * (1 - 0.5 * _blob(grid, centre, 0.12, 0.06, rng)), _colour(RED_CELL, rng))
    return image


def _nucleus(kind: Kind, grid: Floats, centre: Array, radius: float, edge: float, rng: Rng) -> Floats:
    """One round lobe, or several along an arc."""
    count = int(rng.integers(kind.lobes[0], kind.lobes[1] + 1))
    turn = rng.uniform(0, 2 * np.pi)
    outside = np.ones(grid.shape[1:], np.float32)
    for k in range(count):
        angle = turn + k * rng.uniform(1.0, 1.4)
        place = centre + kind.spread * radius * np.array([np.cos(angle), np.sin(angle)])
        outside *= 1 - _blob(grid, place, rng.uniform(*kind.radius) * radius, edge, rng)
    mask = 1 - outside
    if kind.notch:
        place = centre + 0.65 * radius * np.array([np.cos(turn + np.pi), np.sin(turn + np.pi)])
        mask *= 1 - _blob(grid, place, rng.uniform(0.3, 0.42) * radius, edge, rng)
    return mask


def _granules(grid: Floats, centre: Array, radius: float, rng: Rng, count: int = 40) -> Floats:
    places = centre + radius * rng.uniform(-0.9, 0.9, (count, 2))
    rows, columns = (
        np.exp(-((steps - places[:, axis, None]) ** 2) / (2 * 0.045**2))
        for axis, steps in enumerate((grid[0, :, 0], grid[1, 0]))
    )
    mask: Floats = np.minimum(1, rows.T @ columns).astype(np.float32)
    return mask


def _blob(grid: Floats, centre: Array, radius: float, edge: float, rng: Rng) -> Floats:
    """A soft mask of a disc whose outline wobbles."""
    y, x = grid - centre.astype(np.float32)[:, None, None]
    strengths, phases = rng.uniform(0, 0.05, (3, 1, 1)), rng.uniform(0, 2 * np.pi, (3, 1, 1))
    orders = np.array([2, 3, 4]).reshape(3, 1, 1)
    outline = 1 + (strengths * np.sin(orders * np.arctan2(y, x) + phases)).sum(axis=0)
    distance = np.hypot(x, y) - radius * outline
    mask: Floats = (1 / (1 + np.exp(np.clip(2 * distance / edge, -30, 30)))).astype(np.float32)
    return mask


def _paint(image: Floats, mask: Floats, colour: Floats) -> Floats:
    return image * (1 - mask) + colour * mask


def _colour(mean: tuple[float, float, float], rng: Rng) -> Floats:
    return (np.array(mean) + rng.normal(0, 0.03, 3)).clip(0.02, 1).astype(np.float32)[:, None, None]
