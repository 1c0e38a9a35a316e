"""The details that decide whether a rival is the published method: order of operations, addressing, schedules."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.encoders import MLP
from icone.errors import InputError
from icone.methods import Setting
from icone.methods.byol import BYOL
from icone.methods.cross_entropy import CrossEntropy
from icone.methods.diet import DIET
from icone.methods.dino import DINO
from icone.methods.moco import MoCo
from icone.methods.simclr import SimCLR
from icone.methods.swav import SwAV
from icone.methods.vicreg import VICReg
from icone.nn.heads import ProjectionHead
from icone.nn.losses import info_nce, self_distillation, swapped_prediction

LABELS = torch.tensor([0, 1, 1, 2, 0, 1])
NO_PROGRESS, LATE = torch.tensor(0.0), torch.tensor(0.9)


def setting(batch_size: int = 3, num_views: int = 2) -> Setting:
    return Setting(num_instances=6, batch_size=batch_size, num_views=num_views, epochs=10, labels=LABELS, num_classes=3)


def encoder() -> MLP:
    torch.manual_seed(0)
    return MLP(5, num_features=8)


def batch(size: int = 3, num_views: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.tensor([4, 1, 3, 0, 5, 2])[:size]
    views = torch.randn(size, num_views, 5, generator=torch.Generator().manual_seed(size))
    return views, index, LABELS[index]


def disturb(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))


def moco(queue_size: int) -> MoCo:
    return MoCo(encoder(), setting(), queue_size=queue_size, out=4)


def test_moco_compares_with_the_queue_as_it_was() -> None:
    """Enqueueing first would put the positive among the negatives."""
    method = moco(queue_size=8)
    before = method.queue.clone()
    views, *rest = batch()
    loss = method(views, *rest, LATE)["loss"]
    torch.testing.assert_close(method.queue, before)
    query = method.head(method.encoder(views[:, 0])[:, None])[:, 0]
    key = method.key_head(method.key_encoder(views[:, 1])[:, None])[:, 0]
    torch.testing.assert_close(loss, info_nce(query, key, before, 0.2))
    method.after_step(LATE)
    torch.testing.assert_close(method.queue[:3], F.normalize(key, dim=1))
    torch.testing.assert_close(method.queue[3:], before[3:])
    assert method.pointer.item() == 3


def test_moco_moves_the_key_network_before_the_keys_of_the_next_step() -> None:
    method = moco(queue_size=8)
    method(*batch(), LATE)
    disturb(method.encoder)
    disturb(method.head)
    expected = [
        0.99 * slow + 0.01 * fast
        for slow, fast in zip(
            [*method.key_encoder.parameters(), *method.key_head.parameters()],
            [*method.encoder.parameters(), *method.head.parameters()],
            strict=True,
        )
    ]
    method.after_step(LATE)
    moved = [*method.key_encoder.parameters(), *method.key_head.parameters()]
    torch.testing.assert_close(moved, expected)
    views, *rest = batch()
    method(views, *rest, LATE)
    torch.testing.assert_close([*method.key_encoder.parameters(), *method.key_head.parameters()], expected)
    key = F.normalize(method.key_head(method.key_encoder(views[:, 1])[:, None])[:, 0], dim=1)
    torch.testing.assert_close(method.new_keys, [key])


def test_a_step_that_failed_leaves_nothing_for_the_next() -> None:
    """A capture that fails is followed by another attempt: its keys and logits must not count."""
    for method in (moco(queue_size=8), dino()):
        expected = copy.deepcopy(method)
        for one in (method, expected):
            if one is method:
                one(*batch(2), LATE)
            one.before_step()
            one(*batch(), LATE)
            one.after_step(LATE)
        torch.testing.assert_close(method.state_dict(), expected.state_dict())


@pytest.mark.parametrize("queue_size", [1, 2, 4, 5, 7])
def test_moco_queue_takes_any_batch(queue_size: int) -> None:
    """It always holds the newest keys, like a deque, however the batches divide it."""
    method = moco(queue_size)
    newest = list(torch.zeros(queue_size, 4))
    method.queue.zero_()
    for size in (3, 1, 6, 3, 2):
        keys = F.normalize(torch.randn(size, 4), dim=1)
        method._enqueue(keys)
        newest = [*newest, *keys][-queue_size:]
    oldest_first = torch.roll(method.queue, -int(method.pointer), dims=0)
    torch.testing.assert_close(oldest_first, torch.stack(newest))


def test_moco_starts_with_random_unit_vectors() -> None:
    method = moco(queue_size=64)
    torch.testing.assert_close(method.queue.norm(dim=1), torch.ones(64))
    assert method.queue.mean(dim=0).norm() < 0.5


def test_swav_prototypes_are_unit_vectors_without_bias() -> None:
    method = SwAV(encoder(), setting(), prototypes=7, hidden=16, out=4)
    assert [name for name, _ in method.prototypes.named_parameters()] == ["weight"]
    with torch.no_grad():
        method.prototypes.weight.mul_(3)
    directions = F.normalize(method.prototypes.weight.detach(), dim=1)
    views, *rest = batch()
    loss = method(views, *rest, LATE)["loss"]
    torch.testing.assert_close(method.prototypes.weight.detach(), directions)
    scores = F.normalize(method.head(method.encode(views)), dim=-1) @ directions.T
    torch.testing.assert_close(loss, swapped_prediction(scores, 0.1, 0.05, 3))


def last_layer(method: SwAV | DINO) -> Tensor:
    return method.prototypes.weight if isinstance(method, SwAV) else method.head.directions.weight


@pytest.mark.parametrize("kind", [SwAV, DINO])
@pytest.mark.parametrize(("progress", "free"), [(0.0, False), (0.0999, False), (0.1, True), (0.9, True)])
def test_the_last_layer_is_frozen_in_the_first_epoch(kind: type[SwAV | DINO], progress: float, free: bool) -> None:
    method: SwAV | DINO
    if kind is SwAV:
        method = SwAV(encoder(), setting(), prototypes=7, hidden=16, out=4)
    else:
        method = DINO(encoder(), setting(), outputs=7, hidden=16, bottleneck=4)
    method(*batch(), torch.tensor(progress))["loss"].backward()
    gradient = last_layer(method).grad
    assert gradient is not None
    assert (gradient.abs().max() > 1e-6) == free
    reached = next(method.encoder.parameters()).grad
    assert reached is not None
    assert reached.abs().max() > 0


def test_byol_target_follows_after_the_step() -> None:
    method = BYOL(encoder(), setting(), hidden=16, out=4)
    disturb(method.encoder)
    disturb(method.projector)
    slow = [*method.target_encoder.parameters(), *method.target_projector.parameters()]
    fast = [*method.encoder.parameters(), *method.projector.parameters()]
    before = [p.clone() for p in slow]
    method(*batch(), LATE)
    torch.testing.assert_close(slow, before)
    method.after_step(LATE)
    torch.testing.assert_close(slow, [0.99 * s + 0.01 * f for s, f in zip(before, fast, strict=True)])


def test_byol_predicts_the_target_of_the_other_view() -> None:
    method = BYOL(encoder(), setting(), hidden=16, out=4, head_norm="layer")
    disturb(method.target_projector)
    views, *rest = batch()
    prediction = F.normalize(method.predictor(method.projector(method.encode(views))), dim=-1)
    target = F.normalize(method.target_projector(method.run_encoder(method.target_encoder, views)), dim=-1)
    expected = (4 - 2 * (prediction[:, 0] * target[:, 1] + prediction[:, 1] * target[:, 0]).sum(dim=1)).mean()
    torch.testing.assert_close(method(views, *rest, LATE)["loss"], expected)


def test_byol_offers_a_norm_for_one_instance() -> None:
    with pytest.raises(InputError, match="head_norm=layer"):
        BYOL(encoder(), setting(batch_size=1), hidden=16)
    for method, views in (
        (BYOL(encoder(), setting(batch_size=1), hidden=16, head_norm="layer"), 2),
        (BYOL(encoder(), setting(batch_size=1, num_views=3), hidden=16), 3),  # three rows are enough
    ):
        method(*batch(1, views), LATE)["loss"].backward()
        gradient = next(method.encoder.parameters()).grad
        assert gradient is not None
        assert gradient.abs().max() > 1e-4


def test_batch_norm_over_two_rows_passes_next_to_no_gradient() -> None:
    """The reason for refusing B·V = 2: hidden units are ±1 whatever the input; LayerNorm is not affected."""
    torch.manual_seed(0)
    passed = {}
    for norm in ("batch", "layer"):
        head, z = ProjectionHead([4, 8, 3], norm), (30 * torch.randn(1, 2, 4)).requires_grad_()
        hidden = head.layers[:2](z.flatten(0, 1))
        head(z).square().sum().backward()
        assert z.grad is not None
        passed[norm] = z.grad.abs().max().item()
        assert bool(((hidden.abs() - 1).abs() < 0.01).all()) == (norm == "batch")
    assert passed["batch"] < 0.01 * passed["layer"]


@pytest.mark.parametrize("kind", [SimCLR, SwAV, BYOL, VICReg])
def test_an_unknown_head_norm_names_the_known_ones(kind: type[SimCLR | SwAV | BYOL | VICReg]) -> None:
    with pytest.raises(InputError, match="batch, layer, none"):
        kind(encoder(), setting(), head_norm="butch")


def test_vicreg_weighs_25_25_1() -> None:
    terms = VICReg(encoder(), setting(), hidden=16)(*batch(), LATE)
    expected = 25 * terms["invariance"] + 25 * terms["variance"] + terms["covariance"]
    torch.testing.assert_close(terms["loss"].detach(), expected)


def dino() -> DINO:
    return DINO(encoder(), setting(), outputs=7, hidden=16, bottleneck=4)


@pytest.mark.parametrize(("progress", "temperature"), [(0.0, 0.04), (0.15, 0.055), (0.3, 0.07), (1.0, 0.07)])
def test_dino_teacher_temperature(progress: float, temperature: float) -> None:
    assert dino().temperature_at(torch.tensor(progress)).item() == pytest.approx(temperature)


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 1.0])
def test_dino_teacher_follows_by_a_cosine(progress: float) -> None:
    momentum = 1 - 0.004 * (math.cos(math.pi * progress) + 1) / 2
    method = dino()
    method(*batch(), LATE)
    disturb(method.encoder)
    disturb(method.head)
    slow = [*method.teacher_encoder.parameters(), *method.teacher_head.parameters()]
    fast = [*method.encoder.parameters(), *method.head.parameters()]
    expected = [momentum * s + (1 - momentum) * f for s, f in zip(slow, fast, strict=True)]
    method.after_step(torch.tensor(progress))
    torch.testing.assert_close(slow, expected)


def test_dino_moves_the_centre_after_the_loss() -> None:
    method = dino()
    method.centre.normal_()
    before = method.centre.clone()
    views, *rest = batch()
    student = method.head(method.encode(views))
    teacher = method.teacher_head(method.run_encoder(method.teacher_encoder, views))
    loss = method(views, *rest, LATE)["loss"]
    torch.testing.assert_close(loss, self_distillation(student, teacher, before, 0.07, 0.1))
    torch.testing.assert_close(method.centre, before)
    method.after_step(LATE)
    torch.testing.assert_close(method.centre, 0.9 * before + 0.1 * teacher.mean(dim=(0, 1)).detach())


def test_dino_outputs_are_cosines() -> None:
    head = dino().head
    z = torch.randn(2, 2, 8)
    outputs = head(z)
    disturbed = 5 * torch.rand(7, 1) + 0.1
    with torch.no_grad():
        head.directions.weight.mul_(disturbed)  # the gain of every output is fixed at 1
    torch.testing.assert_close(head(z), outputs)
    unit = F.normalize(head.layers(z), dim=-1)
    torch.testing.assert_close(outputs[..., 0], unit @ F.normalize(head.directions.weight[0], dim=0))


def test_dino_clips_the_gradient_at_3() -> None:
    assert DINO.max_gradient_norm == 3


def test_diet_classifies_instances_by_their_index() -> None:
    method = DIET(encoder(), setting())
    assert [name for name, _ in method.classifier.named_parameters()] == ["weight"]
    views, index, label = batch()
    losses = []
    for i, own in enumerate(index.tolist()):
        for view in views[i]:
            log_probability = (method.classifier.weight @ method.encoder(view[None])[0]).log_softmax(dim=0)
            losses.append(-0.2 * log_probability[own] - 0.8 * log_probability.mean())
    torch.testing.assert_close(method(views, index, label, LATE)["loss"], torch.stack(losses).mean())


def test_cross_entropy_classifies_all_views() -> None:
    method = CrossEntropy(encoder(), setting())
    views, index, label = batch()
    losses = []
    for i, own in enumerate(label.tolist()):
        for view in views[i]:
            losses.append(-method.classifier(method.encoder(view[None]))[0].log_softmax(dim=0)[own])
    torch.testing.assert_close(method(views, index, label, LATE)["loss"], torch.stack(losses).mean())
