"""Losses as pure functions of embeddings; where a loss uses cosines, it normalises its inputs itself."""

from __future__ import annotations

from icone.nn.losses.center import center_distance
from icone.nn.losses.clustering import sinkhorn, swapped_prediction
from icone.nn.losses.contrastive import decoupled_contrast, dynamic_contrast, info_nce, nt_xent, sup_con
from icone.nn.losses.distillation import bootstrap, moved_centre, self_distillation
from icone.nn.losses.icone import anchor_alignment, view_consistency
from icone.nn.losses.lejepa import mean_view_distance, sliced_gaussianity
from icone.nn.losses.memory_bank import memory_nce, memory_normaliser, memory_softmax
from icone.nn.losses.reconstruction import masked_absolute_error, masked_patch_error, normalise_patches
from icone.nn.losses.supervised import class_alignment
from icone.nn.losses.vicreg import covariance, invariance, variance
from icone.nn.losses.weighted_sum import weighted_sum

__all__ = [
    "anchor_alignment",
    "bootstrap",
    "center_distance",
    "class_alignment",
    "covariance",
    "decoupled_contrast",
    "dynamic_contrast",
    "info_nce",
    "invariance",
    "masked_absolute_error",
    "masked_patch_error",
    "mean_view_distance",
    "memory_nce",
    "memory_normaliser",
    "memory_softmax",
    "moved_centre",
    "normalise_patches",
    "nt_xent",
    "self_distillation",
    "sinkhorn",
    "sliced_gaussianity",
    "sup_con",
    "swapped_prediction",
    "variance",
    "view_consistency",
    "weighted_sum",
]
