"""What the Tab key completes besides verbs and flags: names of encoders and methods, which the parser leaves open."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Annotated, Any, Literal

import timm
import tyro

from icone.cli.help_text import field_texts
from icone.encoders.registry import ENCODERS
from icone.methods import METHODS


@cache
def known_names() -> dict[str, tuple[str, ...]]:
    """The names that a flag takes, by its field: those of the registries, and all of timm's encoders."""
    own = {name for encoders in ENCODERS.values() for name in encoders}
    return {"encoder": ("auto", *sorted({*own, *timm.list_models()})), "method": tuple(sorted(METHODS))}


def for_completion(kind: type[Any]) -> type[Any]:
    """A verb as the script for a shell needs it, which nothing else is parsed with.

    Its flags list the names that are known, though others are allowed, and every help text is one line: the script of
    tyro would offer the further lines as words to type.
    """
    hints, texts = typing.get_type_hints(kind, include_extras=True), field_texts(kind)
    annotated: Any = Annotated  # of a type that is made here
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        hint, default = hints[field.name], field.default
        if getattr(hint, "__metadata__", ()):  # words without a flag, and what is hidden
            continue
        if dataclasses.is_dataclass(hint):
            hint = for_completion(typing.cast(type, hint))
            default = hint()
        elif field.name in known_names():
            hint = Literal[known_names()[field.name]]
        helped = annotated[hint, tyro.conf.arg(help=texts.get(field.name, ""))]
        needed = default is dataclasses.MISSING
        fields.append((field.name, helped) if needed else (field.name, helped, dataclasses.field(default=default)))
    about = {"__doc__": kind.__doc__}
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), namespace=about, frozen=True, kw_only=True)
