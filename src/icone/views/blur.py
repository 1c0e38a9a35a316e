"""Blurs that act on each axis on its own, with a strength for each sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icone.views.separable import along_axes


class GaussianBlur(nn.Module):
    """Gaussian filter of `kernel` taps, mirrored at the border as in torchvision.

    Mirroring needs a pixel for every tap, so an axis of `length` pixels uses at most 2 · length − 1 taps.
    """

    def __init__(self, size: tuple[int, ...], kernel: int) -> None:
        super().__init__()
        self.size, self.kernel = size, kernel

    def forward(self, images: Tensor, sigma: Tensor) -> Tensor:
        """Blur (N, C, *size) with the standard deviations (N,) in pixels; 0 changes nothing."""
        matrices = {length: mirrored_filter(length, self.kernel // 2, sigma) for length in set(self.size)}
        return along_axes(images, [matrices[length] for length in self.size])


class BoxBlur(nn.Module):
    """Mean over 3 points along every axis, or over those of them that exist at the border.

    Points outside do not count as zeros, so that the border is not darkened.
    """

    def __init__(self, size: tuple[int, ...]) -> None:
        super().__init__()
        self.size = size
        for length in set(size):
            self.register_buffer(f"mean_{length}", box_matrix(length), persistent=False)
            self.register_buffer(f"identity_{length}", torch.eye(length), persistent=False)

    def forward(self, images: Tensor, chosen: Tensor) -> Tensor:
        """Blur those of (N, C, *size) that are `chosen`, (N,)."""
        pick = chosen[:, None, None]
        matrices = {
            n: torch.where(pick, self.get_buffer(f"mean_{n}"), self.get_buffer(f"identity_{n}")) for n in set(self.size)
        }
        return along_axes(images, [matrices[length] for length in self.size])


def mirrored_filter(length: int, radius: int, sigma: Tensor) -> Tensor:
    """The filter along an axis as a matrix for each standard deviation (N,): (N, length, length).

    A point meets every other point directly and, where the filter reaches beyond an end, once more as its image there.

    >>> mirrored_filter(3, 1, torch.tensor([0.0, 1e6]))
    tensor([[[1.0000, 0.0000, 0.0000],
             [0.0000, 1.0000, 0.0000],
             [0.0000, 0.0000, 1.0000]],
    <BLANKLINE>
            [[0.3333, 0.6667, 0.0000],
             [0.3333, 0.3333, 0.3333],
             [0.0000, 0.6667, 0.3333]]])
    """
    last = length - 1
    radius = min(radius, last)
    point = torch.arange(length, device=sigma.device)
    to, of = point[:, None], point
    matrix = _taps((to - of).abs(), radius, sigma[:, None, None])
    matrix = matrix + _taps(to + of, radius, sigma[:, None, None]) * (of > 0)
    matrix = matrix + _taps(2 * last - to - of, radius, sigma[:, None, None]) * (of < last)
    total = 2 * _taps(point[: radius + 1], radius, sigma[:, None]).sum(1) - 1  # all but the middle one count twice
    return matrix / total[:, None, None]


def _taps(distance: Tensor, radius: int, sigma: Tensor) -> Tensor:
    # For a sigma this small all taps but the middle one vanish: sigma 0 is the identity.
    taps = torch.exp(-0.5 * (distance / sigma.clamp(min=1e-3)) ** 2) * (distance <= radius)
    # Tiny taps change no sum, but products with them are denormal numbers, which a CPU computes slowly.
    return F.threshold(taps, 1e-20, 0.0)


def box_matrix(size: int) -> Tensor:
    """Mean of each point of an axis and its neighbours, (size, size).

    >>> box_matrix(3)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333],
            [0.0000, 0.5000, 0.5000]])
    """
    near = (torch.arange(size)[:, None] - torch.arange(size)).abs() <= 1
    return near / near.sum(dim=1, keepdim=True)
