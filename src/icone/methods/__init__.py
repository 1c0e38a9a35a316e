"""The methods by name, and what it takes to add one (see CONTRIBUTING.md)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icone.methods.base import Learning, Method, Setting
    from icone.methods.icone import IConE
    from icone.methods.ranges import Count, Names, Positive, Range, Share, Weight
    from icone.methods.registry import (
        METHODS,
        build_method,
        chosen_options,
        method_class,
        method_options,
        option_ranges,
        option_texts,
        parse_options,
        register,
    )
    from icone.nn import AnchorTable, IConELoss

__all__ = [
    "METHODS",
    "AnchorTable",
    "Count",
    "IConE",
    "IConELoss",
    "Learning",
    "Method",
    "Names",
    "Positive",
    "Range",
    "Setting",
    "Share",
    "Weight",
    "build_method",
    "chosen_options",
    "method_class",
    "method_options",
    "option_ranges",
    "option_texts",
    "parse_options",
    "register",
]

# Imported at first use, so that `icone methods` does not wait for PyTorch.
_HOME = {
    "AnchorTable": "icone.nn",
    "IConELoss": "icone.nn",
    "IConE": "icone.methods.icone",
    **dict.fromkeys(("Learning", "Method", "Setting"), "icone.methods.base"),
    **dict.fromkeys(("Count", "Names", "Positive", "Range", "Share", "Weight"), "icone.methods.ranges"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(_HOME.get(name, "icone.methods.registry")), name)
