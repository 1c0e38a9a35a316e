"""Self-supervised image and volume encoders that train at batch size 1.

>>> import icone
>>> run = icone.pretrain("scans/", batch_size=1)        # doctest: +SKIP
>>> encoder = icone.load_encoder("runs/scans")          # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icone.errors import InputError
    from icone.api.evaluate import evaluate
    from icone.api.embed import embed, load_encoder
    from icone.methods import METHODS, AnchorTable, IConELoss
    from icone.api.pretrain import pretrain, pretrain_many
    from icone.report import report
    from icone.run import Run

__all__ = [
    "METHODS",
    "AnchorTable",
    "IConELoss",
    "InputError",
    "Run",
    "embed",
    "evaluate",
    "load_encoder",
    "pretrain",
    "pretrain_many",
    "report",
]

# Streams of a process wait for each other where there are more of them than queues to the GPU: 8, unless this says
# otherwise when CUDA begins. The processes of a multi-process service (MPS) share one pool of them: CUDA was "busy or
# unavailable" to most of 14 processes with 32 each.
if not os.path.isdir(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")):
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

# Loaded at first use, so that `icone --help` does not wait for PyTorch.
_HOME = {
    "METHODS": "methods",
    "AnchorTable": "methods",
    "IConELoss": "methods",
    "InputError": "errors",
    "Run": "runs",
    "embed": "inference",
    "evaluate": "evaluating",
    "load_encoder": "inference",
    "pretrain": "pretraining",
    "pretrain_many": "pretraining",
    "report": "report",
}
_ROOMS = ("data", "diversity", "encoders", "evaluation", "losses", "methods", "nn", "recipe", "training", "views")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"icone.{_HOME[name]}"), name)
    if name in _ROOMS:
        return importlib.import_module(f"icone.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("icone")
    raise AttributeError(f"module 'icone' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]
