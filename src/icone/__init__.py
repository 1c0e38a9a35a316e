"""Self-supervised image and volume encoders that train at batch size 1.

>>> import icone
>>> run = icone.pretrain("scans/", batch_size=1)        # doctest: +SKIP
>>> encoder = icone.load_encoder("runs/scans")          # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icone.api.compare import compare
    from icone.api.embed import embed, load_encoder
    from icone.api.embedder import Embedder
    from icone.api.evaluate import evaluate, evaluate_seeds
    from icone.api.export import export, from_export, load_unet
    from icone.api.find_duplicates import find_duplicates
    from icone.api.finetune import finetune
    from icone.api.inspect import inspect
    from icone.api.plan import plan
    from icone.api.predict import load_classifier, predict
    from icone.api.pretrain import pretrain, pretrain_many
    from icone.errors import InputError
    from icone.methods import METHODS, AnchorTable, IConELoss
    from icone.report import report
    from icone.run import Run
    from icone.training.callbacks import Callback

__all__ = [
    "METHODS",
    "AnchorTable",
    "Callback",
    "Embedder",
    "IConELoss",
    "InputError",
    "Run",
    "compare",
    "embed",
    "evaluate",
    "evaluate_seeds",
    "export",
    "find_duplicates",
    "finetune",
    "from_export",
    "inspect",
    "load_classifier",
    "load_encoder",
    "load_unet",
    "plan",
    "predict",
    "pretrain",
    "pretrain_many",
    "report",
]

# Loaded at first use, so that `icone --help` does not wait for PyTorch.
_HOME = {
    "METHODS": "methods",
    "AnchorTable": "nn",
    "Callback": "training.callbacks",
    "Embedder": "api.embedder",
    "IConELoss": "nn",
    "InputError": "errors",
    "Run": "run",
    "compare": "api.compare",
    "embed": "api.embed",
    "evaluate": "api.evaluate",
    "evaluate_seeds": "api.evaluate",
    "export": "api.export",
    "find_duplicates": "api.find_duplicates",
    "finetune": "api.finetune",
    "from_export": "api.export",
    "inspect": "api.inspect",
    "load_classifier": "api.predict",
    "load_encoder": "api.embed",
    "load_unet": "api.export",
    "plan": "api.plan",
    "predict": "api.predict",
    "pretrain": "api.pretrain",
    "pretrain_many": "api.pretrain",
    "report": "report",
}
_PACKAGES = (
    "data",
    "diversity",
    "encoders",
    "evaluation",
    "losses",
    "methods",
    "nn",
    "paper",
    "recipe",
    "training",
    "views",
)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"icone.{_HOME[name]}"), name)
    if name in _PACKAGES:
        return importlib.import_module(f"icone.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("icone")
    raise AttributeError(f"module 'icone' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES, "__version__"]
