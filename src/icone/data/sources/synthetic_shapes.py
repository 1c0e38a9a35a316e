"""Synthetic volumes: one soft body of a known shape in random pose, under bias field, drift and noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from icone.data.sources.base import Array

Floats = npt.NDArray[np.float32]
Rng = np.random.Generator


def draw_shape(label: str, size: int, rng: Rng) -> Array:
    """One volume (1, size, size, size), float32, of the class `label`, in arbitrary units like an MRI scan.

    Position, orientation, size and proportions are random, so that no voxel tells the class by itself.
    """
    grid = _grid(size)
    centre, scale = rng.uniform(-0.2, 0.2, 3), rng.uniform(0.5, 0.7)
    body = (_rotation(rng).T @ (grid - centre[:, None].astype(np.float32))) / np.float32(scale)
    distance = SHAPES[label](body.astype(np.float32), rng)
    edge = rng.uniform(0.04, 0.12)  # the blur of the outline
    inside = 1 / (1 + np.exp(np.clip(distance / edge, -30, 30)))
    volume = rng.uniform(0.6, 1.0) * inside + 0.05 * _waves(grid, rng)
    volume = volume * np.exp(0.2 * _waves(grid, rng)) + rng.uniform(-0.2, 0.2)
    volume += rng.uniform(0.04, 0.08) * rng.standard_normal(volume.shape, dtype=np.float32)
    scaled: Array = (300 + 400 * volume).astype(np.float32).reshape(1, size, size, size)
    return scaled


def _ellipsoid(p: Floats, rng: Rng) -> Floats:
    return _length(p / _axes(rng, 0.6, 1.2)) - 1


def _box(p: Floats, rng: Rng) -> Floats:
    distance: Floats = np.abs(p / _axes(rng, 0.5, 1.0)).max(axis=0) - 1
    return distance


def _torus(p: Floats, rng: Rng) -> Floats:
    ring = np.hypot(p[0], p[1]) - np.float32(rng.uniform(0.75, 1.0))
    distance: Floats = np.hypot(ring, p[2]) - np.float32(rng.uniform(0.25, 0.4))
    return distance


def _branches(p: Floats, rng: Rng) -> Floats:
    """Four tubes that leave one point, towards the corners of a tetrahedron that is bent at random."""
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=np.float32)
    directions = corners + rng.uniform(-0.4, 0.4, corners.shape).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = rng.uniform(0.9, 1.4, (4, 1)).astype(np.float32)
    along = np.clip(directions @ p, 0, lengths)
    distances = [_length(p - d[:, None] * a) for d, a in zip(directions, along, strict=True)]
    distance: Floats = np.minimum.reduce(distances) - np.float32(rng.uniform(0.2, 0.32))
    return distance


def _shell(p: Floats, rng: Rng) -> Floats:
    return np.abs(_length(p / _axes(rng, 0.7, 1.1)) - 1) - np.float32(rng.uniform(0.15, 0.25))


def _pair(p: Floats, rng: Rng) -> Floats:
    offset = np.array([[rng.uniform(0.7, 0.95)], [0], [0]], dtype=np.float32)
    radii = rng.uniform(0.4, 0.65, 2).astype(np.float32)
    distance: Floats = np.minimum(_length(p - offset) - radii[0], _length(p + offset) - radii[1])
    return distance


SHAPES: dict[str, Callable[[Floats, Rng], Floats]] = {
    "box": _box,
    "branches": _branches,
    "ellipsoid": _ellipsoid,
    "pair": _pair,
    "shell": _shell,
    "torus": _torus,
}
"""Class name -> signed distance (negative inside) of points (3, n) in the body's own axes."""


def _grid(size: int) -> Floats:
    steps = np.linspace(-1, 1, size, dtype=np.float32)
    return np.stack(np.meshgrid(steps, steps, steps, indexing="ij")).reshape(3, -1)


def _length(p: Floats) -> Floats:
    length: Floats = np.sqrt(np.einsum("dn,dn->n", p, p))
    return length


def _axes(rng: Rng, low: float, high: float) -> Floats:
    return rng.uniform(low, high, (3, 1)).astype(np.float32)


def _rotation(rng: Rng) -> Floats:
    """One of the turns that map the axes onto one another, then a tilt of about 15°, as scans are aligned."""
    axes = np.eye(3, dtype=np.float32)[rng.permutation(3)] * rng.choice([-1, 1], (3, 1)).astype(np.float32)
    turn: Floats = axes * np.float32(np.linalg.det(axes))  # a reflection becomes a rotation
    return _tilt(rng) @ turn


def _tilt(rng: Rng) -> Floats:
    """A small random rotation, from a quaternion near 1."""
    w, x, y, z = (q := np.array([1, *rng.normal(0, 0.08, 3)])) / np.linalg.norm(q)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows, dtype=np.float32)


def _waves(grid: Floats, rng: Rng, count: int = 3) -> Floats:
    """A smooth random field of about unit size: the bias of a coil, the texture of a background."""
    directions = rng.normal(0, 1.5, (count, 3)).astype(np.float32)
    phases = rng.uniform(0, 2 * np.pi, (count, 1)).astype(np.float32)
    field: Floats = np.sin(directions @ grid + phases).mean(axis=0)
    return field
