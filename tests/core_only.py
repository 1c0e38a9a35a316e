"""What works with the core alone, and what else says how to install itself; run by test_installation.py as a script.

    python core_only.py FOLDER

It trains, embeds and evaluates on a NumPy array in FOLDER and prints, as JSON, the sentence of every missing extra.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np


def sentence(call: Callable[[], Any]) -> str | None:
    """What an `InputError` says."""
    import icone

    try:
        call()
    except icone.InputError as error:
        return str(error)
    return None


def said_by(words: list[str]) -> str:
    """What the command line prints as an error."""
    from icone.cli import main

    with redirect_stderr(io.StringIO()) as stderr:
        assert main(words) == 2
    return stderr.getvalue().strip()


def main(folder: Path) -> dict[str, str | None]:
    import icone
    from icone.encoders import build_encoder
    from icone.evaluation.projection import project
    from icone.paper.engines.cluster import _ray

    images = np.random.default_rng(0).integers(0, 255, (12, 3, 32, 32), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 2, "encoder": "resnet10t", "size": 32, "cache": "off"}
    run = icone.pretrain(folder / "images.npy", **settings, out=folder / "run")
    table = icone.embed(run.folder, folder / "images.npy", out=folder / "embeddings.parquet", cache="off")
    assert table.shape == (12, 2 + 512)
    labels = "".join(f"{name},{'ab'[i % 2]}\n" for i, name in enumerate(table["id"]))
    (folder / "labels.csv").write_text(f"id,label\n{labels}")
    result = icone.evaluate(run.folder, labels=folder / "labels.csv", cache="off", test_fraction=0.5)
    assert result["trained"]["linear_probe"] is not None
    assert "<table" in run._repr_html_()
    (folder / "volumes.zarr").mkdir()
    (folder / "volumes.h5").write_bytes(b"")
    (folder / "nrrd").mkdir()
    (folder / "nrrd" / "a.nrrd").write_bytes(b"NRRD0004\n")
    for series in ("one", "two"):
        (folder / "dicom" / series).mkdir(parents=True)
        (folder / "dicom" / series / "slice.dcm").write_bytes(bytes(128) + b"DICM")

    def train(source: str | Path, **more: Any) -> Callable[[], Any]:
        return lambda: icone.pretrain(source, **{**settings, **more}, out=folder / "other")

    return {
        "report": sentence(lambda: icone.report([run])),
        "figures": sentence(run.plot_history),
        "umap": sentence(lambda: project(table.iloc[:, 2:].to_numpy(), "umap")),
        "paper": said_by(["paper", "show", "supervised"]),
        "cluster": sentence(_ray),
        "dicom": sentence(train(folder / "dicom")),
        "onnx": sentence(lambda: icone.export(run, "onnx", folder / "encoder.onnx")),
        "monai": sentence(lambda: build_encoder("monai:SegResNet", spatial_dims=3, in_channels=1, size=16)),
        "nnunet": sentence(lambda: build_encoder("nnunet:ResEncL", spatial_dims=3, in_channels=1, size=16)),
        "zarr": sentence(train(folder / "volumes.zarr")),
        "hdf5": sentence(train(folder / "volumes.h5")),
        "itk": sentence(train(folder / "nrrd")),
        "medmnist": sentence(train("medmnist:breastmnist")),
        **{name: sentence(train(folder / "images.npy", log=(name,))) for name in ("tensorboard", "wandb", "mlflow")},
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
