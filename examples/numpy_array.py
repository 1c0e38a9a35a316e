"""A NumPy array in, features out, a classifier on top: no files at all.

    python examples/numpy_array.py --epochs 8

The array has the shape (N, C, *size) or (N, *size): images or volumes, of any type of number.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import icone


def rings_and_discs(count: int, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Stands in for your data: noisy gray images of rings and discs, (N, size, size) in 8 bits, and which is which."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    centre, radius = rng.uniform(-0.3, 0.3, (count, 2)), rng.uniform(0.3, 0.6, count)
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    distance = np.hypot(y - centre[:, :1, None], x - centre[:, 1:, None])
    disc = distance < radius[:, None, None]
    ring = disc & (distance > 0.6 * radius[:, None, None])
    images = 160.0 * np.where(labels[:, None, None] == 1, disc, ring) + rng.normal(40, 15, (count, size, size))
    return images.clip(0, 255).astype(np.uint8), labels


def main(epochs: int = 8, count: int = 200) -> float:
    """Train without labels, then return the accuracy of a linear classifier on a held-out fifth."""
    images, labels = rings_and_discs(count)
    with tempfile.TemporaryDirectory() as folder:
        run = icone.pretrain(
            images, encoder="resnet10t", size=32, epochs=epochs, batch_size=4, out=Path(folder) / "run"
        )
        features = icone.embed(run, images).filter(regex=r"^f\d+$").to_numpy()
    train = np.arange(count) < 0.8 * count
    classifier = LogisticRegression(max_iter=1000).fit(features[train], labels[train])
    return float(classifier.score(features[~train], labels[~train]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    print(f"accuracy on held-out images: {main(parser.parse_args().epochs):.2f}")
