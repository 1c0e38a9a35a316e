"""Dense features: on the grid of the patches, and what pooling starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import icone
from icone.encoders import build_encoder
from icone.encoders.feature_map import feature_map
from icone.errors import InputError

ENCODERS = {
    "test_vit": (2, (32, 32)),
    "vit_tiny_patch16_224": (2, (32, 64)),
    "test_resnet": (2, (64, 64)),
    "test_convnext": (2, (64, 64)),
    "resnet10_3d": (3, (32, 32, 64)),
}


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_pooling_the_map_gives_the_features(name: str) -> None:
    dims, size = ENCODERS[name]
    torch.manual_seed(0)
    network: Any = build_encoder(name, spatial_dims=dims, in_channels=1, size=size, width=0.125).eval()
    x = torch.randn(2, 1, *size)
    found = feature_map(network, x)
    assert found.ndim == 2 + dims
    if name.startswith(("test_vit", "vit_")):  # the class token is pooled: compare the others with timm's own layout
        own = network.forward_intermediates(x, indices=1, norm=True, intermediates_only=True)[0]
        torch.testing.assert_close(found, own)
    elif dims == 3:
        torch.testing.assert_close(network.fc(found.mean((2, 3, 4))), network(x))
        assert found.shape[2:] == (1, 1, 2)
    else:
        torch.testing.assert_close(network.forward_head(found), network(x))


def test_channels_come_first() -> None:
    network: Any = build_encoder("swin_tiny_patch4_window7_224", spatial_dims=2, in_channels=3, size=56).eval()
    x = torch.randn(1, 3, 56, 56)
    with torch.no_grad():
        found = feature_map(network, x)
        assert found.shape == (1, 768, 2, 2)
        torch.testing.assert_close(found.mean((2, 3)), network(x))


class Odd(nn.Module):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward_features(self, x: Tensor) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Flatten(), "Flatten has no feature map.*forward_features"),
        (Odd(torch.zeros(1, 5)), r"returns \(1, 5\)"),
        (Odd([]), "returns list"),
        (Odd(torch.zeros(1, 5, 2)), "on which grid its 5 tokens"),
    ],
)
def test_what_has_no_map_says_so(network: nn.Module, words: str) -> None:
    with pytest.raises(InputError, match=words):
        feature_map(network, torch.zeros(1, 1, 8, 8))


def test_embed_writes_the_maps_of_all_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    volumes = rng.integers(0, 255, (5, 1, 40, 33, 32), dtype=np.uint8)
    settings: dict[str, Any] = {"encoder": "resnet10_3d", "width": 0.125, "size": 32, "epochs": 1, "probe_every": 0}
    run = icone.pretrain(volumes, out=tmp_path / "run", **settings)
    table = icone.embed(run, volumes, dense=True, out=tmp_path / "maps.npz", batch_size=2)
    encoder = icone.load_encoder(run)
    with np.load(tmp_path / "maps.npz") as written:
        assert list(written["id"]) == list(table["id"])
        assert written["features"].dtype == np.float32
        np.testing.assert_allclose(written["features"], encoder.features(volumes).numpy(), rtol=1e-4, atol=1e-4)
    pooled: Any = encoder.encoder
    torch.testing.assert_close(pooled.fc(encoder.features(volumes).mean((2, 3, 4))), encoder(volumes))
    with pytest.raises(InputError, match=r"one \.npz file"):
        icone.embed(run, volumes, dense=True, out=tmp_path / "maps.parquet")
    lines = [line for line in capsys.readouterr().out.splitlines() if "a single position" in line]
    assert len(lines) == 1
    assert lines[0].startswith("note: ")
    assert "pretrain with a larger size=, or with an encoder" in lines[0]
    images = rng.integers(0, 255, (5, 1, 64, 64), dtype=np.uint8)
    gridded = icone.pretrain(images, out=tmp_path / "gridded", encoder="test_resnet", size=64, epochs=1, probe_every=0)
    icone.embed(gridded, images, dense=True, out=tmp_path / "maps.npz")
    with np.load(tmp_path / "maps.npz") as written:
        assert written["features"].shape[2:] == (2, 2)
    assert "a single position" not in capsys.readouterr().out
