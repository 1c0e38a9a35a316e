"""Instance discrimination against a memory bank with one unit vector per instance.

Wu, Xiong, Yu and Lin 2018, arXiv:1805.01978.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.nn.diversity.table import attach_gradient

BLOCK = 65_536
"""Rows of the bank that are compared at a time: 8 MB of logits for 32 views, whatever N is."""


def memory_softmax(z: Tensor, index: Tensor, memory: Tensor, temperature: float = 0.07, block: int = BLOCK) -> Tensor:
    """Every row recognises its instance among all N of the memory bank (NPID, exact).

        L = mean over rows r of −log( exp(⟨z_r, m_i⟩/τ) / Σ_j exp(⟨z_r, m_j⟩/τ) ),   i the instance of r, j = 1…N

    The bank passes no gradient. The sum runs over blocks of its rows, and the softmax-weighted mean of the bank, which
    is the gradient, is gathered in the same pass. So memory beyond the bank is O(R·(block + d)).

    z: unit vectors (R, d); index: (R,); memory: unit vectors (N, d).

    >>> x = torch.eye(3)
    >>> memory_softmax(x[:1], torch.tensor([0]), x, temperature=1.0)  # log(e + 2) − 1
    tensor(0.5514)
    """
    value, gradient = _softmax_and_gradient(z.detach(), index, memory.detach(), temperature, block)
    return attach_gradient(z, value, gradient)


@torch.no_grad()
def _softmax_and_gradient(
    z: Tensor, index: Tensor, memory: Tensor, temperature: float, block: int
) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by z; cosines are at most 1, so that 1/τ is subtracted from all logits."""
    total, weighted = z.new_zeros(len(z), 1), torch.zeros_like(z)
    for part in memory.split(block):
        weight = ((z @ part.T - 1) / temperature).exp()
        total += weight.sum(dim=1, keepdim=True)
        weighted += weight @ part
    own = memory[index]
    losses = total.log() + (1 - (z * own).sum(dim=1, keepdim=True)) / temperature
    return losses.mean(), (weighted / total - own) / (temperature * len(z))


def memory_nce(
    z: Tensor, own: Tensor, noise: Tensor, normaliser: Tensor, num_instances: int, temperature: float = 0.07
) -> Tensor:
    """Every row tells its instance from m that were drawn at random (NPID by noise-contrastive estimation).

        P_j = exp(⟨z, m_j⟩/τ)/Z,   h_j = P_j / (P_j + m/N),   L = mean over rows of −log h_i − Σ_{j drawn} log(1 − h_j)

    Z is a constant, which `memory_normaliser` estimates once.

    z, own: unit vectors (R, d), of views and of their instances in the bank; noise: (R, m, d); normaliser: Z, 0-d.

    >>> x = torch.eye(2)
    >>> memory_nce(x[:1], x[:1], x[None, 1:], torch.tensor(1.0), 1, temperature=1.0)  # log(1 + 1/e) + log(1 + 1)
    tensor(1.0064)
    """
    ratio = normaliser.log() + math.log(noise.shape[1] / num_instances)
    positive = (z * own).sum(dim=1) / temperature - ratio
    negative = torch.einsum("rd,rmd->rm", z, noise) / temperature - ratio
    return (F.softplus(-positive) + F.softplus(negative).sum(dim=1)).mean()


@torch.no_grad()
def memory_normaliser(z: Tensor, noise: Tensor, num_instances: int, temperature: float = 0.07) -> Tensor:
    """An estimate of Z: N · mean over rows and drawn instances of exp(⟨z, m_j⟩/τ), 0-d.

    >>> memory_normaliser(torch.eye(2)[:1], torch.eye(2)[None, 1:], 10)
    tensor(10.)
    """
    return num_instances * (torch.einsum("rd,rmd->rm", z, noise) / temperature).exp().mean()
