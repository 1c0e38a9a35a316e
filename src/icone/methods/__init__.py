"""The methods by name, and what it takes to add one (see CONTRIBUTING.md)."""

from icone.methods.base import Learning, Method, Setting
from icone.methods.icone import IConE
from icone.methods.ranges import Count, Positive, Range, Share, Weight
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
