"""Contrastive losses: a view recognises its partners among the other rows of the batch, or among a queue."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def nt_xent(z: Tensor, temperature: float = 0.5) -> Tensor:
    """Every view recognises the other views of its instance among all rows of the batch (SimCLR).

        L = mean over rows i of −log( exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ) ),   s = cosine, j the other view of i

    With more than two views, the mean over the other views j; the denominator holds all rows but i itself.
    For one instance with two views it is exactly zero, and so is its gradient. Chen et al. 2020, arXiv:2002.05709.

    z: embeddings (B, V, d) of any scale.

    >>> nt_xent(torch.eye(4).reshape(2, 2, 4))  # four orthogonal rows: one of three is the partner
    tensor(1.0986)
    """
    return sup_con(z, torch.arange(len(z), device=z.device), temperature)


def sup_con(z: Tensor, label: Tensor, temperature: float = 0.1) -> Tensor:
    """Every view recognises the rows of its class among all rows of the batch (SupCon, its "out" form).

        L = mean over rows i of −1/|P_i| Σ_{p∈P_i} log( exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ) )

    P_i holds the other rows of the class of i, its own other views among them. The mean over positives is
    outside the logarithm. A row without positives contributes 0. Khosla et al. 2020, arXiv:2004.11362.

    z: embeddings (B, V, d) of any scale; label: (B,).
    """
    num_views = z.shape[1]
    rows = F.normalize(z.flatten(0, 1), dim=1)
    itself = torch.eye(len(rows), dtype=torch.bool, device=z.device)
    logits = (rows @ rows.T / temperature).masked_fill(itself, -torch.inf)
    log_probability = logits - logits.logsumexp(dim=1, keepdim=True)
    classes = label.repeat_interleave(num_views)
    positive = (classes[:, None] == classes) & ~itself
    of_positives = torch.where(positive, log_probability, 0.0).sum(dim=1)
    return -(of_positives / positive.sum(dim=1).clamp(min=1)).mean()


def info_nce(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float = 0.2) -> Tensor:
    """Every query recognises its key among a queue of earlier keys (MoCo).

        L = mean over queries of −log( exp(⟨q, k⟩/τ) / (exp(⟨q, k⟩/τ) + Σ_n exp(⟨q, n⟩/τ)) ),   n in the queue

    InfoNCE is by van den Oord, Li and Vinyals 2018, arXiv:1807.03748; the queue by He et al. 2019, arXiv:1911.05722.

    queries, keys: (B, d), of any scale; queue: unit vectors (K, d).

    >>> x = torch.eye(3)
    >>> info_nce(x[:1], x[:1], x[1:], temperature=1.0)  # log(1 + 2/e)
    tensor(0.5514)
    """
    queries, keys = F.normalize(queries, dim=-1), F.normalize(keys, dim=-1)
    positive = (queries * keys).sum(dim=-1, keepdim=True)
    logits = torch.cat([positive, queries @ queue.T], dim=1) / temperature
    return -logits.log_softmax(dim=1)[:, 0].mean()
