"""All methods by name, and their options. Adding one: its file and its line here (see CONTRIBUTING.md)."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torch import nn

from icone.errors import OWN_CODE, InputError, unknown_name
from icone.methods.base import Method, Setting
from icone.methods.byol import BYOL
from icone.methods.capabilities import Option
from icone.methods.cross_entropy import CrossEntropy
from icone.methods.dcl import DCL
from icone.methods.diet import DIET
from icone.methods.dino import DINO
from icone.methods.icone import IConE
from icone.methods.icone_class import IConEClass
from icone.methods.icone_instance import IConEInstance
from icone.methods.lejepa import LeJEPA
from icone.methods.mae import MAE
from icone.methods.moco import MoCo
from icone.methods.npid import NPID
from icone.methods.ranges import Names, Range
from icone.methods.simclr import SimCLR
from icone.methods.simmim import SimMIM
from icone.methods.sogclr import SogCLR
from icone.methods.supcon import SupCon
from icone.methods.swav import SwAV
from icone.methods.vicreg import VICReg

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        IConE,
        SimCLR,
        MoCo,
        SwAV,
        BYOL,
        VICReg,
        DINO,
        DIET,
        CrossEntropy,
        SupCon,
        IConEClass,
        IConEInstance,
        MAE,
        SimMIM,
        NPID,
        SogCLR,
        LeJEPA,
        DCL,
    )
}
"""In the order of tables and legends; the position in it gives a method its colour and marker."""

MethodClass = TypeVar("MethodClass", bound=type[Method])


def register(method: MethodClass) -> MethodClass:
    """Add a method of your own under its `name`; can be used as a decorator of its class.

    From then on `icone.pretrain(method=name)`, `icone methods` and the paper's experiments find it in this process.
    """
    missing = [name for name in ("name", "title", "prevents_collapse") if not hasattr(method, name)]
    if missing:
        raise InputError(f"{method.__name__} must set {', '.join(missing)} to be registered as a method")
    known = METHODS.get(method.name, method)
    if _qualified(known) != _qualified(method):  # a notebook may define the same class again
        raise InputError(f"there is a method {method.name} already: give {method.__name__} another name")
    METHODS[method.name] = method
    return method


def _qualified(method: type[Method]) -> str:
    return f"{method.__module__}.{method.__qualname__}"


def build_method(
    name: str, encoder: nn.Module, setting: Setting, options: Sequence[str] = (), recipe: str = "icone"
) -> Method:
    """Build a method by name; `options` are its own settings as `name=value`.

    An option that the method cannot use is an `InputError`.
    """
    own: dict[str, Any] = chosen_options(name, options, recipe)
    return method_class(name)(encoder, setting, **own)


def method_class(name: str) -> type[Method]:
    """The method of this name, or an `InputError` that lists the names there are."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS, OWN_CODE)
    return METHODS[name]


def method_options(name: str) -> dict[str, object]:
    """Names and defaults of a method's own settings: the keyword-only arguments of its constructor."""
    parameters = inspect.signature(method_class(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def option_ranges(name: str) -> dict[str, Range]:
    """The ranges that a method's constructor names in its annotations, such as `temperature: Positive = 0.5`."""
    hints = typing.get_type_hints(method_class(name).__init__, include_extras=True)
    return {key: r for key, hint in hints.items() for r in getattr(hint, "__metadata__", ()) if isinstance(r, Range)}


def described_options(name: str) -> list[Option]:
    """A method's own settings for a reader, by the annotations of its constructor: type, values and a sentence each.

    >>> described_options("diet")[0].allowed
    'a number between 0 and 1'
    """
    hints = typing.get_type_hints(method_class(name).__init__, include_extras=True)
    described = []
    for key, default in method_options(name).items():
        marks = getattr(hints.get(key), "__metadata__", ())
        text = " ".join(mark for mark in marks if isinstance(mark, str))
        assert isinstance(default, (bool, int, float, str)), f"{name}.{key} has no plain default"
        words = [mark.words for mark in marks if isinstance(mark, (Range, Names))] or [_TYPES[type(default)]]
        described.append(Option(key, default, words[0], text))
    return described


_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def chosen_options(name: str, options: Sequence[str], recipe: str) -> dict[str, object]:
    """All of a method's settings: its defaults, what the recipe changes, what is given."""
    by_recipe = method_class(name).paper_options if recipe == "paper" else {}
    return {**method_options(name), **by_recipe, **parse_options(name, options)}


def option_texts(options: Mapping[str, object]) -> tuple[str, ...]:
    """Options as `name=value`, as a configuration and the command line hold them: what `parse_options` reads.

    >>> option_texts({"hidden": 32, "head_norm": "layer"})
    ('hidden=32', 'head_norm=layer')
    """
    return tuple(f"{name}={value}" for name, value in options.items())


def parse_options(name: str, options: Sequence[str]) -> dict[str, object]:
    """Read `name=value` texts by the types of the defaults, and refuse numbers outside of their ranges.

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
    allowed = option_ranges(name).get(key)
    if allowed is not None and not allowed.holds(value):
        raise InputError(f"method option {key}={value} of {name} must be {allowed.words}")


def _parse(key: str, text: str, kind: type) -> object:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return words[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise InputError(f"method option {key}={text}: {text!r} is no {kind.__name__}") from None
