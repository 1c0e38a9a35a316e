"""The projection of patches keeps its weights, and everything else learns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from rich.console import Console
from torch import nn

import icone
from icone.api.build import make_encoder
from icone.encoders import build_encoder, freeze_patch_embed

IMAGES: dict[str, Any] = {"source": "synthetic:cells@32x8", "size": 32, "epochs": 1, "batch_size": 4, "device": "cpu"}


def trained(out: Path, **settings: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The encoder's weights before and after a short run."""
    run = icone.pretrain(**{**IMAGES, **settings}, out=out, probe_every=0, console=Console(file=io.StringIO()))
    return make_encoder(run.config, run.preparation).state_dict(), run.trained_weights()


@pytest.mark.parametrize("given", [{}, {"micro_batch": 1}, {"method": "mae"}, {"method": "moco"}], ids=str)
def test_only_the_projection_is_kept(tmp_path: Path, given: dict[str, Any]) -> None:
    before, after = trained(tmp_path / "run", encoder="test_vit", freeze_patch_embed=True, **given)
    kept = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert kept == {"patch_embed.proj.weight", "patch_embed.proj.bias"}


def test_an_encoder_of_ones_own(tmp_path: Path) -> None:
    network: Any = timm.create_model("test_vit", img_size=32, num_classes=0)
    run = icone.pretrain(
        **IMAGES, encoder=network, freeze_patch_embed=True, out=tmp_path / "run", console=Console(file=io.StringIO())
    )
    after = run.trained_weights()
    assert torch.equal(after["patch_embed.proj.weight"], network.patch_embed.proj.weight)
    assert not torch.equal(after["blocks.0.attn.qkv.weight"], network.blocks[0].attn.qkv.weight)
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_volumes() -> None:
    pytest.importorskip("monai")
    encoder = build_encoder("monai:ViT", in_channels=1, spatial_dims=3, size=32, width=0.125)
    freeze_patch_embed(encoder)
    frozen = {name for name, parameter in encoder.named_parameters() if not parameter.requires_grad}
    assert frozen
    assert all("patch_embeddings" in name for name in frozen)
    assert any("position_embeddings" in name for name, p in encoder.named_parameters() if p.requires_grad)


def test_networks_without_patches_are_refused(tmp_path: Path) -> None:
    said = r"ResNet has no projection of patches .* leave freeze_patch_embed=True out"
    with pytest.raises(icone.InputError, match=said):
        trained(tmp_path / "run", encoder="test_resnet", freeze_patch_embed=True)
    with pytest.raises(icone.InputError, match="Linear has no projection"):
        freeze_patch_embed(nn.Linear(2, 2))
