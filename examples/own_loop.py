"""IConE in a training loop of your own: your network, your Dataset, plain PyTorch.

    python examples/own_loop.py --epochs 20

What makes it work at batch size 1 is in three lines: the anchors (`IConELoss`), BatchNorm with moving averages
(`convert_batch_norm`) and the optimizer of the recipe (`parameter_groups`).
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import icone
from icone.nn import convert_batch_norm, plain_state_dict
from icone.recipe import ANCHOR_STD, HEAD_SAMPLES, VIEW_WEIGHT, initial_scale, parameter_groups, rate_share


class Blobs(Dataset[tuple[Tensor, int]]):
    """Stands in for your data: images of bright spots, and the position of each, which is all that IConE needs."""

    def __init__(self, count: int, size: int = 16) -> None:
        grid = torch.linspace(-1, 1, size)
        centre = torch.rand(count, 2, generator=torch.Generator().manual_seed(0)) * 1.6 - 0.8
        across, down = ((grid[None] - centre[:, i : i + 1]) ** 2 for i in range(2))
        self.images = torch.exp(-8 * (across[:, None, :] + down[:, :, None]))[:, None]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return self.images[position], position


def two_views(images: Tensor) -> Tensor:
    """Your augmentations: here noise and a random contrast. (B, C, H, W) -> (2·B, C, H, W), first views first."""
    views = images.repeat(2, 1, 1, 1)
    contrast = 0.7 + 0.6 * torch.rand(len(views), 1, 1, 1)
    return views * contrast + 0.1 * torch.randn_like(views)


def main(epochs: int = 20, count: int = 60, batch_size: int = 1, lr: float = 1e-3) -> list[float]:
    """Train a small network and return the loss of every epoch."""
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    head = nn.Sequential(nn.Linear(32, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 16))
    convert_batch_norm(encoder, batch_size)
    convert_batch_norm(head, batch_size, samples=HEAD_SAMPLES, gradient_rows=2 * 16)
    data = Blobs(count)
    loss = icone.IConELoss(len(data), dim=16, view_weight=VIEW_WEIGHT, init_std=ANCHOR_STD * initial_scale(lr))
    optimizer = torch.optim.AdamW(parameter_groups(encoder, head, loss, batch_size=batch_size, lr=lr))
    loader = DataLoader(data, batch_size, shuffle=True)
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_share(step / steps))
    with torch.no_grad():  # the anchors start where the untrained network puts their samples
        for _ in range(2):  # the first pass gives BatchNorm its statistics
            embeddings = head(encoder(data.images))
        loss.anchors.start_from(embeddings)
    means = []
    for _ in range(epochs):
        total = 0.0
        for images, index in loader:
            embeddings = head(encoder(two_views(images))).unflatten(0, (2, -1)).transpose(0, 1)  # (B, V, d)
            value = loss(embeddings, index)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            schedule.step()
            total += value.item() * len(index)
        means.append(total / len(data))
    weights = plain_state_dict(encoder)  # for the same network with ordinary BatchNorm
    assert not any(name.endswith("moving") for name in weights)
    return means


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    losses = main(parser.parse_args().epochs)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
