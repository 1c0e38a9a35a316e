"""`icone demo`: the method at batch size 1 on generated volumes, in a minute or two on two cores."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from icone.api.data_defaults import with_defaults_of_before
from icone.api.evaluate import evaluate, result_table
from icone.api.pretrain import pretrain
from icone.config import PretrainConfig
from icone.config_text import differences
from icone.errors import InputError
from icone.outputs import is_output
from icone.run import OWN_FILES, Run
from icone.terminal import say

SETTINGS: dict[str, Any] = {
    "source": "synthetic:shapes@24x300",
    "encoder": "resnet10_3d",
    "norm": "group",
    "width": 0.125,
    "features": 64,
    "epochs": 20,
    "lr": 3e-4,
    "batch_size": 1,
    "test_fraction": 0.4,
}
"""A small network, so that a few thousand steps of batch size 1 take about a minute."""


def demo(out: Path, console: Console) -> dict[str, Any]:
    """Pretrain and evaluate on generated volumes; prints and returns untrained against trained."""
    _check_own(out, PretrainConfig(**SETTINGS))
    say(console, "One small training on volumes, without labels, one sample a step: a minute or two on two cores.")
    if out.exists():
        shutil.rmtree(out)
    pretrain(**SETTINGS, out=out, console=console)
    result = evaluate(out, untrained=True, geometry_instances=64, console=console)
    console.rule("before and after training")
    say(console, "Labels are used from here on, by probes that read them from the features.")
    console.print(result_table(result))
    verdict = result["verdict"]
    for text in filter(None, (verdict["headline"], *verdict["evidence"], verdict["advice"])):
        say(console, text)
    say(console, f"next: icone report {shlex.quote(str(out))} writes a page with a map and pictures")
    return result


def _check_own(folder: Path, config: PretrainConfig) -> None:
    """Refuse a folder unless it is empty or holds nothing but an earlier run of this very configuration."""
    if not os.path.lexists(folder) or (folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())):
        return
    run = Run(folder)
    is_demo = folder.is_dir() and not folder.is_symlink() and run.exists() and run.config.source == config.source
    there = [path.name for path in folder.iterdir() if not is_output(path)] if is_demo else []
    strange = sorted(set(there) - set(OWN_FILES))
    if not is_demo or differences(run.config, with_defaults_of_before(config, run.config)):
        raise InputError(f"{folder} is in the way and is no earlier demo: choose another --out")
    if strange:
        raise InputError(f"{folder / strange[0]} was not written by the demo, which would delete it: move it away")
