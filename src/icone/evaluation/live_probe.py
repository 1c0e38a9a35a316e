"""Geometry and probes while a run trains: a small fixed set of views is encoded every few epochs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from icone.data import Dataset
from icone.encoders.calibration import calibrate_batch_norm, calibration_rows, kept_statistics
from icone.errors import CollapseError
from icone.evaluation.assessment import geometry_metrics, with_untrained
from icone.evaluation.live_labels import LabelProbe, Said, label_targets, labelled
from icone.evaluation.metrics import Embedding
from icone.evaluation.recognition import Recognition
from icone.evaluation.verdict import TAUGHT, State, Verdict, judge_live, lasting
from icone.methods import Method
from icone.training import Display
from icone.training.callbacks import Callback, Row
from icone.training.context import kept_random_state, matmul_precision
from icone.views import Views

MOST_INSTANCES = 512
FEWEST_INSTANCES = 16
"""Below this a rank says little, so that the shortest runs, which last seconds, may spend more than the share."""
VIEWS = 2
SHARE = 0.025
"""Of the training time that the probe is planned to cost; the promise is 3 %."""
DEFAULT_INTERVAL = 5
"""Epochs from one measurement to the next, where the user says nothing."""
MEASUREMENT_SECONDS, MICRO_BATCH_SECONDS, FLOPS = 0.17, 1.2e-3, 1e14
"""Estimates for an H200, on the careful side. A measurement of up to 512 samples, most of it on the host: 0.14 s were
measured for 200. A micro-batch at least: 1.5 ms were measured. Floating-point operations in a second at most. Slower
GPUs train longer, so that their share is smaller."""
FEW_INSTANCES = 128
"""Samples of a GPU's run that is too short for more than two measurements: their metrics take a tenth of the time. And
samples at least where the user names an interval, because scores of fewer say little."""
TRAINING_PASSES = 2
"""What training on a view costs, in forward passes: three on paper, but volumes on two cores came to two."""
FLOAT32_PASSES = 2
"""What a forward pass in float32 costs, in those of bfloat16: TF32 has half the rate, and values twice the bytes."""
MEMORY = 512 * 2**20
"""Bytes of prepared samples that the probe keeps."""
AT_ONCE = 128
"""Samples that are encoded at a time, at most."""
Progress = Callable[[int, int], None]
"""Is told how many instances are done, of how many."""
SEED = 20_000


@dataclass(frozen=True)
class ProbePlan:
    """After which epochs how many instances are looked at: a function of the configuration alone.

    A schedule that followed the clock would make the history of a resumed run differ from an undisturbed one.
    """

    every: int
    epochs: int
    instances: int
    first: bool = True
    """Whether the first epoch is one of them; where intervals are long, one measurement in a short time is spared."""

    def due(self, epoch: int) -> bool:
        return epoch == self.epochs - 1 or (epoch % self.every == 0 and (epoch > 0 or self.first))

    @property
    def measurements(self) -> int:
        """How many there are, that of the untrained encoder included."""
        return 1 + sum(map(self.due, range(self.epochs)))


def plan_probe(
    *,
    every: int,
    epochs: int,
    available: int,
    views: int,
    sample_bytes: int,
    first: bool = True,
    fewest: int = FEWEST_INSTANCES,
    most: int = MOST_INSTANCES,
    pass_cost: float = 1.0,
) -> ProbePlan:
    """The first epoch, every `every`-th after it and the last; as many instances as that share affords.

    They are at least `fewest`, where there are so many: whoever names an interval wants to see scores. `pass_cost` is
    what a forward pass of the probe costs, in those of the training.

    One more measurement, of the untrained encoder, comes before the first step. Where that has BatchNorm layers, one
    more pass over at most 256 of the instances gives them their statistics.

    >>> plan_probe(every=5, epochs=100, available=5000, views=2, sample_bytes=50_000)
    ProbePlan(every=5, epochs=100, instances=512, first=True)
    >>> plan_probe(every=5, epochs=100, available=351, views=2, sample_bytes=12_288).instances
    79
    """
    plan = ProbePlan(every, epochs, most, first)
    passes = SHARE * epochs * available * views * TRAINING_PASSES
    affordable = max(fewest, int(passes / (plan.measurements * VIEWS * pass_cost)))
    return replace(plan, instances=max(2, min(most, available, affordable, MEMORY // sample_bytes)))


def default_interval(device: torch.device, *, epochs: int, micro_batches: int, flops: float) -> int:
    """Epochs from one measurement to the next, so that a GPU spends no more than its share of the time.

    An epoch has so many `micro_batches` and computes so many `flops`. Two measurements are always made: of the
    untrained encoder, and after the last epoch. An interval of all epochs means that there are no others. On a
    processor the number of samples keeps the share, because encoding them is what costs there.

    >>> default_interval(torch.device("cpu"), epochs=100, micro_batches=60, flops=1e12)
    5
    >>> gpu = torch.device("cuda")
    >>> default_interval(gpu, epochs=100, micro_batches=60, flops=2e12)  # about 10 seconds in all
    100
    >>> default_interval(gpu, epochs=100, micro_batches=600, flops=2e12)  # more than a minute
    13
    """
    if device.type == "cpu":
        return DEFAULT_INTERVAL
    seconds = epochs * (micro_batches * MICRO_BATCH_SECONDS + flops / FLOPS)
    others = int(SHARE * seconds / MEASUREMENT_SECONDS) - 2
    return max(DEFAULT_INTERVAL, math.ceil((epochs - 1) / others)) if others > 0 else max(DEFAULT_INTERVAL + 1, epochs)


def chosen_instances(labelled: npt.NDArray[np.bool_], count: int, kept: Sequence[int] = ()) -> npt.NDArray[np.int64]:
    """Rows spread evenly over all; where only some have a label, up to half of the rows over those that have.

    The rows of `kept` are chosen whatever the count, and only what is left of it is spread over the others.

    >>> chosen_instances(np.array([True] * 4), 2).tolist(), chosen_instances(np.array([0, 0, 1, 0], bool), 2).tolist()
    ([0, 3], [0, 2])
    >>> chosen_instances(np.array([True] * 4), 3, kept=[1, 2]).tolist()
    [0, 1, 2]
    """
    if kept:
        rest = np.setdiff1d(np.arange(len(labelled)), kept)
        more = max(0, min(count - len(kept), len(rest)))
        return np.union1d(np.array(kept, dtype=np.int64), rest[chosen_instances(labelled[rest], more)])
    with_label, others = np.flatnonzero(labelled), np.flatnonzero(~labelled)
    if not len(with_label) or not len(others):
        return _spread(np.arange(len(labelled)), count)
    half = min(len(with_label), max(count // 2, count - len(others)))
    return np.sort(np.concatenate([_spread(with_label, half), _spread(others, count - half)]))


def _spread(rows: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    return rows[np.linspace(0, len(rows) - 1, count).round().astype(np.int64)]


@contextmanager
def float32_features(method: Method) -> Iterator[None]:
    """Within the block a method that trains in bfloat16 encodes in float32, with products in TF32.

    Where samples share most of their features (a mean cosine of 0.999), bfloat16 rounds away a part of what tells them
    apart. The rounding error points in all directions and raises RankMe.
    """
    dtype = method.autocast_dtype
    if dtype is None:
        yield
        return
    method.autocast_dtype = None
    try:
        with matmul_precision("high"):
            yield
    finally:
        method.autocast_dtype = dtype


class LiveProbe(Callback):
    """Adds `geometry`, `probe` (where samples have labels) and `probe_seconds` to the rows of the planned epochs.

    The instances are spread evenly over the training subset, half of them over the samples with a label where others
    have none. Labels that a method is taught are not probed. The random views are drawn anew with the same
    seed each time, because keeping them would take more memory than the network. It is built before training, also
    where a run is resumed, and finds the encoder untrained then: what the verdict compares with, by the same views of
    the same instances. The untrained encoder is measured with calibrated BatchNorm statistics, which it does not keep.
    A run that goes on looks at the instances of before, also where it is extended.
    """

    def __init__(
        self,
        method: Method,
        views: Views,
        dataset: Dataset,
        device: torch.device,
        plan: ProbePlan,
        progress: Progress = lambda done, total: None,
        kept: Sequence[int] = (),
    ) -> None:
        """`progress` is told about the instances of the first measurement, which nobody else announces.

        `kept` are rows of instances that the probe of an earlier part of the run has looked at.
        """
        self.method, self.views, self.device, self.plan = method, views, device, plan
        with_label = labelled(dataset)
        self.at_once = dataset.preparation.samples_at_once(VIEWS, AT_ONCE)
        chosen = chosen_instances(with_label, plan.instances, kept)
        self.ids = [dataset.ids[row] for row in chosen]
        self.images = dataset.for_views(torch.from_numpy(chosen), VIEWS, SEED, epoch=0)
        self.classes = dataset.labels[chosen].numpy() if method.needs_labels else None
        self.label_probe, self.note = LabelProbe.without(), ""
        """The note says why labels are not probed, where there are some."""
        if not method.needs_labels:
            groups = None if dataset.groups is None else [dataset.groups[row] for row in chosen]
            self.label_probe = LabelProbe(dataset.source.task, label_targets(dataset, chosen), groups)
            self.note = self.label_probe.why_no_score(int(with_label.sum()))
        began = time.monotonic()
        progress(0, len(self.images))
        with kept_statistics(method.encoder):
            self._calibrate()
            self.untrained, self.untrained_said, self.untrained_recognition = self._measure(progress=progress)
        self.spent = time.monotonic() - began
        self.trend = Trend("" if self.classes is None else TAUGHT)

    def start(self, history: Sequence[Row]) -> None:
        self.trend.start(history)

    def measure(self, epoch: int) -> Row:
        if not self.plan.due(epoch):
            return {}
        began = time.monotonic()
        geometry, said, _ = self._measure(self.untrained_recognition)
        metrics: Row = with_untrained(geometry, self.untrained) | {"instances": len(self.ids)}
        row: Row = {"geometry": metrics, **({"probe": self._probed(said)} if said else {})}
        seconds, self.spent = self.spent + time.monotonic() - began, 0.0
        _, alarm = self.trend.next(row)
        if alarm is not None:
            metrics["warning"] = alarm
        return row | {"probe_seconds": round(seconds, 3)}

    def _probed(self, said: Said) -> dict[str, float]:
        """The scores of the probes, those of the untrained encoder, and the errors of their differences."""
        probe = self.label_probe
        scores = with_untrained(probe.scores(said), probe.scores(self.untrained_said))
        groups = {} if probe.groups is None else {"groups": len(np.unique(probe.groups))}
        return {**scores, **probe.errors(said, self.untrained_said), "instances": len(probe.rows), **groups}

    def _measure(
        self, before: Recognition | None = None, progress: Progress | None = None
    ) -> tuple[dict[str, Any], Said, Recognition | None]:
        """The geometry of the features, what the probes say about each sample, and how often each is recognised."""
        features = self._features(progress).numpy()
        embedding = Embedding(features[:, 0], features, self.classes)
        with threadpool_limits(1):  # matrices this small take several times as long where many threads share them
            return geometry_metrics(embedding, before), self.label_probe.read(features), embedding.recognised

    def _calibrate(self) -> None:
        with kept_random_state(self.device, SEED), float32_features(self.method):
            calibrate_batch_norm(
                self.method.encoder,
                calibration_rows(len(self.images), at_once=self.at_once),
                lambda rows: self.method.encode(self.views(self.images[rows].to(self.device), VIEWS)),
            )

    @torch.no_grad()
    def _features(self, progress: Progress | None = None) -> Tensor:
        """Features (instances, views, d) of the same random views every time."""
        training = self.method.training
        self.method.eval()
        rows: list[Tensor] = []
        with kept_random_state(self.device, SEED), float32_features(self.method):
            for images in torch.split(self.images, self.at_once):
                rows.append(self.method.encode(self.views(images.to(self.device), VIEWS)).cpu())
                if progress is not None:
                    progress(sum(map(len, rows)), len(self.images))
        self.method.train(training)
        return torch.cat(rows)


class CollapseAlarm(Callback):
    """Warns once, in words, when two measurements in a row find the features collapsed, and once when they find them
    worse than those of the untrained encoder. The history holds the same as `warning` of the geometry."""

    def __init__(self, display: Display, *, stop: bool, taught: bool = False) -> None:
        """`stop` ends a run that collapses; `taught` says that labels of these samples are taught."""
        self.display, self.stop = display, stop
        self.warned: set[State] = set()
        self.trend = Trend(TAUGHT if taught else "")

    def start(self, history: Sequence[Row]) -> None:
        self.trend.start(history)

    def end_epoch(self, row: Row) -> None:
        if "geometry" not in row:
            return
        verdict, alarm = self.trend.next(row)
        if alarm is None:
            return
        what = "the run is collapsing" if alarm == "collapsed" else "the run is below its untrained encoder"
        text = f"{what} (epoch {row['epoch'] + 1}): {verdict}"
        if self.stop and alarm == "collapsed":
            raise CollapseError(f"{text} The state is saved; --resume without --stop-on-collapse goes on")
        if alarm not in self.warned:
            self.display.warn(text)
            self.warned.add(alarm)


class Trend:
    """The verdicts on the measurements of a run, each seen with the one before it."""

    def __init__(self, obstacle: str = "") -> None:
        self.obstacle = obstacle
        self.former: Verdict | None = None

    def start(self, history: Sequence[Row]) -> None:
        """Go on after the last measurement of a run that is continued."""
        measured = [row for row in history if "geometry" in row]
        self.former = judge_live(measured[-1], self.obstacle) if measured else None

    def next(self, row: Row) -> tuple[Verdict, State | None]:
        """The verdict on the next measurement, and the state that it is alarming by, if it is."""
        former, self.former = self.former, judge_live(row, self.obstacle)
        return self.former, lasting(former, self.former)
