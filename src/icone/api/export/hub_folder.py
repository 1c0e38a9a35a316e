"""Folders with weights and a name: those that timm loads as `local-dir:…`, and models of the Hugging Face Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from icone.api.export.base import READABLE_VERSIONS, Export, new_folder
from icone.api.export.model_card import model_card
from icone.encoders.registry import timm_name
from icone.errors import InputError
from icone.files import write_json, write_text

WEIGHTS = "model.safetensors"


def write_timm(export: Export, target: Path) -> None:
    """config.json and model.safetensors as timm reads them; what timm has no place for is under the key `icone`."""
    if timm_name(export.name) is None:
        raise InputError(
            f"--format=timm is for encoders of timm, and this run has {export.name}: use hub, torch, onnx or monai"
        )
    with new_folder(target) as folder:
        _write_weights(export, folder)
        write_json(folder / "config.json", {**timm_config(export), "icone": export.description("timm")})


def write_hub(export: Export, target: Path) -> None:
    """The same with a model card (README.md); an encoder that is not timm's is loaded by `icone.from_export`."""
    is_timm = timm_name(export.name) is not None
    config = timm_config(export) if is_timm else {"architecture": export.name, "library_name": "icone"}
    with new_folder(target) as folder:
        _write_weights(export, folder)
        write_json(folder / "config.json", {**config, "icone": export.description("hub")})
        write_text(folder / "README.md", model_card(export, is_timm=is_timm))


def _write_weights(export: Export, folder: Path) -> None:
    tensors = {name: tensor.clone().contiguous() for name, tensor in export.network.state_dict().items()}
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def timm_config(export: Export) -> dict[str, Any]:
    """What timm's config.json says: how to build the network, and how samples are normalised."""
    features = export.config.features or 0
    channels, *size = export.shape
    mean_std = export.normalisation() or {"mean": [0.0] * channels, "std": [1.0] * channels}
    return {
        "architecture": timm_name(export.name),
        "num_classes": features,
        "num_features": export.outputs,
        "model_args": timm_arguments(export),
        "pretrained_cfg": {
            "tag": "icone",
            "input_size": [channels, *size],
            "fixed_input_size": "img_size" in timm_arguments(export),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            **mean_std,
            "num_classes": features,
            "first_conv": None,
            "classifier": None,
        },
    }


def timm_arguments(export: Export) -> dict[str, Any]:
    """The arguments of `timm.create_model` besides the name."""
    embedding: Any = getattr(export.network, "patch_embed", None)
    sized = {"img_size": list(export.preparation.size)} if getattr(embedding, "img_size", None) is not None else {}
    return {"in_chans": export.preparation.channels, "num_classes": export.config.features or 0, **sized}


def read_config(path: Path) -> dict[str, Any]:
    """The description in a JSON file of an export."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    found = content.get("icone", content) if isinstance(content, dict) else None
    if not isinstance(found, dict) or "kind" not in found:
        raise InputError(f"{path} is not of an export of icone: it does not say how samples are prepared")
    if found.get("version") not in READABLE_VERSIONS:
        raise InputError(f"{path} has the version {found.get('version')} of descriptions: a newer icone reads it")
    return found
