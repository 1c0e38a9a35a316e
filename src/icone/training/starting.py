"""What a method may know before its first step: the features that its encoder has for the instances already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from icone.data import Loader
from icone.methods import Method
from icone.views import Views

ROWS = 16
"""Instances in one pass; changes memory, not the result."""


@torch.no_grad()
def start(
    method: Method, views: Views, loader: Loader, new: Sequence[int], progress: Callable[[int, int], None]
) -> None:
    """Start a method that wants it from the features of all instances, of which `new` are new to it."""
    if not method.starts_from_features or not new:
        return
    method.eval()
    features = []
    for rows in torch.arange(len(loader.dataset)).split(ROWS):
        images = loader.dataset.images_at(rows).to(loader.device)
        features.append(method.encode(views.plain(images)[:, None])[:, 0])
        progress(int(rows[-1]) + 1, len(loader.dataset))
    method.start(torch.cat(features), torch.tensor(new, device=loader.device))
    method.train()
