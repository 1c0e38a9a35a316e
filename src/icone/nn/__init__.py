"""Pieces for training loops of your own: plain PyTorch that imports nothing else of this package but `InputError`."""

from icone.nn.activation_penalty import ActivationPenalty, penalise_activations
from icone.nn.anchors import AnchorTable, IConELoss
from icone.nn.batchnorm import MovingAverageBatchNorm, MovingStatistics, convert_batch_norm, plain_state_dict
from icone.nn.center_loss import CenterLoss
from icone.nn.ema import ema_copy, ema_update
from icone.nn.heads import ProjectionHead
from icone.nn.recomputation import Recomputation, in_micro_batches, same_state

__all__ = [
    "ActivationPenalty",
    "AnchorTable",
    "CenterLoss",
    "IConELoss",
    "MovingAverageBatchNorm",
    "MovingStatistics",
    "ProjectionHead",
    "Recomputation",
    "convert_batch_norm",
    "ema_copy",
    "ema_update",
    "in_micro_batches",
    "penalise_activations",
    "plain_state_dict",
    "same_state",
]
