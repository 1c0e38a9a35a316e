"""What a method may know before its first step: the features that its encoder has for the instances already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from icone.data import Loader
from icone.encoders.calibration import batch_norm_layers, calibration_rows
from icone.methods import Method
from icone.nn import MovingStatistics
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
    instances, at_once = len(loader.dataset), loader.dataset.preparation.samples_at_once()
    progress(0, instances)

    def embed(rows: Tensor) -> Tensor:
        images = loader.dataset.images_at(rows).to(loader.device)
        return method.embed(views.plain(images)[:, None])[:, 0]

    if len(new) == instances:
        _settle(method, batch_norms, embed, calibration_rows(instances, SETTLING_BATCHES, at_once))
    method.eval()
    features = []
    for rows in torch.arange(instances).split(at_once):
        features.append(embed(rows))
        progress(int(rows[-1]) + 1, instances)
    method.start(torch.cat(features), torch.tensor(new, device=loader.device))
    method.train()


def _settle(
    method: Method, batch_norms: MovingStatistics, embed: Callable[[Tensor], Tensor], batches: Sequence[Tensor]
) -> None:
    """Give BatchNorm layers the statistics of the untrained network, and what they average over in training too.

    `icone.encoders.calibration` says why; that one serves networks that are only measured, and leaves the rest alone.
    """
    if not batch_norm_layers(method):
        return
    method.train()
    for rows in batches:
        embed(rows)
        batch_norms.update()
