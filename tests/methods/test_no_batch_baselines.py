"""The details that decide whether a baseline that needs no batch is the published method."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.api.build import make_training_views
from icone.config import PretrainConfig
from icone.data import load_data
from icone.encoders import MLP, build_encoder, feature_map
from icone.errors import InputError, UndefinedError
from icone.methods import Setting
from icone.methods.mae import MAE, patches_of, sine_cosine
from icone.methods.npid import NPID
from icone.methods.simmim import SimMIM
from icone.methods.sogclr import SogCLR

LATE = torch.tensor(0.9)


def setting(batch_size: int = 3, shape: tuple[int, ...] = ()) -> Setting:
    return Setting(num_instances=6, batch_size=batch_size, epochs=10, sample_shape=shape)


def points(size: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.tensor([4, 1, 3, 0, 5, 2])[:size]
    return torch.randn(size, 2, 5, generator=torch.Generator().manual_seed(size)), index, index


def vit() -> nn.Module:
    torch.manual_seed(0)
    return build_encoder("test_vit", in_channels=1, spatial_dims=2, size=64).eval()


def mae(**options: float) -> MAE:
    return MAE(vit(), setting(shape=(1, 64, 64)), decoder_width=32, decoder_depth=1, **options)  # type: ignore[arg-type]


def test_mae_encodes_visible_patches_as_timm_encodes_a_sequence_of_them() -> None:
    """All patches in order: the tokens of the whole image. A quarter: the blocks never see the others."""
    method, images = mae(), torch.randn(2, 1, 64, 64)
    everything = torch.arange(16).expand(2, 16)
    torch.testing.assert_close(method.encode_visible(images, everything), method.encoder.forward_features(images))  # type: ignore[operator]
    visible = torch.tensor([[3, 0, 9, 12], [1, 2, 4, 8]])
    tokens = method.encode_visible(images, visible)
    assert tokens.shape == (2, 5, 64)
    hidden = images.clone()
    seen = patches_of(torch.arange(64 * 64.0).reshape(1, 1, 64, 64), (16, 16))[0]
    for image, rows in zip(hidden, visible, strict=True):
        keep = torch.zeros(64 * 64, dtype=torch.bool)
        keep[seen[rows].flatten().long()] = True
        image.reshape(-1)[~keep] = 99.0
    torch.testing.assert_close(method.encode_visible(hidden, visible), tokens)


def test_mae_drops_three_quarters_and_learns_from_hidden_patches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    method, images = mae(), torch.randn(2, 2, 1, 64, 64)
    assert method.visible == 4
    torch.manual_seed(5)
    loss = method(images, *points(2)[1:], LATE)["loss"]
    torch.manual_seed(5)
    order = torch.rand(4, 16).argsort(dim=1)
    flat = images.flatten(0, 1)
    predicted = method.decode(method.encode_visible(flat, order[:, :4]), order.argsort(dim=1))
    targets = patches_of(flat, (16, 16))
    targets = (targets - targets.mean(-1, keepdim=True)) / (targets.var(-1, keepdim=True) + 1e-6).sqrt()
    errors = [(predicted[i, j] - targets[i, j]).square().mean() for i in range(4) for j in order[i, 4:].tolist()]
    torch.testing.assert_close(loss, torch.stack(errors).mean())


def test_mae_puts_tokens_back_in_their_places() -> None:
    """Without a decoder, a visible patch gets its own token plus its own position, a hidden one the mask token."""
    method = mae()
    method.decoder, method.predictor = nn.Sequential(), nn.Identity()  # type: ignore[assignment]
    tokens, order = torch.randn(1, 5, 64), torch.randperm(16)[None]
    out = method.decode(tokens, order.argsort(dim=1))[0] - sine_cosine((4, 4), 32)
    known = method.decoder_embed(tokens)[0, 1:]
    for position, patch in enumerate(order[0].tolist()):
        torch.testing.assert_close(out[patch], known[position] if position < 4 else method.mask_token)


def test_mae_refuses_what_has_no_tokens_and_names_simmim() -> None:
    with pytest.raises(UndefinedError, match="simmim"):
        MAE(MLP(5, num_features=8), setting())
    with pytest.raises(InputError, match="multiple of 32"):
        MAE(vit(), setting(), decoder_width=33)
    with pytest.raises(InputError, match="hides 16 of 16"):
        mae(mask_ratio=0.99)


def volume_encoder() -> nn.Module:
    torch.manual_seed(0)
    return build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=20, width=0.125, norm="group")


def test_simmim_hides_whole_cubes_and_as_many_in_every_sample() -> None:
    method = SimMIM(volume_encoder(), setting(shape=(1, 20, 20, 20)))
    masked = method.mask(torch.rand(3, math.prod(method.grid)))
    assert masked.shape == (3, 20, 20, 20)
    cubes = masked.reshape(3, 4, 5, 4, 5, 4, 5).permute(0, 1, 3, 5, 2, 4, 6).flatten(4).float().mean(-1)
    assert set(cubes.unique().tolist()) == {0.0, 1.0}
    assert cubes.flatten(1).sum(1).tolist() == [38.0, 38.0, 38.0]  # 0.6 of 64


def test_simmim_sees_the_learned_value_in_place_of_what_is_hidden() -> None:
    method = SimMIM(volume_encoder(), setting(shape=(1, 20, 20, 20)))
    nn.init.constant_(method.mask_value, 0.7)
    views = torch.rand(2, 2, 1, 20, 20, 20)
    torch.manual_seed(1)
    loss = method(views, *points(2)[1:], LATE)["loss"]
    torch.manual_seed(1)
    masked = method.mask(torch.rand(4, math.prod(method.grid)))[:, None]
    images = views.flatten(0, 1)
    predicted = method.reconstruct(torch.where(masked, torch.tensor(0.7), images))
    torch.testing.assert_close(loss, F.l1_loss(predicted[masked], images[masked]))


@pytest.mark.parametrize("size", [(8, 12), (8, 8, 12)])
def test_simmim_lays_the_cells_of_the_map_side_by_side(size: tuple[int, ...]) -> None:
    """A decoder that says for each cell which it is, and where in it: every voxel is told its own place."""

    class Cells(nn.Module):
        num_features = len(size)

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward_features(self, images: Tensor) -> Tensor:
            axes = [torch.arange(edge // 4.0) * 4 for edge in images.shape[2:]]
            return torch.stack(torch.meshgrid(*axes, indexing="ij")).expand(len(images), -1, *(len(a) for a in axes))

    method = SimMIM(Cells(), setting(shape=(len(size), *size)), mask_patch=2)
    inside = torch.stack(torch.meshgrid(*(torch.arange(4.0) for _ in size), indexing="ij"))
    with torch.no_grad():
        method.decoder.weight.copy_(torch.eye(len(size)).repeat_interleave(4 ** len(size), dim=0))
        method.decoder.bias.copy_(inside.flatten())
    expected = torch.stack(torch.meshgrid(*(torch.arange(float(edge)) for edge in size), indexing="ij"))
    torch.testing.assert_close(method.reconstruct(torch.zeros(2, len(size), *size))[1], expected)


def test_simmim_refuses_points() -> None:
    with pytest.raises(UndefinedError, match="forward_features"):
        SimMIM(MLP(5, num_features=8), setting(shape=(5,)))
    with pytest.raises(InputError, match="sample_shape"):
        SimMIM(volume_encoder(), setting())


def test_the_feature_map_is_what_is_pooled() -> None:
    encoder, volumes = volume_encoder().eval(), torch.randn(2, 1, 33, 33, 33)
    found = feature_map(encoder, volumes)
    assert found.shape == (2, 64, 2, 2, 2)
    torch.testing.assert_close(encoder.fc(found.mean(dim=(2, 3, 4))), encoder(volumes))  # type: ignore[operator]


@pytest.mark.parametrize("method", ["mae", "simclr"])
def test_reconstruction_trains_on_crops_and_flips_alone(method: str) -> None:
    config = PretrainConfig(source="synthetic:cells@16x4", method=method, cache="off")
    views = make_training_views(config, load_data(config).preparation)
    applied = views.describe()["applied"]
    assert isinstance(applied, dict)
    assert {"crop", "flip", "normalise"} <= applied.keys()
    assert ("blur" in applied) == ("brightness" in applied) == ("grayscale" in applied) == (method == "simclr")


def test_npid_moves_the_bank_half_way_after_the_step() -> None:
    method = NPID(MLP(5, num_features=8), setting(), out=4)
    before = method.memory.clone()
    views, index, label = points()
    loss = method(views, index, label, LATE)["loss"]
    torch.testing.assert_close(method.memory, before)
    z = F.normalize(method.head(method.encode(views)), dim=-1)
    logits = (z @ before.T / 0.07).flatten(0, 1)
    torch.testing.assert_close(loss, F.cross_entropy(logits, index.repeat_interleave(2)))
    method.after_step(LATE)
    new = F.normalize(z.detach().mean(dim=1), dim=1)
    torch.testing.assert_close(method.memory[index], F.normalize(0.5 * before[index] + 0.5 * new, dim=1))
    others = [i for i in range(6) if i not in index.tolist()]
    torch.testing.assert_close(method.memory[others], before[others])


def test_npid_keeps_the_first_estimate_of_its_constant() -> None:
    method = NPID(MLP(5, num_features=8), setting(), out=4, negatives=7)
    method(*points(), LATE)["loss"].backward()
    first = method.normaliser.item()
    assert first > 0
    method.after_step(LATE)
    method(*points(), LATE)
    assert method.normaliser.item() == first


def test_sogclr_remembers_by_instance_and_view_after_the_step() -> None:
    method = SogCLR(MLP(5, num_features=8), setting(), hidden=16, out=4, head_norm="none")
    views, index, label = points()
    method(views, index, label, LATE)
    assert not method.denominators.any()
    method.after_step(LATE)
    first = method.denominators.clone()
    assert (first > 0).all(dim=1).nonzero().flatten().tolist() == sorted(index.tolist())
    views = torch.randn_like(views)
    z = F.normalize(method.head(method.encode(views)), dim=-1).detach()
    method(views, index, label, LATE)
    method.after_step(LATE)
    i, v = 0, 1
    g = torch.stack([((z[i, v] @ z[k, w] - 1) / 0.1).exp() for k in (1, 2) for w in range(2)]).mean()
    expected = 0.1 * first[index[i], v] + 0.9 * g
    torch.testing.assert_close(method.denominators[index[i], v], expected)


def test_a_step_that_failed_leaves_nothing_for_the_next() -> None:
    for method in (NPID(MLP(5, num_features=8), setting(), out=4), SogCLR(MLP(5, num_features=8), setting(), hidden=8)):
        method(*points(), LATE)
        before = {name: t.clone() for name, t in method.state_dict().items() if name in method.per_instance}
        method.before_step()
        method.after_step(LATE)
        for name, table in before.items():
            torch.testing.assert_close(method.state_dict()[name], table)
