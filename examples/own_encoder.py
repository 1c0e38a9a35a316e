"""A network of your own as the encoder, with views of your own.

    python examples/own_encoder.py --epochs 5

Any module (B, C, *size) -> (B, features) will do. It is copied with its weights, so that it may be pretrained, and is
left as it is. The trained weights have the names of your own network.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import icone
from icone.tensor_files import read_tensors


def make_network() -> nn.Module:
    """Your network: here a few convolutions over images of two channels."""
    return nn.Sequential(
        nn.Conv2d(2, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def random_view(sample: Tensor) -> Tensor:
    """Your augmentation of one sample (C, H, W) in [0, 1]: a flip, a turn, noise. torchvision's transforms fit too."""
    turned = torch.rot90(sample, int(torch.randint(4, ())), dims=(1, 2))
    flipped = turned.flip(-1) if torch.rand(()) < 0.5 else turned
    return flipped + 0.05 * torch.randn_like(flipped)


def main(epochs: int = 5, count: int = 40) -> Tensor:
    """Train, load the encoder again and return the features of the first samples."""
    images = np.random.default_rng(0).random((count, 2, 24, 24), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = icone.pretrain(images, encoder=make_network(), views=random_view, size=24, epochs=epochs, out=out)
        encoder = icone.load_encoder(run, encoder=make_network())  # the architecture is not stored, so give it again
        make_network().load_state_dict(read_tensors(run.encoder_file)[0])  # or use the weights without icone
        features: Tensor = encoder(images[:3])
        return features


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    print(f"features of three samples: {tuple(main(parser.parse_args().epochs).shape)}")
