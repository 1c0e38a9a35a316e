"""All methods by name. Adding one: its file, its line here, its parity test (see CONTRIBUTING.md)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from icone.errors import InputError, unknown_name
from icone.methods.base import Method, Setting, total
from icone.methods.byol import BYOL
from icone.methods.cross_entropy import CrossEntropy
from icone.methods.diet import DIET
from icone.methods.dino import DINO
from icone.methods.icone import AnchorTable, IConE, IConELoss
from icone.methods.icone_class import IConEClass
from icone.methods.icone_instance import IConEInstance
from icone.methods.moco import MoCo
from icone.methods.simclr import SimCLR
from icone.methods.supcon import SupCon
from icone.methods.swav import SwAV
from icone.methods.vicreg import VICReg

METHODS: dict[str, type[Method]] = {
    "icone": IConE,
    "simclr": SimCLR,
    "moco": MoCo,
    "swav": SwAV,
    "byol": BYOL,
    "vicreg": VICReg,
    "dino": DINO,
    "diet": DIET,
    "cross_entropy": CrossEntropy,
    "supcon": SupCon,
    "icone_class": IConEClass,
    "icone_instance": IConEInstance,
}


def build_method(
    name: str, encoder: nn.Module, setting: Setting, options: Sequence[str] = (), recipe: str = "icone"
) -> Method:
    """Build a method by name; `options` are its own settings as `name=value`."""
    own: dict[str, Any] = chosen_options(name, options, recipe)
    return method_class(name)(encoder, setting, **own)


def method_class(name: str) -> type[Method]:
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def method_options(name: str) -> dict[str, object]:
    """Names and defaults of a method's own settings: the keyword-only arguments of its constructor."""
    parameters = inspect.signature(method_class(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def chosen_options(name: str, options: Sequence[str], recipe: str) -> dict[str, object]:
    """All of a method's settings: its defaults, what the recipe changes, what is given."""
    by_recipe = method_class(name).paper_options if recipe == "paper" else {}
    return {**method_options(name), **by_recipe, **parse_options(name, options)}


def parse_options(name: str, options: Sequence[str]) -> dict[str, object]:
    """Read `name=value` texts by the types of the defaults.

    >>> parse_options("icone", ["view_weight=0", "decay_anchors=false", "diversity=sigreg"])
    {'view_weight': 0.0, 'decay_anchors': False, 'diversity': 'sigreg'}
    """
    defaults = method_options(name)
    parsed: dict[str, object] = {}
    for option in options:
        key, separator, text = option.partition("=")
        if not separator:
            raise InputError(f"method option {option!r} is not of the form name=value")
        if key not in defaults:
            raise unknown_name(f"option of {name}", key, defaults)
        parsed[key] = _parse(key, text, type(defaults[key]))
    return parsed


def _parse(key: str, text: str, kind: type) -> object:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return words[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise InputError(f"method option {key}={text}: {text!r} is no {kind.__name__}") from None


__all__ = [
    "METHODS",
    "AnchorTable",
    "IConE",
    "IConELoss",
    "Method",
    "Setting",
    "build_method",
    "method_class",
    "method_options",
    "parse_options",
    "total",
]
