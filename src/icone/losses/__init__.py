"""Losses as pure functions of embeddings; where a loss uses cosines, it normalises its inputs itself."""

from __future__ import annotations

from icone.losses.clustering import sinkhorn, swapped_prediction
from icone.losses.contrastive import info_nce, nt_xent, sup_con
from icone.losses.distillation import bootstrap, moved_centre, self_distillation
from icone.losses.icone import anchor_alignment, view_consistency
from icone.losses.supervised import class_alignment
from icone.losses.vicreg import covariance, invariance, variance

__all__ = [
    "anchor_alignment",
    "bootstrap",
    "class_alignment",
    "covariance",
    "info_nce",
    "invariance",
    "moved_centre",
    "nt_xent",
    "self_distillation",
    "sinkhorn",
    "sup_con",
    "swapped_prediction",
    "variance",
    "view_consistency",
]
