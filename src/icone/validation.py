"""Types and ranges of all settings: whatever a person gives is checked here, by its annotation and by one table.

`check_settings` serves dataclasses (the configuration, the verbs of the command line), `check_arguments` the
functions of the Python interface. An `InputError` names the setting, the value and what is allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import numbers
import os
import shlex
import tempfile
import types
import typing
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

from icone.errors import InputError, nearest_names, one_line

P = ParamSpec("P")
R = TypeVar("R")


class Rule(NamedTuple):
    """What a value must be beyond its type, in words and as a function."""

    wanted: str
    is_met: Callable[[Any], bool]


def at_least(low: float, most: float = math.inf) -> Rule:
    bound = "" if math.isinf(most) else f" and at most {most:,}"
    return Rule(f"at least {low}{bound}", lambda value: low <= value <= most)


def above(low: float, most: float) -> Rule:
    return Rule(f"above {low} and at most {most:g}", lambda value: low < value <= most)


def interval(most: float = math.inf) -> Rule:
    """A pair with 0 < low <= high <= most."""
    bound = "" if math.isinf(most) else f" and at most {most:g}"
    return Rule(
        f"two numbers, the smaller first, above 0{bound}",
        lambda pair: 0 < pair[0] <= pair[1] <= most and math.isfinite(pair[1]),
    )


def all_of(rule: Rule) -> Rule:
    return Rule(f"numbers, each {rule.wanted}", lambda values: all(map(rule.is_met, values)))


PROBABILITY = Rule("a probability between 0 and 1", lambda value: 0 <= value <= 1)
STRENGTH = Rule("a number of at least 0", lambda value: value >= 0 and math.isfinite(value))
COUNT = at_least(1, 10**9)
SEED = at_least(0, 2**63 - 1)

RANGES: dict[str, Rule] = {
    # data
    "size": at_least(8, 65_536),
    "tiles": Rule("at least 8", lambda value: isinstance(value, bool) or value >= 8),  # `embed` has a switch
    "stride": COUNT,
    "crop": Rule(
        "at least 8 and at most 65,536, one number or one per axis",
        lambda value: all(8 <= edge <= 65_536 for edge in (value if isinstance(value, tuple) else (value,))),
    ),
    "crop_overlap": Rule("a share between 0 and 1", lambda value: 0 <= value <= 1),
    "spacing": above(0, 1000),
    "window": Rule("two finite numbers, LOW < HIGH", lambda pair: -math.inf < pair[0] < pair[1] < math.inf),
    "subset": COUNT,
    "test_fraction": Rule("at least 0 and below 1", lambda value: 0 <= value < 1),
    "imbalance": at_least(1, 10**9),
    "split_seed": SEED,
    # encoder
    "width": above(0, 4),
    "features": at_least(1, 1_000_000),
    # views
    "views": at_least(2, 1024),
    "image_views.crop_scale": interval(most=1),
    "image_views.crop_ratio": interval(),
    "image_views.flip": PROBABILITY,
    "image_views.vertical_flip": PROBABILITY,
    "image_views.jitter": PROBABILITY,
    "image_views.brightness": STRENGTH,
    "image_views.contrast": STRENGTH,
    "image_views.saturation": STRENGTH,
    "image_views.hue": Rule("a number between 0 and 0.5", lambda value: 0 <= value <= 0.5),
    "image_views.grayscale": PROBABILITY,
    "image_views.blur": PROBABILITY,
    "image_views.blur_kernel": Rule(
        "an odd number of pixels, at least 1 and at most 1023", lambda value: 1 <= value <= 1023 and value % 2 == 1
    ),
    "image_views.blur_sigma": interval(),
    "volume_views.crop_scale": interval(most=1),
    "volume_views.flip": PROBABILITY,
    "volume_views.rotate": PROBABILITY,
    "volume_views.shift": STRENGTH,
    "volume_views.contrast": interval(),
    "volume_views.noise": PROBABILITY,
    "volume_views.noise_sigma": STRENGTH,
    "volume_views.blur": PROBABILITY,
    "point_views.noise_sigma": STRENGTH,
    # training; the largest numbers are those that float32 can still multiply
    "batch_size": Rule(COUNT.wanted, lambda value: value == "auto" or COUNT.is_met(value)),  # of `pretrain` and `plan`
    "epochs": COUNT,
    "accumulate": COUNT,
    "micro_batch": COUNT,
    "lr": above(0, 1e30),
    "weight_decay": Rule("at least 0 and at most 1e+30", lambda value: 0 <= value <= 1e30),
    "layer_decay": above(0, 1),
    "warmup": Rule("at least 0 and below 1", lambda value: 0 <= value < 1),
    "clip_gradient": above(0, 1e30),
    "seed": SEED,
    # runtime
    "workers": at_least(1, 1024),
    "memory_gb": at_least(0),
    "checkpoint_seconds": at_least(0),
    "probe_every": at_least(0, 10**9),
    "snapshots": all_of(at_least(1, 10**9)),
    # other verbs
    "components": at_least(1, 1_000_000),
    "seeds": at_least(1, 10_000),
    "devices": at_least(1, 1024),
    "batch_sizes": all_of(COUNT),
    "label_fractions": all_of(above(0, 1)),
    "finetune_draws": at_least(0, 1000),
    "finetune_epochs": COUNT,
    "fraction": above(0, 1),
    "freeze": PROBABILITY,
    "encoder_lr": above(0, 1000),
    "val_fraction": Rule("at least 0 and below 1", lambda value: 0 <= value < 1),
    "patience": COUNT,
    "geometry_instances": at_least(0, 10**9),
    "side_by_side": at_least(1, 1024),
    "gpus_per_run": above(0, 1024),
    "max_minutes": above(0, 1_000_000),
    "cpus_per_run": above(0, 1024),
}
"""Allowed values by name; a setting of the same name means the same in every verb."""


def check_settings(config: Any, group: str = "") -> None:
    """Check all fields of a dataclass and give them the types of their annotations.

    A list becomes a tuple, and so does a single value where any number of them fits: `include="*.png"`.

    `group` is the name under which another dataclass holds this one.
    """
    hints = _hints(config.__class__)
    for own, default in _defaults(config.__class__):
        given = getattr(config, own)
        if given is default:
            continue
        name = f"{group}.{own}" if group else own
        value = checked(name, given, hints[own])
        object.__setattr__(config, own, value)  # before the first use, so frozen all the same
        if dataclasses.is_dataclass(value):
            check_settings(value, name)


@functools.cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Check what a function is called with like the settings of a run."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = _hints(function)
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = checked(name, value, hints[name])
        return function(*bound.args, **bound.kwargs)

    return called


@functools.cache
def _hints(annotated: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(annotated)


def checked(name: str, value: Any, hint: Any) -> Any:
    """The value with the type of its annotation; an `InputError` where it has another, or lies out of its range."""
    if hint is Any:  # whoever takes it looks at it
        return value
    value = fitted(name, value, hint)
    if value is None:
        return None
    numbers = value if isinstance(value, tuple) else (value,)
    rule = RANGES.get(name)
    if rule is not None and not rule.is_met(value):
        raise refused(name, value, rule.wanted)
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise refused(name, value, "finite")
    return value


def fitted(name: str, value: Any, hint: Any) -> Any:
    """The value with the type of its annotation."""
    arms = typing.get_args(hint) if _is_union(hint) else (hint,)
    for arm in arms:
        fits, converted = (True, value) if isinstance(value, Path) and Path in arms else _fit(value, arm)
        if fits:
            if Path in arms and isinstance(converted, str) and converted == "":  # it would be the current folder
                raise refused(name, "an empty text", "a path")
            if Path in arms and isinstance(converted, (str, Path)) and str(converted).startswith("~"):
                return type(converted)(user_path(converted))
            return converted
    raise refused(name, repr(value), " or ".join(_in_words(arm) for arm in arms))


def _is_union(hint: Any) -> bool:
    """Whether it is `A | B`; with a Literal among them Python makes another type of it."""
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def _fit(value: Any, arm: Any) -> tuple[bool, Any]:
    """Whether a value is of a type or can become it without a loss, and what it becomes."""
    if type(value) is arm:
        return True, value
    origin, inner = typing.get_origin(arm), typing.get_args(arm)
    if arm is int:
        fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return fits, int(value) if fits else value
    if arm is float:
        fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return fits, _float(value) if fits else value
    if arm is str:
        return isinstance(value, (str, os.PathLike)), os.fspath(value) if isinstance(value, os.PathLike) else value
    if arm is Path:
        fits = isinstance(value, (str, os.PathLike))
        return fits, Path(value) if fits and value != "" else value
    if origin is Literal:
        return any(value is one or value == one for one in inner if type(one) is type(value)), value
    if origin is tuple:
        return _fit_tuple(value, inner)
    if origin is not None and isinstance(value, str):  # Sequence[…]: its letters would be taken one by one
        return _fit(value, inner[0])[0], [value]
    if origin is not None:
        return isinstance(value, origin) and not isinstance(value, bytes), value
    return isinstance(value, arm), value


def _fit_tuple(value: Any, inner: tuple[Any, ...]) -> tuple[bool, Any]:
    """Whether a value is such a tuple, or a list of the same; where any number of values fits, one of them is enough.

    >>> _fit_tuple("*.png", (str, ...)), _fit_tuple(0.2, (float, float))
    ((True, ('*.png',)), (False, 0.2))
    """
    if not isinstance(value, (tuple, list)):
        if inner[-1] is not Ellipsis:
            return False, value
        fits, converted = _fit(value, inner[0])
        return fits, (converted,) if fits else value
    kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
    if len(kinds) != len(value):
        return False, value
    parts = [_fit(part, kind) for part, kind in zip(value, kinds, strict=True)]
    return all(fits for fits, _ in parts), tuple(converted for _, converted in parts)


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", Path: "a path"}


def _in_words(hint: Any) -> str:
    """An annotation as a person would say it.

    >>> _in_words(tuple[float, float]), _in_words(tuple[int, ...]), _in_words(Literal["a", "b"])
    ('2 values, each a number', 'a list of which each is a whole number', 'one of a, b')
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is types.NoneType:
        return "None"
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"{len(inner)} values, each {_in_words(inner[0])}"
    if _is_union(hint):
        return " or ".join(map(_in_words, inner))
    if origin is not None:
        return f"a list of which each is {_in_words(inner[0])}"
    return _WORDS.get(hint) or f"of type {hint.__name__}"


def refused(name: str, value: Any, wanted: str) -> InputError:
    """The sentence about a value that is not allowed, by the name of its flag."""
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return InputError(f"--{name.replace('_', '-')} must be {wanted}, got {shown}")


def user_path(path: str | Path) -> Path:
    """A path with `~` and `~name` put in full.

    >>> user_path("scans").as_posix()
    'scans'
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"cannot find the home folder in {path}: there is no such user") from error


def meant_path(path: Path) -> str:
    """What a sentence about a path that does not exist says of one that does and has nearly the same name.

    It begins with "; " and is empty where there is none. A pattern is told how patterns are given.
    """
    if "*" in path.name:
        return f"; a pattern is no path: give the folder, and with it --include={shlex.quote(path.name)}"
    place = path.absolute()
    while not os.path.lexists(place.parent):
        place = place.parent
    try:
        with os.scandir(place.parent) as entries:
            beside = [entry.name for entry in itertools.islice(entries, MOST_ENTRIES) if not entry.name.startswith(".")]
    except OSError:
        return ""
    near = nearest_names(place.name, beside, most=1)
    if not near:
        return ""
    found = place.with_name(near[0])
    return f"; did you mean {found if path.is_absolute() else os.path.relpath(found)}?"


MOST_ENTRIES = 10_000
"""Of a folder that are looked at for the sake of a hint."""


def check_target(path: Path, flag: str = "--out") -> None:
    """Refuse, before any work, a file that could not be written in the end; `flag` is where another can be given."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give the name of a file with {flag}")
    if path.exists() and not path.is_file():  # a device, a pipe: a new file would take its place
        raise InputError(f"cannot write {path}: it is no ordinary file; choose another {flag}")
    check_folder(path.parent, flag)


def check_folder(folder: Path, flag: str = "--out") -> None:
    """Refuse, before any work, a folder that could not be made or written to in the end."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        loop = "a link that leads nowhere" if place.is_symlink() else "a file"
        raise InputError(f"cannot write {folder}: {place} is {loop}; choose another {flag}")
    try:
        tempfile.TemporaryFile(dir=place).close()  # more than rights can refuse: a read-only disk, /proc
    except PermissionError as error:
        raise InputError(f"no permission to write in {place}: choose another {flag}") from error
    except OSError as error:
        raise InputError(f"cannot write in {place} ({one_line(error)}): choose another {flag}") from error
