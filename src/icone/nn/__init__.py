"""Layers for training loops of your own: plain PyTorch that imports nothing else of this package."""

from icone.nn.batchnorm import MovingAverageBatchNorm, MovingStatistics, convert_batch_norm, plain_state_dict

__all__ = ["MovingAverageBatchNorm", "MovingStatistics", "convert_batch_norm", "plain_state_dict"]
