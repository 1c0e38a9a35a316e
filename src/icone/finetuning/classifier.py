"""An encoder with a linear layer on its standardised features, and which of its layers learn."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Self

import torch
from torch import Tensor, nn

from icone.data import Dataset
from icone.data.crops import CropDataset
from icone.encoders import num_features
from icone.encoders.regions import layer_depths
from icone.evaluation.features import mean_over_all_windows
from icone.views import Views

SMALLEST_SPREAD = 0.1
"""Of the standard deviation of a feature, as a share of the usual one: a feature that hardly varies now may do so
later, and would then outweigh all others."""


class Classifier(nn.Module):
    """outputs = W (f(x) − μ) / σ + b: the encoder f, fixed mean μ and standard deviation σ of its first features.

    W and b begin at zero, so that no encoder is disturbed by a random layer above it, nor by one that fits features
    which the first steps change. μ and σ are those of the training samples before fine-tuning, as for a linear probe.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: nn.Module, outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        features = num_features(encoder)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))
        self.head = nn.Linear(features, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.autocast_dtype: torch.dtype | None = None
        self.frozen: list[nn.Module] = []

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, views: Tensor) -> Tensor:
        """Outputs (B, outputs) of views (B, C, *size)."""
        autocast = torch.autocast(views.device.type, self.autocast_dtype) if self.autocast_dtype else nullcontext()
        with autocast:
            features: Tensor = self.encoder(views)
        outputs: Tensor = self.head((features.float() - self.mean) / self.std)
        return outputs

    def standardize(self, features: Tensor) -> None:
        """Take mean and standard deviation from features (N, d) of the training samples."""
        std = features.std(dim=0, correction=0)
        usual = std.square().mean().sqrt().clamp(min=1e-6)
        self.mean.copy_(features.mean(dim=0))
        self.std.copy_(std.clamp(min=SMALLEST_SPREAD * float(usual)))

    def freeze(self, share: float) -> None:
        """Keep the first layers of the encoder as they are, this share of them; 1 keeps all.

        Layers are counted as for the decay of the learning rate. BatchNorm of a frozen layer keeps its statistics.
        """
        depths = layer_depths(self.encoder)
        levels = sorted(set(depths.values()))
        kept = set(levels[: round(share * len(levels))])
        for parameter, depth in depths.items():
            parameter.requires_grad_(depth not in kept)
        if len(kept) == len(levels):
            self.frozen = [self.encoder]
            return
        inside = {m: list(m.parameters()) for m in self.encoder.modules()}
        frozen = [m for m, ps in inside.items() if ps and not any(p.requires_grad for p in ps)]
        self.frozen = list(dict.fromkeys(part for m in frozen for part in m.modules()))  # dropout has no parameters

    def train(self, mode: bool = True) -> Self:
        """As always, but frozen layers stay in evaluation mode."""
        super().train(mode)
        for module in self.frozen:
            module.eval()
        return self


@torch.no_grad()
def outputs_of(classifier: Classifier, views: Views, dataset: Dataset, batch_size: int | None = None) -> Tensor:
    """Outputs (N, outputs) for the deterministic views of all samples, in evaluation mode, on the CPU.

    Without a `batch_size` it is what the preparation says. Where the data set has crops, outputs are the mean over
    windows that cover a sample.
    """
    batch_size = batch_size or dataset.preparation.samples_at_once()
    was_training = classifier.training
    classifier.eval()
    if isinstance(dataset, CropDataset):
        pooled = mean_over_all_windows(lambda x: classifier(views.plain(x)), dataset, classifier.device, batch_size)
        classifier.train(was_training)
        return pooled
    found = []
    for rows in torch.arange(len(dataset)).split(batch_size):
        images = dataset.images_at(rows).to(classifier.device)
        found.append(classifier(views.plain(images)).float().cpu())
    classifier.train(was_training)
    return torch.cat(found)
