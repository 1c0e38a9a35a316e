"""What became of a run: metrics, or the reason why there are none."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from icone.errors import InputError

Status = Literal["done", "failed", "undefined"]


class SweepHalted(InputError):
    """No run failed, but none can go on: a disk is full, or the store cannot be written."""


class Point(NamedTuple):
    """A metric measured in the course of training."""

    epoch: int
    metric: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run, as it is kept."""

    status: Status
    reason: str | None = None
    """The error of a failed run; why an undefined one cannot exist."""
    metrics: dict[str, float] = field(default_factory=dict)
    trace: list[Point] = field(default_factory=list)
    tested: dict[str, str] = field(default_factory=dict)
    """What runs are compared by, sample by sample: `test_labels` holds the class of every test sample, `test_groups`
    its group where samples share any, `right_PROBE` whether that probe is right about it (1) or not (0)."""
    seconds: float = 0.0
    """Wall clock of training and measuring, over all executions of the run; runs that train side by side share it."""
    train_seconds: float = 0.0
    """Of that, the epochs, as a share too."""
    steps: int = 0
    """Optimizer steps."""
    step_seconds: float = 0.0
    """Of one step, as a share too: the median over epochs, without the first, which holds the start."""
    sample: str | None = None
    """What one sample is: channels and edges, for example 1x64x64x64."""
    together: int = 1
    """Runs that trained side by side in its process."""
    processes: int = 1
    """Processes that may have run beside each other on the device."""
    peak_bytes: int = 0
    """Largest memory: what PyTorch reserved on the GPU, or the resident memory of the process on a CPU."""
    device_bytes: int = 0
    """Memory of the GPU it ran on; 0 on a CPU."""
    out_of_memory: bool = False
    device: str = ""
    host: str = ""
    finished: str = ""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold; metrics that are not finite are left out and named in the notes."""
        finite = {name: value for name, value in self.metrics.items() if math.isfinite(value)}
        lost = [f"{name} is not finite" for name in self.metrics if name not in finite]
        trace = [list(point) for point in self.trace if math.isfinite(point.value)]
        return dataclasses.asdict(self) | {"metrics": finite, "trace": trace, "notes": [*self.notes, *lost]}


def outcome_from_json(plain: dict[str, Any]) -> Outcome:
    return Outcome(**{**plain, "trace": [Point(*point) for point in plain["trace"]]})
