"""The benchmark of memory compares what it claims to compare."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from memory_scale import Cell, at_peak, cells, ratios


def row(cell: Cell, memory: float, milliseconds: float) -> dict[str, Any]:
    numbers = dict.fromkeys(("allocated_gb", "reserved_gb", "held_gb"), memory)
    return {"name": cell.name, **asdict(cell), **numbers, "milliseconds": milliseconds}


def test_cells_are_compared_with_those_that_differ_in_one_respect() -> None:
    rows = [
        row(Cell(128, 16), 40.0, 50.0),
        row(Cell(128, 16, micro_batch=1), 4.0, 60.0),
        row(Cell(128), 3.2, 4.0),
        row(Cell(128, checkpointed=True), 1.6, 5.0),
        {"name": "too large", **asdict(Cell(384)), "reason": "out of memory"},
        row(Cell(384, checkpointed=True), 20.0, 90.0),
    ]
    found = {(one["cell"], one["to"]): (one["held_gb"], one["milliseconds"]) for one in ratios(rows)}
    micro, plain, one = "128³ B=16 micro-batch 1 captured", "128³ B=16 captured", "128³ B=1 captured"
    assert found == {
        (micro, plain): pytest.approx((0.1, 1.2)),
        (micro, one): pytest.approx((1.25, 15.0)),
        ("128³ B=1 checkpointed captured", one): pytest.approx((0.5, 1.25)),
    }


def test_no_cell_is_measured_twice() -> None:
    todo = cells((128, 192, 256, 384), 16, ("captured", "eager"), "resnet18_3d")
    assert len(todo) == len(set(todo)) == 20


def test_the_peak_of_a_history_is_told_by_lines() -> None:
    def event(action: str, addr: int, size: int, line: int) -> dict[str, Any]:
        frames = [{"filename": "/x/icone/nn/a.py", "line": line, "name": "f"}]
        return {"action": action, "addr": addr, "size": size, "frames": frames}

    history = [event("alloc", 1, 2 * 10**9, 7), event("alloc", 2, 10**9, 8), event("free_completed", 1, 0, 0)]
    history.append(event("alloc", 1, 10**9, 9))
    assert at_peak({"device_traces": [history]}) == {"at_peak": {"a.py:7 f": 2.0, "a.py:8 f": 1.0}}
