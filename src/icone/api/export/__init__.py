"""`icone.export`: a run's network for other tools, and `icone.from_export`, which reads it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console
from torch import nn

from icone.api.build import pick_device
from icone.api.embed import load_encoder
from icone.api.export.base import (
    Export,
    begin_classifier_export,
    begin_export,
    description_file,
    num_outputs,
    read_back,
)
from icone.api.export.graphs import OnnxEncoder, read_torch, write_onnx, write_torch
from icone.api.export.hub_folder import WEIGHTS, read_config, write_hub, write_timm
from icone.api.export.monai_bundle import write_monai
from icone.api.export.segmentation import load_unet, write_nnunet
from icone.api.predict import FineTuned, load_classifier
from icone.api.weights import read_weights
from icone.encoders.pretrained import put_weights
from icone.errors import InputError
from icone.evaluation.features import FrozenEncoder
from icone.find_runs import is_finetuned
from icone.run import Run, refuse_own_file
from icone.validation import check_arguments, check_target

__all__ = ["EXPORTS", "ExportFormat", "export", "from_export", "load_unet"]

ExportFormat = Literal["timm", "torch", "onnx", "hub", "monai", "nnunet"]


class _Format(NamedTuple):
    write: Callable[[Export, Path], None]
    suffix: str | None
    """How the name of the file ends; None: a folder."""


EXPORTS: dict[str, _Format] = {
    "timm": _Format(write_timm, None),
    "torch": _Format(write_torch, ".pt2"),
    "onnx": _Format(write_onnx, ".onnx"),
    "hub": _Format(write_hub, None),
    "monai": _Format(write_monai, None),
    "nnunet": _Format(write_nnunet, ".pth"),
}
"""How each format is written."""
WHOLE = ("torch", "onnx")
"""Formats that hold a whole computation."""


@check_arguments
def export(
    run: str | Path | Run | FineTuned,
    format: ExportFormat,
    out: str | Path | None = None,
    *,
    licence: str = "unknown",
    encoder: nn.Module | None = None,
    console: Console | None = None,
) -> Path:
    """Write the trained network of a run for other tools, and return the path of the file or folder.

    Of a run of `icone.pretrain` that is its encoder, and the outputs are features. Of one of `icone.finetune` it is the
    whole network, in the formats `torch` and `onnx`: the outputs are probabilities, or numbers in the units of the
    labels.

    - `timm`: a folder that `timm.create_model("local-dir:…", pretrained=True)` loads.
    - `torch`: a program of `torch.export` (.pt2), from samples in [0, 1] to outputs.
    - `onnx`: the same as ONNX, compared with PyTorch by onnxruntime to 1e-4 before it is kept.
    - `hub`: a folder for the Hugging Face Hub: config.json, model.safetensors, README.md. `licence` goes into the card.
    - `monai`: a MONAI bundle.
    - `nnunet`: a file for nnU-Net's `-pretrained_weights`, of runs with the encoder `nnunet:ResEncL`.

    Without `out` it is written into the run folder: encoder-timm, encoder-onnx.onnx, classifier-onnx.onnx, …. How
    samples become the network's input is in JSON with each, in words too (`preparation_steps`). `encoder` is for runs
    that were given theirs as a Python object. `icone.from_export` reads all formats back.
    """
    chosen, begun = EXPORTS[format], _begin(run, format, licence, encoder)
    name = f"{'encoder' if begun.answers is None else 'classifier'}-{format}{chosen.suffix or ''}"
    target = Path(out) if out is not None else begun.run.folder / name
    if chosen.suffix is not None and target.suffix != chosen.suffix:
        raise InputError(f"cannot write {target}: a file of the format {format} ends in {chosen.suffix}")
    if chosen.suffix is not None:
        check_target(target)
    refuse_own_file(target)
    chosen.write(begun, target)
    return target


def _begin(run: str | Path | Run | FineTuned, format: str, licence: str, encoder: nn.Module | None) -> Export:
    """What is written, of a pretrained encoder or of a fine-tuned network."""
    folder = Path(run) if isinstance(run, (str, Path)) else run.folder
    if not isinstance(run, FineTuned) and is_finetuned(folder):
        run = load_classifier(folder, encoder=encoder)
    if isinstance(run, FineTuned):
        if format not in WHOLE:
            raise InputError(
                f"a fine-tuned network is exported as {' or '.join(WHOLE)}, got --format={format}: the other formats "
                "are of encoders alone"
            )
        return begin_classifier_export(run, licence)
    run = run if isinstance(run, Run) else Run.open(run)
    if run.preparation.spatial_dims == 0:
        raise InputError("encoders of points are not exported: icone.load_encoder gives the module")
    return begin_export(run, load_encoder(run, encoder=encoder), licence)


@check_arguments
def from_export(path: str | Path, device: str = "cpu", *, encoder: nn.Module | None = None) -> FrozenEncoder:
    """An exported network with its preparation: raw samples in, the features of `icone.embed` out.

    Of a fine-tuned network the answers come out, in the order of `names` in the JSON file beside it.

    `encoder` is for exports of runs that were given theirs as a Python object, in the formats that hold weights alone.
    Programs (`torch`) and ONNX files cannot be trained further, and have no feature maps.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"there is no {path}: give the file or folder that icone.export has written")
    if path.suffix in (".onnx", ".pt2"):
        description = read_config(description_file(path))
        network = OnnxEncoder(path) if path.suffix == ".onnx" else read_torch(path, num_outputs(description))
        return read_back(description, network).to(pick_device(device))
    files = {
        path / "config.json": path / WEIGHTS,
        path / "configs" / "icone.json": path / "models" / "model.pt",
        description_file(path): path,
    }
    for config, weights in files.items():
        if config.is_file():
            frozen = read_back(read_config(config), given=encoder)
            _put_all(frozen.encoder, read_weights(weights), weights, frozen.preparation.channels)
            return frozen.to(pick_device(device))
    raise InputError(f"{path} is no export of icone: it has none of {', '.join(file.name for file in files)}")


def _put_all(network: nn.Module, content: Any, path: Path, channels: int) -> None:
    """All weights of an export, as they are."""
    found = put_weights(network, content, origin=str(path), in_channels=channels)
    if wrong := [*found.new, *found.adapted]:
        raise InputError(f"{path} does not hold the whole encoder: {wrong[0]} is missing or of another shape")
