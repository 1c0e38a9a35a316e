"""What people look at: the HTML page and figures, made from what runs have saved.

`icone.report` is this package and, called, the function that writes the page: Python puts an imported package under its
name into the one above, where the function of the same name would be.
"""

import sys
from types import ModuleType
from typing import Any

from icone.report.figures import FIGURES, save_figures
from icone.report.write import report

__all__ = ["FIGURES", "report", "save_figures"]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **settings: Any) -> Any:
        return report(*args, **settings)


sys.modules[__name__].__class__ = _Callable
