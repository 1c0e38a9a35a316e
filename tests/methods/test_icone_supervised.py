"""IConE-Class and IConE-Instance against loops over views and anchors."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.encoders import MLP
from icone.errors import InputError
from icone.methods import Setting
from icone.methods.icone_class import IConEClass
from icone.methods.icone_instance import IConEInstance

LABELS = torch.tensor([0, 1, 1, 2, 0, 1])
INDEX = torch.tensor([4, 1, 3])
PROGRESS = torch.tensor(0.5)


@pytest.fixture
def encoder() -> MLP:
    torch.manual_seed(0)
    return MLP(5, num_features=8)


@pytest.fixture
def setting() -> Setting:
    return Setting(num_instances=6, batch_size=3, labels=LABELS, num_classes=3)


@pytest.fixture
def views() -> Tensor:
    return torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(1))


def orthogonality_by_class(anchors: Tensor, labels: Tensor) -> Tensor:
    """Squared positive cosines over ordered pairs of anchors of different labels, per anchor."""
    pairs = [
        F.cosine_similarity(anchors[i], anchors[j], dim=0).clamp(min=0) ** 2
        for i, j in itertools.permutations(range(len(anchors)), 2)
        if labels[i] != labels[j]
    ]
    return torch.stack(pairs).sum() / len(anchors)


def test_class_prototypes_are_addressed_by_label(encoder: MLP, setting: Setting, views: Tensor) -> None:
    method = IConEClass(encoder, setting, view_weight=1.0)
    prototypes = method.objective.anchors.weight
    assert prototypes.shape == (3, 8)
    terms = method(views, INDEX, LABELS[INDEX], PROGRESS)
    z = encoder(views.flatten(0, 1)).unflatten(0, (3, 2))
    distances = [
        1 - F.cosine_similarity(z[i, v], prototypes[LABELS[INDEX[i]]], dim=0) for i in range(3) for v in range(2)
    ]
    torch.testing.assert_close(terms["anchor_alignment"], torch.stack(distances).mean().detach())
    torch.testing.assert_close(terms["diversity"], orthogonality_by_class(prototypes, torch.arange(3)).detach())
    expected = terms["view_consistency"] + terms["anchor_alignment"] + terms["diversity"]
    torch.testing.assert_close(terms["loss"].detach(), expected)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_instance_anchors_attract_by_class_and_repel_across(
    encoder: MLP, setting: Setting, views: Tensor, share: float
) -> None:
    method = IConEInstance(encoder, setting, class_share=share, view_weight=1.0)
    anchors = method.anchors.weight
    terms = method(views, INDEX, LABELS[INDEX], PROGRESS)
    z = encoder(views.flatten(0, 1)).unflatten(0, (3, 2))
    own, of_class, between_views = [], [], []
    for i, instance in enumerate(INDEX.tolist()):
        between_views.append(1 - F.cosine_similarity(z[i, 0], z[i, 1], dim=0))
        for view in z[i]:
            own.append(1 - F.cosine_similarity(view, anchors[instance], dim=0))
            mates = [anchors[j] for j in range(6) if LABELS[j] == LABELS[instance]]
            of_class.append(torch.stack([1 - F.cosine_similarity(view, m, dim=0) for m in mates]).mean())
    expected = (
        torch.stack(between_views).mean()
        + (1 - share) * torch.stack(own).mean()
        + share * torch.stack(of_class).mean()
        + orthogonality_by_class(anchors, LABELS)
    )
    torch.testing.assert_close(terms["loss"], expected)
    gradients = [torch.autograd.grad(loss, [anchors, *encoder.parameters()]) for loss in (terms["loss"], expected)]
    torch.testing.assert_close(*gradients)


def test_the_share_of_the_class_is_a_share(encoder: MLP, setting: Setting) -> None:
    with pytest.raises(InputError, match=r"between 0 and 1, got 1\.5"):
        IConEInstance(encoder, setting, class_share=1.5)
