"""How kernels over pairs of rows cut their problem."""

from __future__ import annotations

from typing import NamedTuple


class Tiling(NamedTuple):
    """Rows of a program, rows that it meets at a time, warps, stages in flight."""

    rows: int
    others: int
    warps: int
    stages: int
