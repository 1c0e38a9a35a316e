"""Files that the command line reads before its flags: `--config FILE.toml`, and code of your own with `--import`."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import tomllib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from icone.errors import InputError, one_line, type_and_line, unknown_name
from icone.process import EXTENSIONS
from icone.validation import checked, meant_path, user_path


def config_file(words: Sequence[str]) -> Path | None:
    """The file that follows --config; of several the last.

    >>> config_file(["pretrain", "--config", "a.toml", "--epochs", "3"]).name
    'a.toml'
    """
    found = None
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--config="):
            found = word.partition("=")[2]
        elif word == "--config" and following:
            found = following
    return None if found is None else user_path(found)


def read_config(file: Path, kind: type[Any], widest: type[Any]) -> Any:
    """The verb `kind` with the settings of a file as its defaults.

    A file may serve several verbs: what `widest` knows and `kind` does not is left out. Nested settings are tables,
    such as [image_views]. A name may have hyphens, as in a flag, or underscores.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file ({one_line(error)})") from error
    try:
        given = _settings(content, widest, "")
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    names = {field.name for field in dataclasses.fields(kind)}
    settings = {"source": tyro.MISSING} | {name: value for name, value in given.items() if name in names}
    return kind(**settings)


def _settings(content: dict[str, Any], kind: type[Any], group: str) -> dict[str, Any]:
    """Values with the types of a dataclass, checked as flags are."""
    hints = typing.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)} - {"config", "pipeline"}
    settings = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in known:
            raise unknown_name("setting", group + key, {group + one for one in known})
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, dict):
                raise InputError(f"{key} must be a table: [{key}]")
            settings[name] = typing.cast(type, hint)(**_settings(value, typing.cast(type, hint), f"{name}."))
        else:
            settings[name] = checked(group + name, value, hint)
    return settings


def import_extensions(words: Sequence[str]) -> list[str]:
    """Import what `--import FILE.py` or `--import MODULE` names, and return the other words of the command line."""
    others: list[str] = []
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--import" or word.startswith("--import="):
            names.append(word.partition("=")[2] or next(rest, ""))
        else:
            others.append(word)
    for name in names:
        _import(name)
    EXTENSIONS[:] = names
    return others


def _import(name: str) -> None:
    if not name or name.startswith("--"):
        raise InputError("--import needs the name of a Python file or module")
    try:
        if not name.endswith(".py"):
            importlib.import_module(name)
            return
        path = user_path(name).resolve()
        module_name = f"icone_import_{path.stem}"
        if getattr(sys.modules.get(module_name), "__file__", None) == str(path):
            return
        if not path.is_file():
            raise InputError(f"--import={name}: there is no such file{meant_path(Path(name))}")
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    except InputError:
        raise
    except Exception as error:  # it is the user's code: whatever it raises
        raise InputError(f"--import={name} failed: {type_and_line(error)}") from error
