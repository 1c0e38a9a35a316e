"""`--import`: code of your own that registers encoders, methods, diversity losses, formats or views."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence

from icone.errors import InputError, one_line
from icone.process import EXTENSIONS
from icone.validation import user_path


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
            raise InputError(f"--import {name}: there is no such file")
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
        raise InputError(f"--import {name} failed: {type(error).__name__}: {one_line(error)}") from error
