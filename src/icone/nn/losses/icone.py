"""The two attractive terms of IConE: views of an instance agree with one another and with its anchor.

Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
Learning", 2026, arXiv:2603.15263.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.errors import InputError


def view_consistency(z: Tensor) -> Tensor:
    """Mean cosine distance between the views of an instance, L_vv.

        L_vv = 1/B Σ_i 2/(V(V−1)) Σ_{m<n} (1 − ⟨z_i⁽ᵐ⁾, z_i⁽ⁿ⁾⟩)

    On the unit sphere 1 − ⟨a, b⟩ = ‖a − b‖²/2, and the mean of that over all pairs is the unbiased variance
    of the views, summed over dimensions. So it costs O(V), and stays exact when the views nearly agree.

    z: embeddings (B, V, d) of any scale, V ≥ 2.

    >>> z = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])  # two views at a right angle
    >>> view_consistency(z)
    tensor(1.)
    """
    if z.ndim != 3:
        raise InputError(f"embeddings of views must have shape (B, V, d), got {tuple(z.shape)}")
    if z.shape[1] < 2:
        raise InputError(f"view consistency compares views, so it needs at least 2 of each instance, got {z.shape[1]}")
    return _on_sphere(z).var(dim=1).sum(dim=-1).mean()


def anchor_alignment(z: Tensor, anchors: Tensor) -> Tensor:
    """Mean cosine distance between views and the anchor of their instance, L_vi.

        L_vi = 1/(B·V) Σ_i Σ_v (1 − ⟨z_i⁽ᵛ⁾, e_i⟩)

    The gradient reaches both: views are drawn to the anchor, the anchor to the mean of its views.

    z: embeddings (B, V, d); anchors: (B, d), row i for instance i of the batch; both of any scale.

    >>> z = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    >>> anchor_alignment(z, torch.tensor([[5.0, 0.0]]))  # one view agrees, one is orthogonal
    tensor(0.5000)
    """
    if z.ndim != 3 or anchors.shape != (z.shape[0], z.shape[2]):
        raise InputError(
            "anchor alignment needs embeddings (B, V, d) and one anchor per instance (B, d), "
            f"got {tuple(z.shape)} and {tuple(anchors.shape)}"
        )
    cosine = (_on_sphere(z) * _on_sphere(anchors).unsqueeze(1)).sum(dim=-1)
    return 1 - cosine.mean()


def _on_sphere(x: Tensor) -> Tensor:
    """Scale the last dimension to length 1, in float32 or better."""
    return F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)
