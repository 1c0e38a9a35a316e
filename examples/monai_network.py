"""A network of MONAI as the encoder of volumes: here a small 3D DenseNet.

    pip install monai
    python examples/monai_network.py --epochs 3

Any of MONAI's networks that ends in a vector will do; one that returns feature maps gets a pooling layer behind it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from monai.networks.nets.densenet import DenseNet
from torch import nn

import icone


def make_network() -> nn.Module:
    """A DenseNet whose last layer gives 32 features instead of classes."""
    return DenseNet(
        spatial_dims=3, in_channels=1, out_channels=32, init_features=8, growth_rate=4, block_config=(2, 2), bn_size=2
    )


def main(epochs: int = 3, count: int = 12) -> tuple[int, ...]:
    """Train on random volumes and return the shape of their features."""
    volumes = np.random.default_rng(0).random((count, 16, 16, 16), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        run = icone.pretrain(volumes, encoder=make_network(), size=16, epochs=epochs, out=Path(folder) / "run")
        encoder = icone.load_encoder(run, encoder=make_network())
    return tuple(encoder(volumes[:, None]).shape)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    print(f"features: {main(parser.parse_args().epochs)}")
