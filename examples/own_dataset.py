"""A torch Dataset of your own as the data: for formats, databases or simulations that icone cannot read.

    python examples/own_dataset.py --epochs 5

An item is an array, a tensor or a PIL image; or a tuple that begins with one; or a dictionary with the key "image".
Samples may differ in size. Labels are optional: the attribute `targets` holds one per sample.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

import icone


class Simulation(Dataset[np.ndarray]):
    """Stands in for your data: volumes of random size with a bright ball or a bright box, made when asked for."""

    def __init__(self, count: int) -> None:
        self.targets = ["ball" if i % 2 else "box" for i in range(count)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> np.ndarray:
        rng = np.random.default_rng(position)
        size = rng.integers(14, 22, 3)
        z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in size), indexing="ij")
        ball, box = np.sqrt(z**2 + y**2 + x**2), np.maximum.reduce([abs(z), abs(y), abs(x)])
        shape = ball if self.targets[position] == "ball" else box
        volume: np.ndarray = (shape < rng.uniform(0.4, 0.8)) + rng.normal(0, 0.1, size)
        return volume


def main(epochs: int = 5, count: int = 24) -> dict[str, Any]:
    """Train on the Dataset and evaluate on it; its labels are used by the evaluation alone."""
    data = Simulation(count)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = icone.pretrain(data, encoder="nf_resnet10_3d", width=0.125, size=16, epochs=epochs, out=out)
        return icone.evaluate(run, data=data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    print(main(parser.parse_args().epochs)["verdict"]["headline"])
