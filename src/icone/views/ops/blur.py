"""Blurs that act on each axis on its own, with a strength for each sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icone.views.ops.resample import along_axes


class GaussianBlur(nn.Module):
    """Gaussian filter of `kernel` taps, mirrored at the border as in torchvision.

    Mirroring needs a pixel for every tap, so an axis of `length` pixels uses at most 2 · length − 1 taps.
    """

    def __init__(self, size: tuple[int, ...], kernel: int) -> None:
        super().__init__()
        self.size, self.kernel = size, kernel
        for length in set(size):
            shifts = reflected_shifts(length, min(kernel // 2, length - 1))
            self.register_buffer(f"shifts_{length}", shifts, persistent=False)

    def forward(self, images: Tensor, sigma: Tensor) -> Tensor:
        """Blur (N, C, *size) with the standard deviations (N,) in pixels; 0 changes nothing."""
        matrices = {length: self._matrix(length, sigma) for length in set(self.size)}
        return along_axes(images, [matrices[length] for length in self.size])

    def _matrix(self, length: int, sigma: Tensor) -> Tensor:
        """The filter along an axis as a matrix for each sample, (N, length, length)."""
        shifts = self.get_buffer(f"shifts_{length}")
        distance = torch.arange(len(shifts), device=sigma.device)
        # For a sigma this small all taps but the middle one vanish: sigma 0 is the identity.
        taps = torch.exp(-0.5 * (distance / sigma[:, None].clamp(min=1e-3)) ** 2)
        # Tiny taps change no sum, but products with them are denormal numbers, which a CPU computes slowly.
        taps = F.threshold(taps, 1e-20, 0.0)
        weights = taps / (2 * taps.sum(dim=1, keepdim=True) - 1)  # all but the middle one count twice
        return (weights @ shifts.flatten(1)).view(-1, length, length)


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


def reflected_shifts(size: int, radius: int) -> Tensor:
    """Matrices T_0 … T_radius with T_0 x = x and (T_t x)_i = x_{i−t} + x_{i+t}, mirrored at the ends.

    Returns (radius + 1, size, size). Any symmetric filter is a weighted sum of them.

    >>> reflected_shifts(3, 1)[1]
    tensor([[0., 2., 0.],
            [1., 0., 1.],
            [0., 2., 0.]])
    """
    rows = F.pad(torch.eye(size)[None], (radius, radius), mode="reflect")[0].T
    pairs = [rows[radius - t :][:size] + rows[radius + t :][:size] for t in range(1, radius + 1)]
    return torch.stack([torch.eye(size), *pairs])


def box_matrix(size: int) -> Tensor:
    """Mean of each point of an axis and its neighbours, (size, size).

    >>> box_matrix(3)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.3333, 0.3333, 0.3333],
            [0.0000, 0.5000, 0.5000]])
    """
    near = (torch.arange(size)[:, None] - torch.arange(size)).abs() <= 1
    return near / near.sum(dim=1, keepdim=True)
