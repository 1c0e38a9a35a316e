"""`icone demo`: the method at batch size 1 on generated data, in a few minutes on two cores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from icone.errors import InputError
from icone.evaluating import evaluate, result_table
from icone.pretraining import pretrain
from icone.runs import Run

# Small networks, so that a few thousand steps of batch size 1 take a minute or so.
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "volumes": {
        "source": "synthetic:shapes@24x300",
        "encoder": "resnet10_3d",
        "norm": "group",
        "width": 0.125,
        "features": 64,
        "epochs": 20,
    },
    "cells": {"source": "synthetic:cells@64x240", "encoder": "resnet10t", "epochs": 6},
}


def demo(out: Path, console: Console) -> dict[str, dict[str, Any]]:
    """Pretrain and evaluate on a 3D and a 2D set; prints and returns untrained against trained."""
    results = {}
    for name, settings in EXPERIMENTS.items():
        folder = out / name
        if folder.exists():
            if not Run(folder).exists():
                raise InputError(f"{folder} is in the way and is no earlier demo: choose another --out")
            shutil.rmtree(folder)
        console.rule(f"{name}: {settings['source']}, batch size 1, no labels")
        pretrain(**settings, lr=3e-4, batch_size=1, test_fraction=0.4, out=folder, console=console)
        results[name] = evaluate(folder, untrained=True, geometry_instances=64, console=console)
    for name, result in results.items():
        console.rule(name)
        console.print(result_table(result))
    return results
