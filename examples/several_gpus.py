"""One run on several GPUs, or in several processes on a CPU: the same script, started by torchrun.

    torchrun --nproc-per-node 2 examples/several_gpus.py --epochs 3
    python examples/several_gpus.py --epochs 3

Both train the same weights: `batch_size` counts the samples of all processes, each takes its share of every batch, and
only the first of them writes the run folder and speaks.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np

import icone


def spots(count: int, size: int = 32) -> np.ndarray:
    """Stands in for your data: images (N, 1, H, W) of bright spots; every process makes or reads the same."""
    rng = np.random.default_rng(0)
    down, across = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    centres = rng.uniform(-0.8, 0.8, (count, 2, 1, 1))
    images: np.ndarray = np.exp(-8 * ((down - centres[:, 0]) ** 2 + (across - centres[:, 1]) ** 2))
    return images[:, None].astype(np.float32)


def main(epochs: int = 3, count: int = 24, out: str | None = None) -> icone.Run:
    """Train in all processes that were started together; the run is complete when each of them returns."""
    if out is None:  # the same for all processes that torchrun starts
        out = f"{tempfile.gettempdir()}/icone-{os.environ.get('TORCHELASTIC_RUN_ID', os.getpid())}"
    return icone.pretrain(spots(count), encoder="test_resnet", size=32, batch_size=4, epochs=epochs, out=out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", help="the run folder, which all processes must see")
    arguments = parser.parse_args()
    run = main(arguments.epochs, out=arguments.out)
    if os.environ.get("RANK", "0") == "0":
        print(f"loss after {len(run.history)} epochs: {run.history[-1]['loss']:.3f} ({run.folder})")
