"""A configuration as JSON, as TOML and as words of the command line, and in what two of them differ."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icone.config import DataConfig, PretrainConfig, RuntimeConfig, is_object
from icone.errors import InputError, printable
from icone.process import EXTENSIONS
from icone.recipe import WARMUP, continued_settings


def to_json(config: PretrainConfig) -> dict[str, Any]:
    """A plain dictionary that JSON can hold; `from_json` is its inverse."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    return plain


def from_json(plain: dict[str, Any]) -> PretrainConfig:
    """Rebuild a configuration; a field that this version does not know is an error, a missing one a default.

    Its folder for the cache is not taken over: whoever opens a run folder, perhaps a stranger's, has a cache of their
    own. Nor is the tag of an encoder's name (`resnet18.a1_in1k`), which names weights that the run never had.
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("source"), str):
        raise InputError("the stored configuration is damaged: it does not name its source")
    kept = {"cache": "off" if plain.get("cache") == "off" else "auto"}
    if isinstance(name := plain.get("encoder"), str) and not is_object(name):
        kept["encoder"] = name.partition(".")[0]
    config: PretrainConfig = _build(PretrainConfig, plain | kept)
    return config


def to_command(config: PretrainConfig, out: Path | None = None) -> list[str]:
    """The words of the command line that train this configuration into `out`: the settings that are not defaults.

    The batch size is always said, because its default follows the data. A run that was trained before there was a
    default warm-up says that it had none.

    >>> from icone.config import ImageViews
    >>> to_command(PretrainConfig(source="scans", epochs=10, warmup=0.05, image_views=ImageViews(blur=0.0)))
    ['icone', 'pretrain', 'scans', '--batch-size', '1', '--epochs', '10', '--image-views.blur', '0.0']
    >>> to_command(PretrainConfig(source="scans"), Path("runs/again"))
    ['icone', 'pretrain', 'scans', '--batch-size', '1', '--warmup', '0.0', '--out', 'runs/again']
    """
    extensions = [word for name in EXTENSIONS for word in ("--import", name)]
    config = _begun_anew(config)
    usual = PretrainConfig(source=config.source, batch_size=config.batch_size)
    if config.recipe != "paper":
        usual = dataclasses.replace(usual, warmup=WARMUP)
    flags = setting_words(config, usual)
    flags = ["--batch-size", str(config.batch_size), *flags]
    folder = [] if out is None else ["--out", out.as_posix()]
    return ["icone", "pretrain", config.source, *flags, *extensions, *folder]


def _begun_anew(config: PretrainConfig) -> PretrainConfig:
    """The configuration with which a new run trains as this one did.

    It has no snapshots that only the run has, because it was extended, and it says that a run of before there was a
    default warm-up had none.

    >>> new = _begun_anew(PretrainConfig(source="scans", epochs=2, snapshots=(2, 4)))
    >>> new.snapshots, new.warmup
    ((2,), 0.0)
    """
    snapshots = tuple(epoch for epoch in config.snapshots if epoch <= config.epochs)
    warmup = config.warmup
    if config.recipe != "paper":
        warmup = continued_settings(config.weights is not None, None, warmup).warmup
    return dataclasses.replace(config, snapshots=snapshots, warmup=warmup)


def setting_words(config: Any, default: Any, prefix: str = "--") -> list[str]:
    """The words of the command line that turn one dataclass of settings into another."""
    words: list[str] = []
    for f in dataclasses.fields(config):
        value, usual = getattr(config, f.name), getattr(default, f.name)
        flag = prefix + f.name.replace("_", "-")
        if value == usual:
            continue
        if dataclasses.is_dataclass(value):
            words += setting_words(value, usual, flag + ".")
        elif isinstance(value, bool):
            words += [flag if value else prefix + "no-" + f.name.replace("_", "-")]
        else:
            words += [flag, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return words


def to_toml(config: PretrainConfig, comments: Sequence[str] = ()) -> str | None:
    """All settings as a file that `--config` takes; None where one is a Python object or no text of UTF-8.

    A setting that is None is left out, because TOML has no word for it, and None is its default. `comments` are lines
    for a reader, above the settings.

    >>> text = to_toml(PretrainConfig(source="scans", window=(-160, 240)))
    >>> [line for line in text.splitlines() if line.startswith(("source", "window"))]
    ['source = "scans"', 'window = [-160.0, 240.0]']
    """
    plain = {name: value for name, value in to_json(_begun_anew(config)).items() if value is not None}
    top = {"source": plain.pop("source"), **plain}
    lines = [f"{name} = {_toml(value)}" for name, value in top.items() if not isinstance(value, dict)]
    for group, values in top.items():
        if isinstance(values, dict):
            lines += ["", f"[{group}]", *(f"{name} = {_toml(value)}" for name, value in values.items())]
    has_objects = any(isinstance(value, str) and is_object(value) for value in top.values())
    lines.remove(f"pipeline = {_toml(config.pipeline)}")
    said = [f"# {printable(comment)}" for comment in comments]
    return None if has_objects or not all(map(str.isprintable, lines)) else "\n".join([*said, *lines]) + "\n"


def _toml(value: Any) -> str:
    """A value of JSON in TOML: they differ in no text that can be printed, and in no number, list or truth value."""
    return json.dumps(value, ensure_ascii=False)


def differences(old: PretrainConfig, new: PretrainConfig) -> list[str]:
    """Name the settings that make two configurations different experiments, as `name: old -> new`."""
    ignored = {f.name for f in dataclasses.fields(RuntimeConfig)} | {"source", "data_root"}
    before, after = to_json(old), to_json(new)
    return [f"{k}: {before[k]} -> {after[k]}" for k in before if k not in ignored and before[k] != after[k]]


def different_data(one: PretrainConfig, other: PretrainConfig) -> str | None:
    """The first setting by which two configurations read different data."""
    names = ["source", *(f.name for f in dataclasses.fields(DataConfig)), "device", "memory_gb"]
    return next((name for name in names if getattr(one, name) != getattr(other, name)), None)


def _build(kind: type[Any], plain: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    unknown = plain.keys() - hints.keys()
    if unknown:
        raise InputError(f"the stored configuration has unknown settings: {', '.join(sorted(unknown))}")
    return kind(**{name: _restore(hints[name], value) for name, value in plain.items()})


def _restore(hint: Any, value: Any) -> Any:
    """Build a nested dataclass from its dictionary; the configuration gives all other values their types."""
    nested = dataclasses.is_dataclass(hint) and isinstance(value, dict)
    return _build(typing.cast(type, hint), value) if nested else value
