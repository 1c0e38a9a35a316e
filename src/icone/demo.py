"""`icone demo`: the method at batch size 1 on generated data, in a few minutes on two cores."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from icone.api.evaluate import evaluate, result_table
from icone.api.pretrain import pretrain
from icone.config import PretrainConfig
from icone.config_text import differences
from icone.errors import InputError
from icone.outputs import is_output
from icone.run import OWN_FILES, Run
from icone.terminal import say

# Small networks, so that a few thousand steps of batch size 1 take a minute or so.
DEMO_RUNS: dict[str, dict[str, Any]] = {
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


COMMON: dict[str, Any] = {"lr": 3e-4, "batch_size": 1, "test_fraction": 0.4}


def demo(out: Path, console: Console) -> dict[str, dict[str, Any]]:
    """Pretrain and evaluate on a 3D and a 2D set; prints and returns untrained against trained."""
    strange = [p for p in sorted(out.iterdir()) if not Run(p).exists() and p.name[0] != "."] if out.is_dir() else []
    if strange or Run(out).exists():
        named = strange[0] if strange else out / "config.json"
        raise InputError(f"{out} holds other things than run folders, such as {named}: choose another --out")
    for name, settings in DEMO_RUNS.items():
        _check_own(out / name, PretrainConfig(**settings, **COMMON))
    say(console, f"Two small trainings without labels, one sample a step: about three minutes on two cores, into {out}")
    results: dict[str, dict[str, Any]] = {}
    for number, (name, settings) in enumerate(DEMO_RUNS.items(), start=1):
        folder = out / name
        if folder.exists():
            shutil.rmtree(folder)
        console.rule(f"training {number} of {len(DEMO_RUNS)}: generated {name}")
        pretrain(**settings, **COMMON, out=folder, console=console)
        results[name] = evaluate(folder, untrained=True, geometry_instances=64, console=console)
    say(console, "Labels are used from here on, by probes that read them from the features before and after training.")
    for name, result in results.items():
        console.rule(f"{name}, before and after training")
        console.print(result_table(result))
        verdict = result["verdict"]
        for text in filter(None, (verdict["headline"], *verdict["evidence"], verdict["advice"])):
            say(console, text)
        say(console, f"next: icone report {shlex.quote(str(out / name))} writes a page with a map and pictures")
    return results


def _check_own(folder: Path, config: PretrainConfig) -> None:
    """Refuse a folder unless it holds nothing but an earlier run of this very configuration."""
    if not os.path.lexists(folder):
        return
    run = Run(folder)
    is_demo = folder.is_dir() and not folder.is_symlink() and run.exists() and run.config.source == config.source
    there = [path.name for path in folder.iterdir() if not is_output(path)] if is_demo else []
    strange = sorted(set(there) - set(OWN_FILES))
    if not is_demo or differences(run.config, config):
        raise InputError(f"{folder} is in the way and is no earlier demo: choose another --out")
    if strange:
        raise InputError(f"{folder / strange[0]} was not written by the demo, which would delete it: move it away")
