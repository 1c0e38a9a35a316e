"""The heart: IConE's loss is the paper's equation, and reaches encoder and table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.config import TrainingConfig
from icone.encoders import build_encoder
from icone.errors import InputError
from icone.methods import AnchorTable, IConE, IConELoss, Setting, build_method, chosen_options, parse_options
from icone.nn.diversity import orthogonality, sampled_orthogonality
from icone.recipe import ANCHOR_EPSILON_FACTOR
from icone.training.optimizer import build_optimizer


def brute_force(z: Tensor, index: Tensor, table: Tensor, per: str) -> Tensor:
    """Equations 2, 4 and 5 of the paper as loops."""
    batch, views, _ = z.shape
    n = len(table)
    z, e = z / z.norm(dim=-1, keepdim=True), table / table.norm(dim=-1, keepdim=True)
    vv = vi = div = torch.zeros((), dtype=z.dtype)
    for b in range(batch):
        for v in range(views):
            vi = vi + (1 - z[b, v] @ e[index[b]]) / (batch * views)
            for w in range(v):
                vv = vv + (1 - z[b, v] @ z[b, w]) * 2 / (views * (views - 1)) / batch
    for i in range(n):
        for j in range(n):
            if i != j:
                div = div + (e[i] @ e[j]).clamp(min=0) ** 2 / (n * (n - 1) if per == "pair" else n)
    return vv + vi + div


@pytest.mark.parametrize("per", ["pair", "anchor"])
@pytest.mark.parametrize("shape", [(1, 2, 5), (4, 3, 7)])
def test_loss_and_gradients_are_the_printed_ones(shape: tuple[int, int, int], per: str) -> None:
    torch.manual_seed(0)
    z = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([3, 0, 5, 1])[: shape[0]]
    loss = IConELoss(num_instances=9, dim=shape[2], normalisation=per).double()
    expected = brute_force(z, index, loss.anchors.weight, per)
    wanted = torch.autograd.grad(expected, [z, loss.anchors.weight])
    got = torch.autograd.grad(loss(z, index), [z, loss.anchors.weight])
    torch.testing.assert_close(loss(z, index), expected)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_index_addresses_the_table() -> None:
    """An alignment that ignores the dataset index would pull the first rows."""
    loss = IConELoss(num_instances=9, dim=4, diversity_weight=0.0)
    loss(torch.randn(2, 2, 4), torch.tensor([6, 2])).backward()
    assert loss.anchors.weight.grad is not None
    assert loss.anchors.weight.grad.norm(dim=1).nonzero().flatten().tolist() == [2, 6]


def test_diversity_moves_every_anchor_and_leaves_the_encoder_alone() -> None:
    z = torch.randn(1, 2, 4, requires_grad=True)
    loss = IConELoss(num_instances=9, dim=4, view_weight=0.0, anchor_weight=0.0)
    loss(z, torch.tensor([0])).backward()
    assert z.grad is not None
    assert loss.anchors.weight.grad is not None
    assert z.grad.abs().max() == 0
    assert (loss.anchors.weight.grad.norm(dim=1) > 0).all()


def test_weights_scale_their_terms_and_terms_come_unweighted() -> None:
    z, index = torch.randn(2, 2, 4), torch.tensor([0, 1])
    loss = IConELoss(num_instances=5, dim=4, view_weight=2.0, anchor_weight=3.0, diversity_weight=0.5)
    terms = loss.terms(z, index)
    weighted = 2 * terms["view_consistency"] + 3 * terms["anchor_alignment"] + 0.5 * terms["diversity"]
    torch.testing.assert_close(terms["loss"], weighted)


def test_anchor_table_starts_small_and_is_used_normalised() -> None:
    table = AnchorTable(2000, 64)
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.02)
    torch.testing.assert_close(table().norm(dim=1), torch.ones(2000))
    pairs = table() @ table().T
    expected = (pairs.sum() - pairs.diagonal().sum()) / (2000 * 1999)
    assert table.mean_cosine().item() == pytest.approx(expected.item(), abs=1e-6)


def test_options_reach_the_objective() -> None:
    encoder = build_encoder(in_channels=2, spatial_dims=0, features=4)
    method = build_method("icone", encoder, Setting(num_instances=6), ["decay_anchors=no", "diversity=sigreg"])
    assert isinstance(method, IConE)
    assert [p is method.objective.anchors.weight for p in method.undecayed()] == [True]
    assert build_method("icone", encoder, Setting(num_instances=6)).undecayed() == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("diversity=orthogonalty", "did you mean orthogonality"),
        ("normalisation=row", "unknown normalisation"),
        ("start_at=zero", "unknown start_at"),
        ("view_wait=1", "did you mean view_weight"),
        ("view_weight=heavy", "no float"),
        ("decay_anchors=perhaps", "no bool"),
        ("view_weight", "name=value"),
    ],
)
def test_wrong_options_are_refused(option: str, words: str) -> None:
    encoder = build_encoder(in_channels=2, spatial_dims=0)
    with pytest.raises(InputError, match=words):
        build_method("icone", encoder, Setting(num_instances=6), [option])


def test_parse_options_reads_by_the_type_of_the_default() -> None:
    assert parse_options("icone", ["init_std=1e-1"]) == {"init_std": 0.1}


def test_anchors_start_where_features_point_from_their_mean() -> None:
    torch.manual_seed(0)
    table, features = AnchorTable(40, 16), 5 + torch.randn(40, 16)
    features[1] = features[0]
    random = table.weight.detach().clone()
    table.start_from(features)
    cosine = F.cosine_similarity(table.weight, features - features.mean(0))
    assert (cosine > 0.98).all()
    torch.testing.assert_close(table.weight.norm(dim=1).mean(), random.norm(dim=1).mean(), rtol=0.02, atol=0)
    assert not torch.equal(table.weight[0], table.weight[1])  # or nothing would ever part them
    before = table.weight.detach().clone()
    table.start_from(-features, torch.tensor([3]))
    assert F.cosine_similarity(table.weight[3], before[3], dim=0) < -0.8
    assert torch.equal(table.weight[:3], before[:3])
    table.start_from(torch.ones(40, 16))  # an encoder that knows nothing leaves them at random
    assert torch.isfinite(table()).all()


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_epsilon_of_anchors_is_ten_times_their_gradient_over_an_epoch(batch_size: int) -> None:
    """Anchors far from their views, each visited once: the root mean square over rows, dimensions and steps."""
    torch.manual_seed(0)
    setting, encoder = Setting(num_instances=40, batch_size=batch_size), build_encoder(in_channels=2, spatial_dims=0)
    method = build_method("icone", encoder, setting, ["diversity_weight=0", "anchor_weight=2", "out=64"])
    assert isinstance(method, IConE)
    table = method.objective.anchors.weight
    squares = []
    for index in torch.randperm(40).split(batch_size):
        views = torch.randn(batch_size, 1, 64).expand(batch_size, 2, 64)
        (gradient,) = torch.autograd.grad(method.objective(views, index), table)
        squares.append(gradient.square().mean())
    expected = torch.stack(squares).mean().sqrt().item()
    assert method.adam_epsilon_floor(batch_size) == {table: pytest.approx(ANCHOR_EPSILON_FACTOR * expected, rel=0.1)}


def test_anchors_are_as_much_longer_as_steps_are() -> None:
    encoder = build_encoder(in_channels=2, spatial_dims=0)
    method = build_method("icone", encoder, Setting(num_instances=99, initial_scale=10))
    assert isinstance(method, IConE)
    assert method.objective.anchors.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_the_recipe_of_the_paper_is_the_printed_objective() -> None:
    printed = chosen_options("icone", ["init_std=0.1"], "paper")
    assert printed | {"init_std": 0.02} == {
        "hidden": 2048, "out": 0, "diversity": "orthogonality", "normalisation": "pair", "view_weight": 1.0,
        "anchor_weight": 1.0, "diversity_weight": 1.0, "init_std": 0.02, "init_unit": False, "start_at": "random",
        "decay_anchors": True, "freeze_anchors": False, "center_weight": 0.0,
    }  # fmt: skip
    assert chosen_options("icone", ["normalisation=anchor"], "paper")["normalisation"] == "anchor"
    assert chosen_options("icone", [], "icone")["start_at"] == "features"
    assert chosen_options("icone_instance", [], "paper")["start_at"] == "random"
    assert chosen_options("simclr", [], "paper") == chosen_options("simclr", [], "icone")


def test_frozen_anchors_stay_where_they_are_and_the_encoder_learns() -> None:
    encoder = build_encoder(in_channels=2, spatial_dims=0)
    method = build_method("icone", encoder, Setting(num_instances=6), ["freeze_anchors=yes"])
    config = TrainingConfig(batch_size=2)
    optimizer = build_optimizer(method, config, torch.device("cpu"))
    before = {name: t.clone() for name, t in method.named_parameters()}
    losses = method(torch.randn(2, 2, 2), torch.tensor([3, 1]), torch.tensor([-1, -1]), torch.zeros(()))
    losses["loss"].backward()
    optimizer.step()
    unchanged = [name for name, t in method.named_parameters() if torch.equal(t, before[name])]
    assert unchanged == ["objective.anchors.weight"]
    assert losses["diversity"] > 0


def test_anchors_may_start_at_unit_length() -> None:
    assert AnchorTable(50, 8, unit=True).weight.norm(dim=1).allclose(torch.ones(50))
    method = build_method(
        "icone", build_encoder(in_channels=2, spatial_dims=0), Setting(num_instances=9), ["init_unit=yes"]
    )
    assert isinstance(method, IConE)
    assert method.objective.anchors.weight.norm(dim=1).allclose(torch.ones(9))


def test_anchors_live_behind_a_head_that_needs_no_batch() -> None:
    torch.manual_seed(0)
    encoder = build_encoder(in_channels=2, spatial_dims=0, features=4)
    method = build_method("icone", encoder, Setting(num_instances=6, batch_size=1), ["hidden=32", "out=8"])
    assert isinstance(method, IConE)
    assert method.table.weight.shape == (6, 8)
    views, index, label = torch.randn(1, 2, 2), torch.tensor([3]), torch.tensor([-1])
    method(views, index, label, torch.zeros(()))["loss"].backward()
    assert all(p.grad is not None for p in encoder.parameters())
    assert not any(type(m) is torch.nn.BatchNorm1d for m in method.modules())
    printed = build_method("icone", encoder, Setting(num_instances=6), [], "paper")
    assert isinstance(printed, IConE)
    assert printed.table.weight.shape == (6, 4)
    assert printed.embed(views[None, 0]).equal(printed.encode(views[None, 0]))


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (torch.tensor([0, 9]), "index holds 9, but there are 9 anchors: 0 to 8"),
        (torch.tensor([-1, 0]), "index holds -1"),
        (torch.tensor([0, 2**40]), "index holds"),
        (torch.tensor([0.0, 1.0]), "whole numbers"),
        (torch.tensor([True, False]), "whole numbers"),
        (torch.tensor([0]), r"shape \(2,\)"),
        (torch.tensor([[0, 1]]), r"shape \(2,\)"),
        (torch.tensor(0), r"shape \(2,\)"),
        ([0, 1], "must be tensors"),
    ],
)
def test_a_bad_index_is_said(index: Tensor, reason: str) -> None:
    loss = IConELoss(num_instances=9, dim=4)
    assert loss(torch.randn(2, 2, 4), torch.tensor([0, 8], dtype=torch.int32)).isfinite()
    with pytest.raises(InputError, match=reason):
        loss(torch.randn(2, 2, 4), index)


@pytest.mark.parametrize("embeddings", [torch.randn(2, 2, 5), torch.randn(2, 4), torch.ones(2, 2, 4).long()])
def test_embeddings_that_do_not_match_the_anchors_are_said(embeddings: Tensor) -> None:
    with pytest.raises(InputError, match=r"\(B, V, 4\)"):
        IConELoss(num_instances=9, dim=4)(embeddings, torch.tensor([0, 1]))


@pytest.mark.parametrize("size", [{"num_instances": 0}, {"num_instances": -1}, {"dim": 0}, {"dim": 1.5}, {"dim": "8"}])
def test_a_table_that_cannot_be_is_said(size: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be a whole number of at least 1"):
        IConELoss(**{"num_instances": 9, "dim": 4} | size)


def test_all_pairs_are_computed_where_a_step_can_afford_them_and_else_estimated_with_a_note() -> None:
    encoder = build_encoder(in_channels=2, spatial_dims=0)
    exact: Any = IConE(encoder, Setting(num_instances=500), out=8)
    assert not exact.notes
    assert exact.objective.diversity.func is orthogonality
    estimated: Any = IConE(encoder, Setting(num_instances=500, diversity_flops=3 * 500**2 * 8 - 1), out=8)
    assert estimated.objective.diversity.func is sampled_orthogonality
    assert "374 random anchors" in estimated.notes[0]
    assert "diversity=orthogonality" in estimated.notes[0]
    asked = IConE(encoder, Setting(num_instances=500, diversity_flops=1.0), out=8, diversity="orthogonality")
    assert not asked.notes
