"""What people look at: the HTML page and figures, made from what runs have saved.

`icone.report` is this package and, called, the function that writes the page: Python puts an imported package under its
name into the one above, where the function of the same name would be.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icone.report.figures import FIGURES, save_figures
    from icone.report.write import report

__all__ = ["FIGURES", "report", "save_figures"]

_HOME = {"FIGURES": "figures", "save_figures": "figures", "report": "write"}
"""Loaded at first use: figures need matplotlib, the page needs plotly, and the summary in a notebook neither."""


class _Callable(ModuleType):
    def __call__(self, *args: Any, **settings: Any) -> Any:
        return self.report(*args, **settings)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"icone.report.{_HOME[name]}"), name)


sys.modules[__name__].__class__ = _Callable
