"""Replacing layers leaves parameters, names, mode and hooks as they were."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from icone.cuda.replacement import rebuilt_as, replace_classes, replace_layers


class Doubled(nn.Linear):
    """A layer whose results tell it from the one that it replaces."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Outer(nn.Sequential):
    """A layer with layers inside."""


def test_a_rebuilt_layer_shares_everything_but_its_class() -> None:
    layer = nn.BatchNorm1d(3).eval()
    calls: list[nn.Module] = []
    layer.register_forward_hook(lambda module, *_: calls.append(module))
    new = rebuilt_as(nn.SyncBatchNorm, layer)
    assert all(getattr(new, name) is tensor for name, tensor in layer.state_dict(keep_vars=True).items())
    assert list(new.state_dict()) == list(layer.state_dict())
    assert not new.training
    x = torch.randn(4, 3)
    assert torch.equal(new(x), layer(x))
    assert calls == [new, layer]


def test_a_layer_at_several_places_is_replaced_once_by_the_same_object() -> None:
    shared = nn.Linear(4, 4)
    network = nn.ModuleDict({"a": nn.Sequential(shared, shared), "b": shared, "c": nn.Linear(4, 4)})
    old = replace_layers(network, lambda layer: rebuilt_as(Doubled, layer) if type(layer) is nn.Linear else None)
    inner: Any = network["a"]
    assert inner[0] is inner[1] is network["b"]
    assert network["c"] is not network["b"]
    assert old[network["b"]] is shared
    assert sorted(network.state_dict()) == sorted(
        f"{p}.{n}" for p in ("a.0", "a.1", "b", "c") for n in ("weight", "bias")
    )
    replace_layers(network, old.get)
    assert inner[0] is inner[1] is network["b"] is shared


def test_layers_inside_replaced_layers_are_replaced_and_the_old_ones_stay_whole() -> None:
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(inner)
    network = nn.Sequential(outer)
    replace_classes(network, {nn.Sequential: Outer, nn.Linear: Doubled})
    assert [type(m) for m in network.modules()] == [nn.Sequential, Outer, Doubled]  # the network itself stays
    assert outer[0] is inner
    x = torch.randn(3, 2)
    assert torch.equal(network(x), 2 * outer(x))


def test_only_these_classes_are_replaced() -> None:
    network = nn.Sequential(Doubled(2, 2), nn.Linear(2, 2))
    replace_classes(network, {Doubled: nn.Linear})
    assert [type(m) for m in network] == [nn.Linear, nn.Linear]
    replace_classes(network, {nn.Module: Doubled})
    assert [type(m) for m in network] == [nn.Linear, nn.Linear]
