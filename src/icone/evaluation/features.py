"""Features of samples: the trained encoder with its preprocessing, and passes over whole datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from icone.data import Dataset, Preparation
from icone.data.crops import CropDataset, window_starts
from icone.data.prepare import Spacing, centre
from icone.data.sources.base import Array
from icone.data.threads import read_ahead
from icone.encoders import num_features
from icone.encoders.feature_map import feature_map
from icone.errors import InputError
from icone.training.context import kept_random_state
from icone.views import Views

Progress = Callable[[int, int], None]

WINDOWS = 8
"""Windows of samples in memory that pass through the encoder at a time."""


class FrozenEncoder(nn.Module):
    """A trained encoder with its preprocessing: raw samples in, the features of `icone.embed` out.

    It takes samples of any size and applies the intensity ranges, the resizing and the normalisation of the training
    run. It is in eval mode and no parameter requires a gradient; `encoder.requires_grad_(True).train()` prepares it
    for fine-tuning, and `encoder.encoder` is the bare network. It needs no instance ids. Of a run with `--crop` the
    features are the mean over windows that cover a sample.

    The samples must be as our readers give them, in the file's own units (raw values, not scaled to [0, 1]):

    | file | array of one sample |
    | --- | --- |
    | NIfTI | (C, X, Y, Z), turned to the closest right-anterior-superior axes, after slope and intercept |
    | DICOM series | (1, slices, rows, columns), slices ordered along their normal, in rescaled units |
    | TIFF | (C, H, W), or (C, D, H, W) where it has several pages |
    | PNG, JPEG, BMP | (1, H, W) or (3, H, W), transparency laid over black; 16-bit RGBA: (4, H, W) |
    | NumPy | (C, *spatial), see `icone.data.formats.npy.channel_axis` |

    Where the channels are last, `numpy.moveaxis(samples, -1, 1)` puts them first; such a batch is an `InputError`.
    `icone.data.read_sample` reads a file so:

    >>> encoder = icone.load_encoder("runs/scans")                           # doctest: +SKIP
    >>> sample = icone.data.read_sample("scans/a.nii.gz")                    # doctest: +SKIP
    >>> features = encoder(sample.array[None], spacing=sample.spacing)       # doctest: +SKIP
    """

    def __init__(self, encoder: nn.Module, preparation: Preparation, views: Views) -> None:
        super().__init__()
        self.encoder = encoder
        self.preparation = preparation
        self.views = views
        self.num_features = num_features(encoder)
        self.eval()
        self.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return next(self.encoder.parameters(), torch.empty(0)).device

    def forward(self, samples: Tensor | Array, spacing: Spacing | None = None) -> Tensor:
        """Features (B, num_features) of raw samples (B, C, *spatial), a tensor or a NumPy array.

        `spacing` is the size of a voxel in millimetres along the array's spatial axes: one tuple for all samples, or
        one per sample. It may be left out where the training samples had none, or had cubic voxels and no target
        spacing; elsewhere features without it would be others, and leaving it out is an `InputError`.
        """
        prepared = self.preparation.batch(samples, spacing)
        return self.encode_prepared(prepared.to(self.device))

    def features(self, samples: Tensor | Array, spacing: Spacing | None = None) -> Tensor:
        """The feature map (B, channels, *grid) of raw samples (B, C, *spatial), before pooling.

        Its grid covers the prepared sample, after resizing and padding. `spacing` is as for `forward`.
        """
        prepared = self.preparation.batch(samples, spacing)
        return self.map_prepared(prepared.to(self.device))

    def map_prepared(self, images: Tensor) -> Tensor:
        """Feature maps of samples that the preparation was applied to already."""
        if self.preparation.crops and tuple(images.shape[2:]) != self.preparation.size:
            edges = "×".join(map(str, self.preparation.size))
            raise InputError(
                f"the run was trained on crops of {edges}, and feature maps are of samples of that size: "
                "`icone embed --tiles` writes a map of features over a whole volume"
            )
        return feature_map(self.encoder, self.views.plain(images))

    def encode_prepared(self, images: Tensor) -> Tensor:
        """Features of samples that the preparation was applied to already."""
        if self.preparation.crops and tuple(images.shape[2:]) != self.preparation.size:
            return mean_over_windows(self.encode_prepared, images, self.preparation.size)
        features: Tensor = self.encoder(self.views.plain(images))
        return features

    def encode_views(self, images: Tensor, num_views: int, at_once: int | None = None) -> Tensor:
        """Features (B, V, d) of random views of prepared samples, `at_once` of which are encoded at a time."""
        views = self.views(images, num_views)
        rows = views.flatten(0, 1)
        features = torch.cat([self.encoder(part) for part in rows.split(at_once or len(rows))])
        return features.reshape(*views.shape[:2], -1)


def mean_over_windows(function: Callable[[Tensor], Tensor], images: Tensor, size: tuple[int, ...]) -> Tensor:
    """The mean of what a function of windows (n, C, *size) gives, (n, d), over windows that cover samples.

    Samples (B, C, *spatial) are padded where they are smaller than a window; the result is (B, d).
    """
    padded = centre(images, tuple(map(max, images.shape[2:], size)))
    starts = window_starts(tuple(padded.shape[2:]), size).tolist()
    at_once = max(1, WINDOWS // len(images))
    total: Tensor | float = 0.0
    for first in range(0, len(starts), at_once):
        chosen = starts[first : first + at_once]
        spans = [[slice(a, a + n) for a, n in zip(start, size, strict=True)] for start in chosen]
        windows = torch.stack([padded[(slice(None), slice(None), *span)] for span in spans], dim=1)
        total = total + function(windows.flatten(0, 1)).float().unflatten(0, (len(images), -1)).sum(dim=1)
    return torch.as_tensor(total) / len(starts)


@torch.no_grad()
def mean_over_all_windows(
    function: Callable[[Tensor], Tensor],
    dataset: CropDataset,
    device: torch.device,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """The same (N, d) for all samples of a data set, of which only a few batches of windows are in memory."""
    batch_size = batch_size or dataset.preparation.samples_at_once()
    starts = [dataset.window_starts(row) for row in range(len(dataset))]
    places = [(row, start[None]) for row, each in enumerate(starts) for start in each]
    batches = [places[first : first + batch_size] for first in range(0, len(places), batch_size)]
    read = read_ahead(
        lambda batch: torch.cat([dataset.windows_at(*place) for place in batch]), batches, workers=2, ahead=2
    )
    total: Tensor | None = None
    for batch, windows in zip(batches, read, strict=True):
        found = function(windows.to(device)).float().cpu()
        total = torch.zeros(len(dataset), found.shape[1]) if total is None else total
        total.index_add_(0, torch.tensor([row for row, _ in batch]), found)
        if progress:
            progress(batch[-1][0] + (batch is batches[-1]), len(dataset))
    assert total is not None
    return total / torch.tensor([len(each) for each in starts])[:, None]


def extract(
    encoder: FrozenEncoder, dataset: Dataset, batch_size: int | None = None, progress: Progress | None = None
) -> npt.NDArray[np.float32]:
    """Features (N, d) of a whole dataset, on the device of the encoder; the mean over windows where it has crops.

    Without a `batch_size` it is what `Preparation.samples_at_once` says.
    """
    if isinstance(dataset, CropDataset):
        return mean_over_all_windows(encoder.encode_prepared, dataset, encoder.device, batch_size, progress).numpy()
    batch_size = batch_size or dataset.preparation.samples_at_once()
    found = _batches(encoder.encode_prepared, encoder, dataset, torch.arange(len(dataset)), batch_size, progress)
    return torch.cat(list(found)).numpy()


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
    read = partial(dataset.for_views, num_views=num_views, seed=seed, epoch=0)
    with kept_random_state(encoder.device, seed):
        samples = dataset.preparation.samples_at_once(num_views, most=4)
        encode = partial(
            encoder.encode_views, num_views=num_views, at_once=dataset.preparation.samples_at_once(most=4 * num_views)
        )
        found = _batches(encode, encoder, dataset, rows, samples, progress, read)
        return torch.cat(list(found)).numpy()


def extract_maps(
    encoder: FrozenEncoder, dataset: Dataset, batch_size: int, progress: Progress | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """Feature maps (b, channels, *grid) of a whole dataset, batch after batch, because all together may be large."""
    rows = torch.arange(len(dataset))
    for batch in _batches(encoder.map_prepared, encoder, dataset, rows, batch_size, progress):
        yield batch.numpy()


@torch.inference_mode()
def _batches(
    function: Callable[[Tensor], Tensor],
    encoder: FrozenEncoder,
    dataset: Dataset,
    chosen: Tensor,
    batch_size: int,
    progress: Progress | None,
    read: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Tensor]:
    read = read or dataset.images_at
    for start in range(0, len(chosen), batch_size):
        images = read(chosen[start : start + batch_size]).to(encoder.device)
        yield function(images).float().cpu()
        if progress:
            progress(min(start + batch_size, len(chosen)), len(chosen))
