"""The trained encoder inside a segmentation network: MONAI's U-shaped networks, and nnU-Net's file of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icone.api.embed import load_encoder
from icone.api.export.base import Export, description_file
from icone.encoders.pretrained import below_best_prefix
from icone.encoders.volumes import ResEncEncoder, resenc_plan
from icone.errors import InputError, optional
from icone.evaluation.features import FrozenEncoder
from icone.files import replacing, write_json
from icone.run import Run
from icone.validation import check_arguments

HEADS = ("projection.", "fc.", "head.")
"""Layers behind the feature map, which a segmentation network does not have."""


@check_arguments
def load_unet(unet: nn.Module, run: str | Path | Run | FrozenEncoder) -> int:
    """Put the encoder of a run into a segmentation network, in place; returns the number of tensors.

    All weights before the pooling must have a place of the same name and shape in it (below any prefix), else it is an
    `InputError` and nothing changes. It fits where the run was trained with the network's own encoder:
    `monai:SegResNet`, `monai:SwinUNETR`, `monai:MedNeXt…`, `monai:ViT` (UNETR), `nnunet:ResEncL`, `resnet…_3d`.
    """
    encoder = run.encoder if isinstance(run, FrozenEncoder) else load_encoder(run).encoder
    return _put_strictly(unet, encoder)


def _put_strictly(unet: nn.Module, encoder: nn.Module) -> int:
    trained = {name: t for name, t in encoder.state_dict().items() if not name.startswith(HEADS)}
    own = unet.state_dict()
    below = below_best_prefix(own, trained.keys())
    names = {id(tensor): name for name, tensor in own.items()}
    placed: dict[str, Tensor] = {}
    for name, tensor in trained.items():
        place = below.get(name)
        if place is None or place.shape != tensor.shape:
            found = "is not in it" if place is None else f"is {tuple(place.shape)} there and {tuple(tensor.shape)} here"
            raise InputError(
                f"the encoder does not fit into {type(unet).__name__}: {name} {found}. Build the network with the "
                "settings of the run (encoder, width, channels), or pretrain with the encoder of that network"
            )
        placed[names[id(place)]] = tensor
    unet.load_state_dict(placed, strict=False)
    return len(placed)


def write_nnunet(export: Export, target: Path) -> None:
    """A file for `nnUNetv2_train … -pretrained_weights FILE`: the whole network, the encoder trained, the decoder new.

    nnU-Net asks for every tensor of its network but the last layers. Its plan must have the patch size and channels of
    the run; the plan's strides and features then are those of `nnunet:ResEncL`.
    """
    if not isinstance(export.network, ResEncEncoder):
        raise InputError(
            f"--format=nnunet is for runs with the encoder of nnU-Net, and this one has {export.name}: pretrain with "
            "--encoder=nnunet:ResEncL. icone.load_unet puts other encoders into networks of MONAI"
        )
    with optional("nnunet", "icone export --format=nnunet"):
        from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet
        from dynamic_network_architectures.initialization.weight_init import InitWeights_He
    plan = resenc_plan(export.preparation.size, export.config.width)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        unet: Any = ResidualEncoderUNet(
            export.preparation.channels,
            num_classes=2,
            n_conv_per_stage_decoder=[1] * (plan["n_stages"] - 1),
            deep_supervision=True,
            **plan,
        )
        unet.apply(InitWeights_He(1e-2))
    _put_strictly(unet, export.network)
    weights = {name: tensor.clone() for name, tensor in unet.state_dict().items()}
    with replacing(target) as temporary:
        torch.save({"network_weights": weights}, temporary)
    write_json(description_file(target), export.description("nnunet"))
