"""Attraction by class: views agree with all anchors of their class.

The supervised extension of IConE: Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for
Self-Supervised Representation Learning", 2026, arXiv:2603.15263.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def class_alignment(z: Tensor, anchors: Tensor, label: Tensor, anchor_labels: Tensor) -> Tensor:
    """Mean cosine distance between views and all anchors of their class.

        L = mean over instances i and views v of 1/|C_i| Σ_{j∈C_i} (1 − ⟨z_i⁽ᵛ⁾, e_j⟩)

    where C_i are the instances of the class of i, itself among them. The mean of their cosines is the product
    with the mean unit anchor of the class, so it costs O(B·N·d).

    z: embeddings (B, V, d); anchors: (N, d), both of any scale; label: (B,); anchor_labels: (N,), in which
    every label of the batch occurs.

    >>> import torch
    >>> view, anchors = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> class_alignment(view, anchors, torch.tensor([7]), torch.tensor([7, 7, 8]))
    tensor(0.5000)
    """
    mates = (label[:, None] == anchor_labels).to(anchors.dtype)  # (B, N)
    centres = mates @ F.normalize(anchors, dim=-1) / mates.sum(dim=1, keepdim=True)
    return 1 - (F.normalize(z, dim=-1) * centres[:, None]).sum(dim=-1).mean()
