"""Contrastive losses: a view recognises its partners among the other rows of the batch, or among a queue."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.nn.losses.pairs import mean_over_other_views


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


def decoupled_contrast(z: Tensor, temperature: float = 0.1) -> Tensor:
    """NT-Xent whose denominator holds no view of the row's own instance (DCL).

        L = mean over rows i of −s_ij/τ + log Σ_{k not of the instance of i} exp(s_ik/τ),   j another view of i

    In NT-Xent the positive in the denominator shrinks the gradient of rows whose positive is easy, and the more so the
    smaller the batch. Yeh et al. 2021, arXiv:2110.06848.

    z: embeddings (B, V, d) of any scale, B ≥ 2.

    >>> decoupled_contrast(torch.eye(4).reshape(2, 2, 4), temperature=1.0)  # two foreign rows, at right angles: log 2
    tensor(0.6931)
    """
    logits, positives = _cosines(z, temperature)
    return logits.masked_fill(_same_instance(z), -torch.inf).logsumexp(dim=1).mean() - positives


def dynamic_contrast(z: Tensor, average: Tensor, gamma: float = 0.9, temperature: float = 0.1) -> tuple[Tensor, Tensor]:
    """DCL with a denominator that every view remembers from its earlier batches (the dynamic loss of SogCLR).

        g_i = mean over the rows k of other instances of exp((s_ik − 1)/τ),   u_i ← (1 − γ)·u_i + γ·g_i
        L = mean over rows i of −s_ij/τ + log u_i + 1/τ,   with the gradient of −s_ij/τ + g_i/u_i, u_i held constant

    So the gradient is that of the contrast with the whole data set, up to the error of u. A view that was never seen
    has u = 0 and begins with g. Subtracting 1 from the cosine changes no gradient, and nothing overflows. Yuan et al.
    2022, arXiv:2202.12387.

    z: embeddings (B, V, d) of any scale, B ≥ 2; average: u of these views, (B, V). Returns the loss and the new u.

    >>> loss, u = dynamic_contrast(torch.eye(4).reshape(2, 2, 4), torch.zeros(2, 2), temperature=1.0)
    >>> loss, u[0]  # the mean of exp(0 − 1) over two rows, and its logarithm plus 1
    (tensor(0.), tensor([0.3679, 0.3679]))
    """
    logits, positives = _cosines(z, temperature)
    batch, num_views = average.shape
    weights = (logits - 1 / temperature).exp().masked_fill(_same_instance(z), 0.0)
    seen = weights.sum(dim=1) / (num_views * (batch - 1))
    now = seen.detach().reshape_as(average)
    moved = torch.where(average == 0, now, torch.lerp(average, now, gamma))
    rows = moved.flatten().clamp(min=torch.finfo(moved.dtype).tiny)
    pull = seen / rows
    spread = rows.log() + 1 / temperature + pull - pull.detach()
    return spread.mean() - positives, moved


def _cosines(z: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Cosines of all rows over τ, (B·V, B·V), and the mean of those between different views of an instance."""
    unit = F.normalize(z, dim=-1)
    rows = unit.flatten(0, 1)
    return rows @ rows.T / temperature, mean_over_other_views(unit @ unit.transpose(1, 2)) / temperature


def _same_instance(z: Tensor) -> Tensor:
    """Whether two rows are views of one instance, (B·V, B·V)."""
    instance = torch.arange(len(z), device=z.device).repeat_interleave(z.shape[1])
    return instance[:, None] == instance


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
