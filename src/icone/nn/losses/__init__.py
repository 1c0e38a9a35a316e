"""Losses as pure functions of embeddings; where a loss uses cosines, it normalises its inputs itself."""

from __future__ import annotations

from icone.nn.losses.clustering import sinkhorn, swapped_prediction
from icone.nn.losses.contrastive import info_nce, nt_xent, sup_con
from icone.nn.losses.distillation import bootstrap, moved_centre, self_distillation
from icone.nn.losses.icone import anchor_alignment, view_consistency
from icone.nn.losses.supervised import class_alignment
from icone.nn.losses.vicreg import covariance, invariance, variance
from icone.nn.losses.weighted_sum import weighted_sum

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
    "weighted_sum",
]
