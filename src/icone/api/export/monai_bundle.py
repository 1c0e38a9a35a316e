"""A MONAI bundle: a folder with the network, its weights and metadata that MONAI's own tools check and load."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from icone.api.export.base import Export, new_folder
from icone.api.export.hub_folder import timm_arguments
from icone.api.export.model_card import model_card
from icone.config import is_object
from icone.encoders.registry import encoder_name, timm_name
from icone.encoders.resnet3d import BLOCKS, CHANNELS, BasicBlock
from icone.errors import InputError
from icone.files import write_json, write_text

SCHEMA = "https://project-monai.github.io/schema/meta_schema_20240725.json"
NORMS = {"batch": "batch", "group": ["group", {"num_groups": 8}], "instance": ["instance", {"affine": True}]}


def write_monai(export: Export, target: Path) -> None:
    """configs/ (metadata, inference, icone), models/model.pt, docs/README.md."""
    definition = network_definition(export)
    with new_folder(target) as folder:
        for name in ("configs", "models", "docs"):
            (folder / name).mkdir()
        torch.save({k: t.clone() for k, t in export.network.state_dict().items()}, folder / "models" / "model.pt")
        write_json(folder / "configs" / "metadata.json", _metadata(export))
        write_json(folder / "configs" / "inference.json", _inference(definition))
        write_json(folder / "configs" / "icone.json", export.description("monai"))
        write_text(folder / "docs" / "README.md", model_card(export, is_timm=False))


def network_definition(export: Export) -> dict[str, Any]:
    """How MONAI's parser builds the network: by MONAI or timm where they have it, else by icone."""
    config = export.config
    name = encoder_name(config.encoder, export.preparation.spatial_dims)
    if is_object(name):
        raise InputError("a bundle names its network, and this one was a Python object: use --format=torch or onnx")
    if name in BLOCKS and export.preparation.spatial_dims == 3:
        block, depths = BLOCKS[name]
        return {
            "_target_": "monai.networks.nets.ResNet",
            "block": "basic" if block is BasicBlock else "bottleneck",
            "layers": list(depths),
            "block_inplanes": list(CHANNELS),
            "spatial_dims": 3,
            "n_input_channels": export.preparation.channels,
            "conv1_t_stride": 2,
            "shortcut_type": "B",
            "bias_downsample": False,
            "widen_factor": config.width,
            "num_classes": export.outputs,
            "norm": NORMS[config.norm],
        }
    if export.preparation.spatial_dims == 2 and (known := timm_name(name)) is not None:
        return {"_target_": "timm.create_model", "model_name": known, "pretrained": False, **timm_arguments(export)}
    return {"_target_": "icone.encoders.build_encoder", **export.arguments}


def _inference(definition: dict[str, Any]) -> dict[str, Any]:
    return {
        "imports": ["$import torch"],
        "bundle_root": ".",
        "device": "$torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "network_def": definition,
        "network": "$@network_def.to(@device)",
        "checkpoint": "$@bundle_root + '/models/model.pt'",
        "initialize": [
            "$@network.load_state_dict(torch.load(@checkpoint, map_location=@device, weights_only=True))",
            "$@network.eval()",
        ],
        "run": ["$print('the network is loaded; icone.from_export reads the bundle with its preparation')"],
    }


def _metadata(export: Export) -> dict[str, Any]:
    channels, *size = export.shape
    features = export.outputs
    given = f"float32 {export.description('monai')['input']['values']}; see configs/icone.json"
    return {
        "schema": SCHEMA,
        "version": "0.1.0",
        "changelog": {"0.1.0": "exported by icone"},
        "monai_version": _version("monai", "1.4.0"),
        "pytorch_version": _version("torch", "2.6.0"),
        "numpy_version": _version("numpy", "1.26.0"),
        "required_packages_version": {"icone": _version("icone", "0.2.0"), "timm": _version("timm", "1.0.10")},
        "name": f"{export.name} by {export.config.method}",
        "task": "features of images or volumes, learnt without labels",
        "description": "An encoder that was pretrained without labels; docs/README.md says on what and how.",
        "authors": "unknown",
        "copyright": "unknown",
        "license": export.licence,
        "network_data_format": {
            "inputs": {
                "image": {
                    "type": "image",
                    "format": "intensity",
                    "modality": "any",
                    "num_channels": channels,
                    "spatial_shape": list(size),
                    "dtype": "float32",
                    "value_range": [],
                    "is_patch_data": False,
                    "channel_def": {str(i): given for i in range(channels)},
                }
            },
            "outputs": {
                "pred": {
                    "type": "features",
                    "format": "features",
                    "num_channels": features,
                    "spatial_shape": [],
                    "dtype": "float32",
                    "value_range": [],
                    "is_patch_data": False,
                    "channel_def": {"0": "feature"},
                }
            },
        },
    }


def _version(package: str, usual: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return usual
