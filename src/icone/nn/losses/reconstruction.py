"""What masked reconstruction costs: only what the encoder did not see counts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["mean", "none"]
PATCH_EPSILON = 1e-6
"""Added to the variance of a patch, as He et al. do: a patch of one colour has none."""


def normalise_patches(patches: Tensor) -> Tensor:
    """Bring every patch to mean 0 and variance 1 (over its values − 1): the targets of MAE.

    He et al. 2021, arXiv:2111.06377. patches: (..., values).

    >>> normalise_patches(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[-1.0000,  0.0000,  1.0000]])
    """
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return (patches - mean) * (variance + PATCH_EPSILON).rsqrt()


def masked_patch_error(predicted: Tensor, patches: Tensor, masked: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Mean squared error of the masked patches (MAE).

        L = mean over images of 1/(M·P) Σ_{masked patches} ‖predicted − patch‖²,   M masked patches of P values

    He et al. 2021, arXiv:2111.06377.

    predicted, patches: (n, L, P); masked: (n, L), 1 where a patch was hidden, else 0; at least one of every image.
    `reduction="none"` is the error of every image, (n,).

    >>> masked_patch_error(torch.zeros(1, 2, 4), torch.tensor([[[2.0] * 4, [9.0] * 4]]), torch.tensor([[1.0, 0.0]]))
    tensor(4.)
    """
    errors = (predicted - patches).square().mean(dim=-1) * masked
    return _reduced(errors.sum(dim=1) / masked.sum(dim=1), reduction)


def masked_absolute_error(predicted: Tensor, images: Tensor, masked: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Mean absolute error of the masked pixels or voxels (SimMIM).

        L = mean over images of 1/(M·C) Σ_{masked pixels} |predicted − image|,   M masked pixels of C channels

    Xie et al. 2021, arXiv:2111.09886.

    predicted, images: (n, C, *size); masked: (n, *size), 1 where a pixel was hidden, else 0; one of every image at
    least. `reduction="none"` is the error of every image, (n,).

    >>> images = torch.tensor([[[3.0, 9.0]]])
    >>> masked_absolute_error(torch.zeros_like(images), images, torch.tensor([[1.0, 0.0]]))
    tensor(3.)
    """
    errors = (predicted - images).abs().mean(dim=1) * masked
    return _reduced(errors.flatten(1).sum(dim=1) / masked.flatten(1).sum(dim=1), reduction)


def _reduced(errors: Tensor, reduction: Reduction) -> Tensor:
    return errors.mean() if reduction == "mean" else errors
