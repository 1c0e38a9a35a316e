"""Geometry while a run trains: a small fixed set of views is encoded every few epochs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icone.data import Dataset
from icone.encoders.calibration import calibrate_batch_norm, calibration_rows, kept_statistics
from icone.errors import CollapseError
from icone.evaluation.assessment import geometry_metrics, with_untrained
from icone.evaluation.verdict import Verdict, judge_live
from icone.methods import Method
from icone.training import Display
from icone.training.callbacks import Callback, Row
from icone.training.context import kept_random_state
from icone.views import Views

MOST_INSTANCES = 512
FEWEST_INSTANCES = 16
"""Below this a rank says little, so that the shortest runs, which last seconds, may spend more than the share."""
VIEWS = 2
SHARE = 0.025
"""Of the training time that the probe is planned to cost; the promise is 3 %."""
TRAINING_PASSES = 2
"""What training on a view costs, in forward passes: three on paper, but volumes on two cores came to two."""
MEMORY = 512 * 2**20
"""Bytes of prepared samples that the probe keeps."""
BATCH = 16
SEED = 20_000


@dataclass(frozen=True)
class ProbePlan:
    """After which epochs how many instances are looked at: a function of the configuration alone.

    A schedule that followed the clock would make the history of a resumed run differ from an undisturbed one.
    """

    every: int
    epochs: int
    instances: int

    def due(self, epoch: int) -> bool:
        return _due(epoch, self.every, self.epochs)


def plan_probe(*, every: int, epochs: int, available: int, views: int, sample_bytes: int) -> ProbePlan:
    """The first epoch, every `every`-th after it and the last; as many instances as that share affords.

    One more measurement, of the untrained encoder, comes before the first step. Where that has BatchNorm layers, one
    more pass over at most 256 of the instances gives them their statistics.

    >>> plan_probe(every=5, epochs=100, available=5000, views=2, sample_bytes=50_000)
    ProbePlan(every=5, epochs=100, instances=512)
    >>> plan_probe(every=5, epochs=100, available=351, views=2, sample_bytes=12_288).instances
    79
    """
    probes = 1 + sum(_due(epoch, every, epochs) for epoch in range(epochs))
    passes = SHARE * epochs * available * views * TRAINING_PASSES
    affordable = max(FEWEST_INSTANCES, int(passes / (probes * VIEWS)))
    return ProbePlan(every, epochs, max(2, min(MOST_INSTANCES, available, affordable, MEMORY // sample_bytes)))


def _due(epoch: int, every: int, epochs: int) -> bool:
    return epoch % every == 0 or epoch == epochs - 1


class LiveProbe(Callback):
    """Adds `geometry` and `probe_seconds` to the rows of the planned epochs.

    The instances are spread evenly over the training subset; their random views are drawn anew with the same seed
    each time, because keeping them would take more memory than the network. It is built before training, also where
    a run is resumed, and finds the encoder untrained then: what the verdict compares with, by the same views of the
    same instances. The untrained encoder is measured with calibrated BatchNorm statistics, which it does not keep.
    """

    def __init__(self, method: Method, views: Views, dataset: Dataset, device: torch.device, plan: ProbePlan) -> None:
        self.method, self.views, self.device, self.plan = method, views, device, plan
        chosen = np.linspace(0, len(dataset) - 1, plan.instances).round().astype(np.int64)
        self.images = dataset.images_at(torch.from_numpy(chosen))
        self.classes = dataset.labels[chosen].numpy() if method.needs_labels else None
        began = time.monotonic()
        with kept_statistics(method.encoder):
            self._calibrate()
            self.untrained = self._metrics()
        self.spent = time.monotonic() - began

    def measure(self, epoch: int) -> Row:
        if not self.plan.due(epoch):
            return {}
        began = time.monotonic()
        metrics = with_untrained(self._metrics(), self.untrained) | {"instances": self.plan.instances}
        seconds, self.spent = self.spent + time.monotonic() - began, 0.0
        return {"geometry": metrics, "probe_seconds": round(seconds, 3)}

    def _metrics(self) -> dict[str, float]:
        features = self._features().numpy()
        return geometry_metrics(features[:, 0], features, self.classes)

    def _calibrate(self) -> None:
        with kept_random_state(self.device, SEED):
            calibrate_batch_norm(
                self.method.encoder,
                calibration_rows(len(self.images)),
                lambda rows: self.method.encode(self.views(self.images[rows].to(self.device), VIEWS)),
            )

    @torch.no_grad()
    def _features(self) -> Tensor:
        """Features (instances, views, d) of the same random views every time."""
        training = self.method.training
        self.method.eval()
        with kept_random_state(self.device, SEED):
            rows = [
                self.method.encode(self.views(images.to(self.device), VIEWS)).float().cpu()
                for images in torch.split(self.images, BATCH)
            ]
        self.method.train(training)
        return torch.cat(rows)


class CollapseAlarm(Callback):
    """Warns once, in words, when two measurements in a row find the features collapsed.

    One is not enough, because few instances are looked at, and a network may pass through a narrow place.
    """

    def __init__(self, display: Display, *, stop: bool) -> None:
        self.display, self.stop = display, stop
        self.warned = False
        self.former: Verdict | None = None

    def start(self, history: Sequence[Row]) -> None:
        measured = [row for row in history if "geometry" in row]
        self.former = judge_live(measured[-1]["geometry"]) if measured else None

    def end_epoch(self, row: Row) -> None:
        if "geometry" not in row:
            return
        verdict, former = judge_live(row["geometry"]), self.former
        self.former = verdict
        if not (verdict.collapsed and former is not None and former.collapsed):
            return
        text = f"the run is collapsing (epoch {row['epoch'] + 1}): {verdict}"
        if self.stop:
            raise CollapseError(f"{text} The state is saved; --resume without --stop-on-collapse goes on")
        if not self.warned:
            self.display.warn(text)
            self.warned = True
