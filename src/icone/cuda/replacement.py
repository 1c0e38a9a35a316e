"""Replacing layers of a network by faster ones that share their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def replace_layers(
    network: nn.Module, replacement: Callable[[nn.Module], nn.Module | None]
) -> dict[nn.Module, nn.Module]:
    """Replace the layers below a network for which `replacement` gives another layer.

    A layer that is used at several places is replaced once, by the same object. The network itself is never replaced.
    Only networks of our own may be given, such as the copy that a run trains: the network is changed in place, though
    the layers that leave it are not. The result has the old layer of every new one, so that
    `replace_layers(network, result.get)` puts the old ones back.

    >>> shared = nn.Linear(2, 2)
    >>> network = nn.Sequential(shared, nn.ReLU(), shared)
    >>> old = replace_layers(network, lambda layer: nn.Identity() if layer is shared else None)
    >>> network[0] is network[2], network[0]
    (True, Identity())
    >>> _ = replace_layers(network, old.get)
    >>> network[0] is network[2] is shared
    True
    """
    below = (layer for layer in network.modules() if layer is not network)
    found = {layer: new for layer in below if (new := replacement(layer)) is not None}
    for path, layer in list(network.named_modules(remove_duplicate=False)):
        if path and layer in found:
            network.set_submodule(path, found[layer])
    return {new: layer for layer, new in found.items()}


def replace_classes(network: nn.Module, kinds: Mapping[type[nn.Module], type[nn.Module]]) -> None:
    """Replace layers of exactly these classes in a network of our own by layers that `rebuilt_as` makes."""
    replace_layers(network, lambda layer: rebuilt_as(kinds[type(layer)], layer) if type(layer) in kinds else None)


def rebuilt_as(kind: type[Layer], layer: nn.Module) -> Layer:
    """A new layer with the parameters, buffers, submodules, hooks, settings and mode of another one.

    Its class must be a subclass or base class of the other's that adds nothing to the constructor. The constructor is
    not called, because it would take memory and draw random numbers.

    >>> dropout = nn.Dropout(0.3).eval()
    >>> rebuilt_as(nn.AlphaDropout, dropout), rebuilt_as(nn.AlphaDropout, dropout).training
    (AlphaDropout(p=0.3, inplace=False), False)
    """
    new = kind.__new__(kind)
    new.__dict__.update(
        {name: copy(value) if isinstance(value, dict) else value for name, value in vars(layer).items()}
    )
    return new
