"""What every method promises, checked for all of them on points, images and volumes."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from icone.encoders import build_encoder, num_features
from icone.errors import InputError
from icone.methods import METHODS, Method, Setting, build_method, method_options, option_texts, parse_options

INSTANCES, CLASSES, EPOCHS = 7, 3, 10
SAMPLE_SHAPES = {"points": (5,), "image": (1, 64, 64), "tokens": (1, 64, 64), "volume": (1, 16, 16, 16)}
KINDS = {
    "features": ("points", "image", "volume"),
    "feature map": ("volume", "image", "tokens"),
    "tokens": ("tokens",),
}
"""Encoders by what a method reads of them; the first is what it is tested with where one is enough."""

ALL = pytest.mark.parametrize("name", list(METHODS))
WITH_EVERY_ENCODER = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, method in METHODS.items() for kind in KINDS[method.reads]]
)


def simplest(name: str) -> str:
    return KINDS[METHODS[name].reads][0]


def make_encoder(kind: str) -> nn.Module:
    if kind == "points":
        return build_encoder(in_channels=5, spatial_dims=0, features=16)
    if kind == "image":  # with BatchNorm
        return build_encoder("test_resnet", in_channels=1, spatial_dims=2, size=64)
    if kind == "tokens":
        return build_encoder("test_vit", in_channels=1, spatial_dims=2, size=64)
    return build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=16, width=0.125, features=16, norm="group")


def small_options(name: str) -> tuple[str, ...]:
    """Heads of a size that a test can afford; everything else stays at its default."""
    return option_texts(METHODS[name].small_options)


def make_setting(batch_size: int, num_views: int = 2, kind: str = "points") -> Setting:
    return Setting(
        sample_shape=SAMPLE_SHAPES[kind],
        num_instances=INSTANCES,
        batch_size=batch_size,
        num_views=num_views,
        epochs=EPOCHS,
        labels=torch.arange(INSTANCES) % CLASSES,
        num_classes=CLASSES,
    )


def make_method(name: str, kind: str | None = None, batch_size: int = 4, num_views: int = 2) -> Method:
    torch.manual_seed(0)
    kind = kind or simplest(name)
    return build_method(name, make_encoder(kind), make_setting(batch_size, num_views, kind), small_options(name))


def make_batch(kind: str, batch_size: int, num_views: int = 2, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(batch_size, num_views, *SAMPLE_SHAPES[kind], generator=generator)
    index = torch.randperm(INSTANCES, generator=generator)[:batch_size]
    return views, index, index % CLASSES


def step(method: Method, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, ...], progress: float) -> Tensor:
    """One training step as the loop does it; returns the loss."""
    at = torch.tensor(progress)
    optimizer.zero_grad()
    loss = method(*batch, at)["loss"]
    loss.backward()
    optimizer.step()
    method.after_step(at)
    value: Tensor = loss.detach()
    return value


def train(method: Method, kind: str, batch_size: int, steps: range) -> list[Tensor]:
    """Train on batches drawn from the numbers of the steps, with the random numbers of each step fixed."""
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for i in steps:
        torch.manual_seed(i)
        losses.append(step(method, optimizer, make_batch(kind, batch_size, seed=i), progress=0.05 + i / 10))
    return losses


@WITH_EVERY_ENCODER
def test_smallest_batch_is_finite_and_reaches_the_encoder(name: str, kind: str) -> None:
    smallest = METHODS[name].min_batch_size
    method = make_method(name, kind, smallest)
    terms = method(*make_batch(kind, smallest), torch.tensor(0.5))
    assert all(term.ndim == 0 and term.isfinite() for term in terms.values())
    assert [term.requires_grad for term in terms.values()] == [True] + [False] * (len(terms) - 1)
    terms["loss"].backward()
    gradients = [p.grad for p in method.encoder.parameters() if p.grad is not None]
    assert all(g.isfinite().all() for g in gradients)
    assert sum(float(g.abs().sum()) for g in gradients) > 1e-5


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].min_batch_size > 1])
def test_below_the_smallest_batch_it_says_why(name: str) -> None:
    smallest = METHODS[name].min_batch_size
    with pytest.raises(InputError, match=f"{name} needs a batch size of {smallest} or more, got .*: .{{20}}"):
        make_method(name, batch_size=smallest - 1)


def test_smallest_batches_are_the_ones_of_the_literature() -> None:
    assert {name for name in METHODS if METHODS[name].min_batch_size > 1} == {
        "simclr",
        "swav",
        "byol",
        "vicreg",
        "supcon",
        "sogclr",
        "lejepa",
        "dcl",
    }


@ALL
def test_one_view_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="views must be at least 2"):
        make_method(name, num_views=1)


@ALL
def test_asks_for_labels_only_where_it_needs_them(name: str) -> None:
    kind = simplest(name)
    unlabelled = Setting(num_instances=INSTANCES, batch_size=4, sample_shape=SAMPLE_SHAPES[kind])
    encoder = make_encoder(kind)
    if METHODS[name].needs_labels:
        with pytest.raises(InputError, match="needs a label"):
            build_method(name, encoder, unlabelled)
    else:
        build_method(name, encoder, unlabelled, small_options(name))


@WITH_EVERY_ENCODER
def test_state_round_trips_to_the_same_losses(name: str, kind: str) -> None:
    method = make_method(name, kind)
    train(method, kind, 4, range(2))
    saved = copy.deepcopy(method.state_dict())
    ahead = train(method, kind, 4, range(2, 4))

    torch.manual_seed(99)  # other initial weights, queues, copies
    restored = build_method(name, make_encoder(kind), make_setting(4, kind=kind), small_options(name))
    restored.load_state_dict(saved)
    assert train(restored, kind, 4, range(2, 4)) == ahead


@ALL
def test_same_seed_same_losses(name: str) -> None:
    first, second = (train(make_method(name), simplest(name), 4, range(3)) for _ in range(2))
    assert first == second


@WITH_EVERY_ENCODER
def test_short_last_batch_trains(name: str, kind: str) -> None:
    method = make_method(name, kind, batch_size=4)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.01)
    for batch_size in (4, 3, method.smallest_batch, 4):
        names = method(*make_batch(kind, batch_size), torch.tensor(0.5)).keys()
        assert names == method(*make_batch(kind, 4), torch.tensor(0.5)).keys()
        loss = step(method, optimizer, make_batch(kind, batch_size), progress=0.5)
        assert loss.isfinite()
    assert all(p.isfinite().all() for p in method.parameters())


@ALL
def test_takes_more_than_two_views(name: str) -> None:
    method = make_method(name, num_views=4)
    loss = method(*make_batch(simplest(name), 4, num_views=4), torch.tensor(0.5))["loss"]
    loss.backward()
    assert loss.isfinite()


@ALL
def test_never_waits_for_the_device(name: str, no_host_traffic: type[TorchDispatchMode]) -> None:
    method = make_method(name)
    batch, progress = make_batch(simplest(name), 4), torch.tensor(0.5)
    with no_host_traffic():
        method(*batch, progress)["loss"].backward()
        method.after_step(progress)


@ALL
def test_encoder_needs_no_index_and_is_the_one_given(name: str) -> None:
    method = make_method(name)
    before = copy.deepcopy(method.encoder)
    train(method, simplest(name), 4, range(2))
    x = torch.randn(3, *SAMPLE_SHAPES[simplest(name)])
    assert method.encoder(x).shape == (3, num_features(before))
    assert not torch.equal(method.encoder(x), before(x))


@ALL
def test_the_encoders_are_the_one_given_and_its_moving_copies(name: str) -> None:
    """Not a head or classifier that happens to be of the encoder's type."""
    encoder: nn.Module = nn.Linear(5, 16)
    encoder.num_features = 16  # type: ignore[assignment]
    kind = simplest(name)
    encoder = encoder if kind == "points" else make_encoder(kind)
    method = build_method(name, encoder, make_setting(4, kind=kind), small_options(name))
    copies = [
        child for part, child in method.named_children() if part in ("key_encoder", "target_encoder", "teacher_encoder")
    ]
    assert len(copies) == (name in {"moco", "byol", "dino"})
    found, expected = method.encoders(), [encoder, *copies]
    assert len(found) == len(expected)
    assert all(one is other for one, other in zip(found, expected, strict=True))


@ALL
def test_options_parse_and_have_typed_defaults(name: str) -> None:
    defaults = method_options(name)
    assert all(isinstance(default, bool | int | float | str) for default in defaults.values())
    texts = [f"{key}={value}" for key, value in defaults.items()]
    assert parse_options(name, texts) == defaults
    with pytest.raises(InputError, match="unknown option"):
        parse_options(name, ["no_such_option=1"])


@ALL
def test_per_instance_tables_have_one_row_per_instance(name: str) -> None:
    state = make_method(name).state_dict()
    assert all(len(state[table]) == INSTANCES for table in METHODS[name].per_instance)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_labels])
def test_methods_that_keep_classes_have_weights_for_each(name: str) -> None:
    """What is said of a method decides whether a run of it can be extended by other classes."""
    shapes = []
    for classes in (CLASSES, CLASSES + 1):
        setting = dataclasses.replace(make_setting(4), labels=torch.arange(INSTANCES) % classes, num_classes=classes)
        state = build_method(name, make_encoder(simplest(name)), setting, small_options(name)).state_dict()
        shapes.append({key: tensor.shape for key, tensor in state.items()})
    assert METHODS[name].keeps_classes == (shapes[0] != shapes[1])


@ALL
def test_copies_are_not_trained(name: str) -> None:
    """Moving copies hold no gradient, so that neither the optimizer nor clipping touches them."""
    method = make_method(name)
    method(*make_batch(simplest(name), 4), torch.tensor(0.5))["loss"].backward()
    copies = [p for n, p in method.named_parameters() if n.startswith(("key_", "target_", "teacher_"))]
    assert bool(copies) == (name in {"moco", "byol", "dino"})
    assert not any(p.requires_grad or p.grad is not None for p in copies)
