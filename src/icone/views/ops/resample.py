"""Resampling and blurring as one small matrix per axis and sample.

Crop, resize, flip and blur act on each axis on its own. Written as matrices they are a few batched products
for any number of axes, which on a CPU cost less than sampling at computed positions (a tenth, for volumes).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def along_axes(images: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Multiply every spatial axis of (N, C, *size) by its matrix, (N, out, in), one for each sample.

    >>> swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> along_axes(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), [swap, swap])
    tensor([[[[4., 3.],
              [2., 1.]]]])
    """
    axes = "xyz"[: len(matrices)]
    for axis, matrix in zip(axes, matrices, strict=True):
        images = torch.einsum(f"no{axis},nc{axes}->nc{axes.replace(axis, 'o')}", matrix, images)
    return images


def interpolation_matrix(start: Tensor, extent: Tensor, flipped: Tensor, size: int) -> Tensor:
    """Linear resize of the crop [start, start + extent) of an axis to its `size` points, flipped where asked.

    start, extent, flipped: (N,) each; returns (N, size, size). Row i holds the two weights of the position
    (i + 1/2) · extent / size − 1/2 inside the crop, which never leaves the crop: its border is replicated.
    """
    points = torch.arange(size, device=start.device)
    wanted = torch.where(flipped[:, None], size - 1 - points, points)
    position = (wanted + 0.5) * (extent / size)[:, None] - 0.5
    position = torch.minimum(position.clamp(min=0), extent[:, None] - 1)
    pixel = points - start[:, None]
    return (1 - (position[:, :, None] - pixel[:, None, :]).abs()).clamp(min=0)
