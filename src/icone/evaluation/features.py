"""Features of samples: the trained encoder with its preprocessing, and passes over whole datasets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icone.data import Dataset, Preparation
from icone.encoders import num_features
from icone.training.place import kept_random_state
from icone.views import Views

Progress = Callable[[int, int], None]


class FrozenEncoder(nn.Module):
    """A trained encoder with its preprocessing, in eval mode: raw samples in, features out; no instance ids.

    Takes a batch `(B, C, *spatial)` in the units and dtype of the files it was trained on, of any size, and applies
    the intensity range, the resizing and the normalisation of the training run.
    """

    def __init__(self, encoder: nn.Module, preparation: Preparation, views: Views) -> None:
        super().__init__()
        self.encoder = encoder
        self.preparation = preparation
        self.views = views
        self.num_features = num_features(encoder)
        self.eval()

    def forward(self, samples: Tensor) -> Tensor:
        """Features (B, num_features) of raw samples."""
        return self.encode_prepared(self.preparation.batch(samples))

    def encode_prepared(self, images: Tensor) -> Tensor:
        """Features of samples that the preparation was applied to already."""
        features: Tensor = self.encoder(self.views.plain(images))
        return features

    def encode_views(self, images: Tensor, num_views: int) -> Tensor:
        """Features (B, V, d) of random views of prepared samples, for LiDAR and alignment."""
        views = self.views(images, num_views)
        features: Tensor = self.encoder(views.flatten(0, 1))
        return features.reshape(*views.shape[:2], -1)


def extract(
    encoder: FrozenEncoder, dataset: Dataset, batch_size: int = 16, progress: Progress | None = None
) -> npt.NDArray[np.float32]:
    """Features (N, d) of a whole dataset, on the device of the encoder."""
    return _over_batches(encoder.encode_prepared, encoder, dataset, torch.arange(len(dataset)), batch_size, progress)


def drawn_rows(dataset: Dataset, count: int, seed: int = 0) -> Tensor:
    """Up to `count` positions in a dataset, drawn by `seed`."""
    return torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))[:count]


def extract_views(
    encoder: FrozenEncoder,
    dataset: Dataset,
    rows: Tensor,
    num_views: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> npt.NDArray[np.float32]:
    """Features (n, num_views, d) of random views of the samples at these positions, drawn by `seed`."""
    with kept_random_state(next(encoder.parameters()).device, seed):
        return _over_batches(lambda x: encoder.encode_views(x, num_views), encoder, dataset, rows, 4, progress)


@torch.inference_mode()
def _over_batches(
    function: Callable[[Tensor], Tensor],
    encoder: FrozenEncoder,
    dataset: Dataset,
    chosen: Tensor,
    batch_size: int,
    progress: Progress | None,
) -> npt.NDArray[np.float32]:
    device = next(encoder.parameters()).device
    rows = []
    for start in range(0, len(chosen), batch_size):
        images = dataset.images_at(chosen[start : start + batch_size]).to(device)
        rows.append(function(images).float().cpu())
        if progress:
            progress(min(start + batch_size, len(chosen)), len(chosen))
    return torch.cat(rows).numpy()
