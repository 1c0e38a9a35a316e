"""From unlabelled volumes to a segmentation network: pretrain its encoder, put it in, train the whole with few labels.

The volumes are generated: bright balls in noise, whose masks are known. For volumes of your own, give their folder to
`icone.pretrain`, for example the 60 brain scans of the Medical Segmentation Decathlon's task 04 (hippocampus).

    python examples/segmentation.py

It needs MONAI: pip install 'icone[monai]'.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import icone

SIZE, FILTERS = 16, 8


def balls(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Volumes (count, 1, 16, 16, 16) with a ball in noise, and where the ball is, (count, 16, 16, 16)."""
    rng = np.random.default_rng(seed)
    centre, radius = rng.uniform(5, 11, (count, 3, 1, 1, 1)), rng.uniform(3, 5, (count, 1, 1, 1))
    distance = np.linalg.norm(np.indices((SIZE,) * 3)[None] - centre, axis=1)
    masks = distance < radius
    volumes = masks[:, None] + rng.normal(0, 0.5, (count, 1, SIZE, SIZE, SIZE))
    return volumes.astype(np.float32), masks


def train(unet: nn.Module, x: Tensor, masks: Tensor, steps: int) -> None:
    """Train the whole network with the labels that there are."""
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
    unet.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(unet(x), masks).backward()
        optimizer.step()


@torch.no_grad()
def dice(unet: nn.Module, x: Tensor, masks: Tensor) -> float:
    """2 |A ∩ B| / (|A| + |B|) of the predicted and the true ball, over all volumes."""
    found = unet.eval()(x).argmax(1)
    return float(2 * (found * masks).sum() / (found.sum() + masks.sum()).clamp(min=1))


def main(count: int = 60, labelled: int = 4, epochs: int = 20, steps: int = 30) -> dict[str, float]:
    """Dice on volumes that nobody trained on: the whole network from scratch, and with the pretrained encoder."""
    nets: Any = importlib.import_module("monai.networks.nets")
    volumes, _ = balls(count, seed=0)
    few, masks = balls(labelled, seed=1)
    unseen, truth = balls(20, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        run = icone.pretrain(
            volumes,
            encoder="monai:SegResNet",
            width=FILTERS / 32,  # 32 filters in the first layer are the whole width
            size=SIZE,
            batch_size=4,
            epochs=epochs,
            out=Path(folder) / "run",
        )
        encoder = icone.load_encoder(run)

    def prepared(samples: np.ndarray) -> Tensor:  # the network sees what the encoder saw
        return encoder.views.plain(encoder.preparation.batch(samples))

    found = {}
    for name in ("scratch", "pretrained"):
        torch.manual_seed(0)
        unet = nets.SegResNet(in_channels=1, out_channels=2, init_filters=FILTERS, blocks_down=(1, 2, 2, 4))
        if name == "pretrained":
            print(f"{icone.load_unet(unet, encoder)} tensors of the encoder are in the network")
        train(unet, prepared(few), torch.from_numpy(masks).long(), steps)
        found[name] = dice(unet, prepared(unseen), torch.from_numpy(truth).long())
        print(f"{name}: Dice {found[name]:.3f} with {labelled} labelled volumes")
    return found


if __name__ == "__main__":
    main()
