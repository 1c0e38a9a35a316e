"""Processor seconds of a run before its first step, per 10,000 samples: many small files, and one large array.

    python benchmarks/start.py            # 20,000 PNGs and an .npz of 100,000 images of 28 × 28
    python benchmarks/start.py --smoke

Every start is a process of its own: without a cache, with an empty one (first), with a filled one (second). Seconds are
processor time without imports, because other programs do not change it much: `samples` until they are read, looked at
and prepared, `digests` of their contents, `rest` until the first step. Anchors start at random, since embeddings of an
untrained network cost what the network costs.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from PIL import Image
from rich.console import Console
from rich.table import Table

EDGE = 28
PHASES = ("samples", "digests", "rest")


class Begun(Exception):
    """The first step would come now."""


def measure(source: str, cache: str) -> dict[str, float]:
    """Processor seconds of each phase of a start, in this process."""
    import icone
    from icone.api.pretrain import pretrain
    from icone.terminal import Terminal

    class Stop(icone.Callback):
        def start(self, history: Any) -> None:
            raise Begun

    times: dict[str, float] = {}

    def marked(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            result = function(*given, **named)
            times[phase] = time.process_time()
            return result

        return call

    module: Any = sys.modules[pretrain.__module__]
    module.load_data = marked("samples", module.load_data)
    module.DigestMemory.save = marked("digests", module.DigestMemory.save)
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        try:
            pretrain(
                source,
                encoder="test_resnet",
                size=EDGE,
                options=("start_at=random",),
                epochs=1,
                probe_every=0,
                cache=cache,
                out=Path(folder) / "run",
                callbacks=[Stop()],
                console=Terminal(file=io.StringIO()),
            )
        except Begun:
            times["rest"] = time.process_time()
    marks = [before, *(times[phase] for phase in PHASES)]
    return {phase: after - earlier for phase, (earlier, after) in zip(PHASES, pairwise(marks), strict=True)}


def in_a_process(source: Path, cache: str) -> dict[str, float]:
    words = [sys.executable, __file__, "--request", json.dumps([str(source), cache])]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def make(folder: Path, files: int, rows: int) -> dict[str, tuple[Path, int]]:
    """The two data sets, of noise."""
    images = np.random.default_rng(0).integers(0, 256, (max(files, rows), EDGE, EDGE), dtype=np.uint8)
    many, array = folder / "png", folder / "images.npz"
    many.mkdir()
    for number in range(files):
        Image.fromarray(images[number]).save(many / f"{number:06d}.png")
    np.savez(array, images=images[:rows])
    time.sleep(3)  # digests of files that have just been written are not remembered
    return {f"{files:,} PNG files": (many, files), f"an .npz of {rows:,} rows": (array, rows)}


def main(files: int = 20_000, rows: int = 100_000, repeats: int = 3, smoke: bool = False, request: str = "") -> None:
    """Measure and print; of several repeats the fastest counts.

    Args:
        files: PNG files of the first data set.
        rows: images of the second.
        repeats: how often every start is measured.
        smoke: toy sizes.
        request: source and cache, as JSON; for processes that this program starts.
    """
    if request:
        print(json.dumps(measure(*json.loads(request))))
        return
    files, rows, repeats = (64, 128, 1) if smoke else (files, rows, repeats)
    table = Table("data", "start", *PHASES, "together", title="processor seconds per 10,000 samples")
    with tempfile.TemporaryDirectory() as folder:
        for name, (source, count) in make(Path(folder), files, rows).items():
            found: dict[str, list[dict[str, float]]] = {}
            for number in range(repeats):
                for start, cache in (
                    ("no cache", "off"),
                    ("first", f"{folder}/cache-{number}"),
                    ("second", f"{folder}/cache-{number}"),
                ):
                    found.setdefault(start, []).append(in_a_process(source, cache))
            for start, times in found.items():
                best = min(times, key=lambda one: sum(one.values()))
                parts = [1e4 * best[phase] / count for phase in PHASES]
                table.add_row(name, start, *(f"{part:.2f}" for part in [*parts, sum(parts)]))
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
