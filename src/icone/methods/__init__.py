"""All methods by name. Adding one: its file, its line here, its parity test (see CONTRIBUTING.md)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from icone.errors import InputError, unknown_name
from icone.methods.base import Method, Setting
from icone.methods.byol import BYOL
from icone.methods.cross_entropy import CrossEntropy
from icone.methods.diet import DIET
from icone.methods.dino import DINO
from icone.methods.icone import IConE
from icone.methods.icone_class import IConEClass
from icone.methods.icone_instance import IConEInstance
from icone.methods.moco import MoCo
from icone.methods.simclr import SimCLR
from icone.methods.supcon import SupCon
from icone.methods.swav import SwAV
from icone.methods.vicreg import VICReg
from icone.nn import AnchorTable, IConELoss

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


class Range(NamedTuple):
    """The numbers that an option may have."""

    low: float
    high: float
    words: str
    above: bool = False
    """Whether `low` itself is too small."""

    def holds(self, value: float) -> bool:
        """Whether a number lies in the range; one that is not finite never does."""
        return math.isfinite(value) and self.low <= value <= self.high and not (self.above and value == self.low)


MOST = 10_000_000
COUNT = Range(1, MOST, f"a whole number from 1 to {MOST:,}")
WEIGHT = Range(0, math.inf, "0 or more, and finite")
POSITIVE = Range(0, math.inf, "above 0, and finite", above=True)
SHARE = Range(0, 1, "between 0 and 1")
RANGES: dict[str, Range] = {
    **dict.fromkeys(("hidden", "out", "outputs", "bottleneck", "queue_size", "prototypes", "iterations"), COUNT),
    **dict.fromkeys(("view_weight", "anchor_weight", "diversity_weight"), WEIGHT),
    **dict.fromkeys(("invariance_weight", "variance_weight", "covariance_weight"), WEIGHT),
    **dict.fromkeys(("temperature", "student_temperature", "first_teacher_temperature"), POSITIVE),
    **dict.fromkeys(("teacher_temperature", "epsilon", "init_std"), POSITIVE),
    **dict.fromkeys(("momentum", "centre_momentum", "warmup", "label_smoothing", "class_share"), SHARE),
    "icone.out": Range(0, MOST, f"a whole number from 0 (no projection head) to {MOST:,}"),
}
"""What the numbers among the options may be, by name; a method whose option differs has an entry of its own."""


def build_method(
    name: str, encoder: nn.Module, setting: Setting, options: Sequence[str] = (), recipe: str = "icone"
) -> Method:
    """Build a method by name; `options` are its own settings as `name=value`.

    An option that the method cannot use is an `InputError`.
    """
    own: dict[str, Any] = chosen_options(name, options, recipe)
    return method_class(name)(encoder, setting, **own)


def method_class(name: str) -> type[Method]:
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def register(method: type[Method]) -> str:
    """Make a method of your own known by its `name`, which is returned; another one of that name is refused."""
    known = METHODS.setdefault(method.name, method)
    if known is not method and _qualified(known) != _qualified(method):
        raise InputError(f"there is a method named {method.name} already ({_qualified(known)}): choose another name")
    METHODS[method.name] = method  # a notebook defines the same class again
    return method.name


def _qualified(method: type[Method]) -> str:
    return f"{method.__module__}.{method.__qualname__}"


def method_options(name: str) -> dict[str, object]:
    """Names and defaults of a method's own settings: the keyword-only arguments of its constructor."""
    parameters = inspect.signature(method_class(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def chosen_options(name: str, options: Sequence[str], recipe: str) -> dict[str, object]:
    """All of a method's settings: its defaults, what the recipe changes, what is given."""
    by_recipe = method_class(name).paper_options if recipe == "paper" else {}
    return {**method_options(name), **by_recipe, **parse_options(name, options)}


def parse_options(name: str, options: Sequence[str]) -> dict[str, object]:
    """Read `name=value` texts by the types of the defaults, and refuse numbers outside of their `RANGES`.

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
        _check(name, key, parsed[key])
    return parsed


def _check(name: str, key: str, value: object) -> None:
    if isinstance(value, (bool, str)):  # names are looked up by the constructors, which know them
        return
    assert isinstance(value, (int, float))
    allowed = RANGES.get(f"{name}.{key}") or RANGES.get(key)
    if allowed is not None and not allowed.holds(value):
        raise InputError(f"method option {key}={value} of {name} must be {allowed.words}")


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
    "register",
]
