"""What a method may know before its first step: the features that its encoder has for the instances already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from icone.data import Loader
from icone.encoders.calibration import batch_norm_layers, calibration_rows
from icone.methods import Method
from icone.nn import MovingStatistics
from icone.nn.batchnorm import REFERENCE_SAMPLES
from icone.recipe import SETTLING_BATCHES
from icone.views import Views


@torch.no_grad()
def start(
    method: Method,
    views: Views,
    loader: Loader,
    batch_norms: MovingStatistics,
    new: Sequence[int],
    progress: Callable[[int, int], None],
) -> None:
    """Start a method that wants it from the features of all instances, of which `new` are new to it."""
    if not method.starts_from_features or not new:
        return
    instances = len(loader.dataset)
    progress(0, instances)

    def embed(rows: Tensor) -> Tensor:
        images = loader.dataset.images_at(rows).to(loader.device)
        return method.embed(views.plain(images)[:, None])[:, 0]

    if len(new) == instances:
        _settle(method, batch_norms, embed, instances)
    method.eval()
    features = []
    for rows in torch.arange(instances).split(REFERENCE_SAMPLES):
        features.append(embed(rows))
        progress(int(rows[-1]) + 1, instances)
    method.start(torch.cat(features), torch.tensor(new, device=loader.device))
    method.train()


def _settle(method: Method, batch_norms: MovingStatistics, embed: Callable[[Tensor], Tensor], instances: int) -> None:
    """Give BatchNorm layers the statistics of the untrained network, and what they average over in training too.

    `icone.encoders.calibration` says why; that one serves networks that are only measured, and leaves the rest alone.
    """
    if not batch_norm_layers(method):
        return
    method.train()
    for rows in calibration_rows(instances, SETTLING_BATCHES):
        embed(rows)
        batch_norms.update()
