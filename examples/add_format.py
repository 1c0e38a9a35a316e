"""A file format of your own: folders of such files then work like folders of PNG or NIfTI.

    python examples/add_format.py --epochs 3

The example reads a detector's files: a line of text with the shape, then 16-bit values.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import icone
from icone.data import Format, Sample, register_format
from icone.data.formats.base import Header


def read_header(path: Path) -> Header:
    """Shape and type that a file declares; an error if the file is too short for it."""
    with path.open("rb") as file:
        line = file.readline(100)
    words = line.split()
    if len(words) != 3 or words[0] != b"DETECTOR":
        raise icone.InputError("it does not begin with DETECTOR and two numbers")
    header = Header((1, int(words[1]), int(words[2])), np.dtype("<u2"))
    header.check_size(path.stat().st_size - len(line))
    return header


def read_detector(path: Path) -> Sample:
    """One image (1, H, W) in the units of the detector."""
    header = read_header(path)
    values = np.frombuffer(path.read_bytes().partition(b"\n")[2], header.dtype)
    return Sample(values.reshape(header.shape))


DETECTOR = Format(
    name="detector image", suffixes=(".det",), read=read_detector, header=read_header, spatial_dims=2, version=1
)


def main(epochs: int = 3, count: int = 12) -> tuple[int, int]:
    """Write some files, train on their folder and return the shape of the embeddings."""
    register_format(DETECTOR)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        for number in range(count):
            image = rng.integers(0, 4096, (32, 40), dtype=np.uint16)
            (data / f"{number:03d}.det").write_bytes(b"DETECTOR 32 40\n" + image.tobytes())
        run = icone.pretrain(data, encoder="test_vit", size=32, epochs=epochs, out=Path(folder) / "run")
        features = icone.embed(run).filter(regex=r"^f\d+$")
    return features.shape


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    print(f"embeddings: {main(parser.parse_args().epochs)}")
