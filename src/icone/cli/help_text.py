"""`--help`: what a verb does, its flags in groups, the task first and the machine last, and examples.

tyro parses the flags. Its own help follows the order of the dataclasses, which begins with the engine and the cache.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro
from rich.console import Console
from rich.text import Text

from icone.cli.examples import EXAMPLES
from icone.cli.flags import InferenceFlags
from icone.config import DataConfig, FinetuneConfig
from icone.errors import InputError, nearest_names

RUNTIME = (
    "device", "devices", "engine", "checkpoint_activations", "workers", "memory_gb", "cache", "checkpoint_seconds",
    "debug",
)  # fmt: skip
PRETRAIN_GROUPS: dict[str, tuple[str, ...]] = {
    "Task": ("source", "out", "epochs", "batch_size", "labels", "method", "config"),
    "Continue a run": ("resume", "extend", "adjust"),
    "Data": (
        "include", "exclude", "label_column", "group_column", "task", "no_labels", "channels_from", "missing_channels",
        "axes", "split", "subset", "test_fraction", "imbalance", "split_seed", "skip_unreadable", "data_root",
    ),
    "Size and intensity": (
        "size", "fit", "spacing", "crop", "crop_overlap", "tiles", "stride", "background", "channels", "colour",
        "intensity", "window",
    ),
    "Encoder": ("encoder", "weights", "norm", "width", "features", "freeze_patch_embed"),
    "Training": (
        "options", "recipe", "lr", "schedule", "weight_decay", "layer_decay", "warmup", "clip_gradient", "accumulate",
        "micro_batch", "precision", "seed", "seeds",
    ),
    "Views": ("views",),
    "Views of images": ("image_views",),
    "Views of volumes": ("volume_views",),
    "Views of points": ("point_views",),
    "Evaluation while training": ("probe_every", "stop_on_collapse", "snapshots", "log"),
    "Runtime": RUNTIME,
}  # fmt: skip
"""The flags of `pretrain`, `plan` and `inspect`; those that no group names come with the first."""
GROUPS: dict[str, tuple[str, ...]] = {
    "Options": (),
    "Training": tuple(f.name for f in dataclasses.fields(FinetuneConfig)),
    "Data": ("data", "data_root", "skip_unreadable"),
    "Runtime": RUNTIME,
}
"""The flags of all other verbs."""
INFERENCE_GROUPS = {"Options": (), "Data": GROUPS["Data"], "Runtime": ("batch_size", *RUNTIME)}
"""The flags of verbs that train nothing: a batch is what fits into memory."""
WIDEST = 100
LEFT = 26
"""Columns for the flag and its value; a longer one has a line of its own."""


class Flag(NamedTuple):
    """One flag, or one word without a flag, as the help shows it."""

    usage: str
    text: str
    is_positional: bool


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether to show help; `icone` alone asks for it too."""
    return not words or "--help" in words or "-h" in words


def show_help(words: Sequence[str], tasks: Mapping[str, Mapping[str, type[Any]]], about: str, console: Console) -> int:
    """Print the help of the verb that the words name, or that of all verbs; the result is the exit code."""
    verbs = {name: kind for task in tasks.values() for name, kind in task.items()}
    kind = verbs.get(words[0]) if words else None
    name = words[0] if kind else ""
    subverbs = getattr(kind, "VERBS", {})
    if subverbs and len(words) > 1 and words[1] in subverbs:
        kind, name, subverbs = subverbs[words[1]], f"{name} {words[1]}", {}
    width = min(console.width, WIDEST)
    if kind is None:
        lines = _verbs_lines("icone", about, tasks, width)
    elif subverbs:
        lines = _verbs_lines(f"icone {name}", _first_line(kind), {"Verbs": subverbs}, width)
    else:
        lines = _verb_lines(name, kind, width)
    for line in [*lines, *_example_lines(name)]:
        console.print(line, soft_wrap=True)
    return 0 if words else 2


def _verbs_lines(usage: str, about: str, tasks: Mapping[str, Mapping[str, type[Any]]], width: int) -> Iterator[Text]:
    yield from _paragraphs(f"Usage: {usage} VERB [OPTIONS]", width)
    yield Text()
    yield from _paragraphs(about, width)
    for task, verbs in tasks.items():
        yield Text(f"\n{task}", "bold")
        for verb, kind in verbs.items():
            yield from _entry(verb, _first_line(kind), width, left=12)
    yield Text()
    more = (
        " `icone --version` names the versions that a report of a mistake needs. `--import FILE.py` or `--import "
        "MODULE`, with any verb but `paper`, runs code of your own first, which registers encoders or methods."
    )
    more = more if usage == "icone" else ""
    yield from _paragraphs(f"`{usage} VERB --help` says more about each.{more}", width)


def _verb_lines(name: str, kind: type[Any], width: int) -> Iterator[Text]:
    groups = list(_groups(kind))
    given = [flag.usage for _, _, flags in groups for flag in flags if flag.is_positional]
    yield from _paragraphs(" ".join(["Usage: icone", name, *given, "[OPTIONS]"]), width)
    yield Text()
    yield from _paragraphs(inspect.cleandoc(kind.__doc__ or ""), width)
    for title, about, flags in groups:
        yield Text(f"\n{title}", "bold")
        if about:
            yield from (Text(f"  {line}".rstrip()) for line in _paragraphs(about, width - 2))
        for flag in flags:
            yield from _entry(flag.usage, flag.text, width, LEFT)


def _example_lines(name: str) -> Iterator[Text]:
    yield Text("\nExamples", "bold")
    for about, command in EXAMPLES[name]:
        yield Text(f"  # {about}", "dim")
        yield Text(f"  {command}")


def _groups(kind: type[Any]) -> Iterator[tuple[str, str, list[Flag]]]:
    """Titles, what there is to say about the group as a whole, and flags."""
    inference = issubclass(kind, InferenceFlags)
    table = PRETRAIN_GROUPS if issubclass(kind, DataConfig) else INFERENCE_GROUPS if inference else GROUPS
    flags, hints = dict(_flags(kind)), typing.get_type_hints(kind)
    named = {name for names in table.values() for name in names}
    for number, (title, names) in enumerate(table.items()):
        rest = [name for name in flags if name not in named] if number == 0 else []
        shown = [flag for name in [*names, *rest] for flag in flags.get(name, [])]
        nested = [hints[name] for name in names if name in flags and dataclasses.is_dataclass(hints[name])]
        about = inspect.cleandoc(nested[0].__doc__) if nested else ""
        if shown:
            yield title, about, sorted(shown, key=lambda flag: not flag.is_positional)


def _flags(kind: type[Any], prefix: str = "--") -> Iterator[tuple[str, list[Flag]]]:
    """The fields of a verb, each with its flags; a nested dataclass has several."""
    hints, texts = typing.get_type_hints(kind, include_extras=True), field_texts(kind)
    for field in dataclasses.fields(kind):
        hint, marks = hints[field.name], getattr(hints[field.name], "__metadata__", ())
        hint = typing.get_args(hint)[0] if marks else hint
        if tyro.conf.Suppress in marks:
            continue
        flag = prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(hint):
            yield field.name, [one for _, inner in _flags(typing.cast(type, hint), flag + ".") for one in inner]
            continue
        text = texts.get(field.name, "")
        if tyro.conf.Positional in marks:
            yield field.name, [Flag(_positional(field, hint), text, is_positional=True)]
        else:
            value, values = _value(hint, len(flag))
            text = " ".join(part for part in (text, values, _default(field)) if part)
            both = f"{flag}, {prefix}no-{flag.removeprefix(prefix)}" if field.default is True else flag
            yield field.name, [Flag(f"{both} {value}".rstrip(), text, is_positional=False)]


def check_flags(words: Sequence[str], verb: str, kind: type[Any]) -> None:
    """Refuse a flag that the verb does not have; tyro would list those of all verbs.

    A value that begins with two dashes is taken for a flag, as by every parser of its kind, unless it follows an equals
    sign.
    """
    usages = [flag.usage for _, flags in _flags(kind) for flag in flags if not flag.is_positional]
    known = [usage.split()[0].strip("-,") for usage in usages]
    for before, word in pairwise(["", *words]):
        if word == "--":
            return
        flag = word.partition("=")[0].removeprefix("--").replace("_", "-")
        if word.startswith("--") and not {flag, flag.removeprefix("no-")} & {*known} and not flag.startswith("tyro-"):
            near = [f"--{name}" for name in nearest_names(flag, known, most=1)]
            meant = f"; did you mean {near[0]}?" if near else "."
            if any(usage.startswith(f"{before} ") for usage in usages):
                meant += f" A value of {before} that begins with -- follows an equals sign, without a space."
            raise InputError(f"unknown flag --{flag}{meant} `icone {verb} --help` lists all")


def _positional(field: dataclasses.Field[Any], hint: Any) -> str:
    word = field.name.replace("_folder", "").upper()
    word = f"{word.removesuffix('S')} ..." if typing.get_origin(hint) is tuple else word
    return word if field.default is dataclasses.MISSING else f"[{word}]"


def _value(hint: Any, used: int) -> tuple[str, str]:
    """What stands behind a flag, and a sentence about the values where they are too many to stand there."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is bool:
        return "", ""
    if origin is Literal:
        short = "|".join(map(str, inner))
        return (short, "") if used + len(short) < 60 else ("NAME", f"Names: {', '.join(map(str, inner))}.")
    if origin is tuple:
        if inner[-1] is not Ellipsis:
            return " ".join(_value(one, used)[0] for one in inner), ""
        if typing.get_origin(inner[0]) is Literal:
            return "NAME ...", f"Names: {', '.join(map(str, typing.get_args(inner[0])))}."
        return f"{_value(inner[0], used)[0]} ...", ""
    if origin in (types.UnionType, typing.Union):
        parts = [_value(one, used) for one in inner if one is not types.NoneType]
        return "|".join(part[0] for part in parts), " ".join(part[1] for part in parts if part[1])
    return {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}[hint], ""


def _default(field: dataclasses.Field[Any]) -> str:
    """The default, where it is a value; what None means is said by the text."""
    value = field.default
    if value is dataclasses.MISSING:
        return "(required)"
    if value is None or value is False or value == ():
        return ""
    values = value if isinstance(value, tuple) else ("yes",) if value is True else (value,)
    shown = " ".join(f"{one:.3g}" if isinstance(one, float) else str(one) for one in values)
    return f"(default: {shown})"


def field_texts(kind: type[Any]) -> dict[str, str]:
    """The docstrings under the fields of a dataclass and of those that it inherits from, each in one line."""
    texts: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]).body
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                texts[typing.cast(ast.Name, field.target).id] = " ".join(str(text.value.value).split())
    return texts


def _first_line(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _entry(name: str, text: str, width: int, left: int) -> Iterator[Text]:
    """A name and, beside or under it, its text."""
    lines = _wrapped(text, width - left)
    if len(name) + 4 > left:
        head = _wrapped(name, width - 2)
        yield from (Text(f"  {line}", "cyan") for line in head)
    else:
        yield Text(f"  {name:<{left - 2}}", "cyan").append(lines.pop(0) if lines else "", "default")
    yield from (Text(" " * left + line) for line in lines)


def _paragraphs(text: str, width: int) -> Iterator[Text]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield Text()
        yield from map(Text, _wrapped(" ".join(paragraph.split()), width))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False)
