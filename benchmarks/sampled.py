"""What a sampled diversity loss costs in quality: encoders trained with all pairs of anchors, and with some rows.

    python benchmarks/sampled.py --source caltech20 --out sampled.jsonl            # a GPU: 24,000 tiles of 32 pixels
    python benchmarks/sampled.py --source caltech20 --out sampled.jsonl --table    # the Markdown table of what is there
    python benchmarks/sampled.py --source caltech20 --out trial.jsonl --rows all 64 --stride 96 --seeds 0 --epochs 1 \\
        --encoder test_resnet --device cpu

The samples are tiles of the images in a folder of classes; a fifth of the images is held out for the probes. `all`
compares all pairs of anchors in every step. A number of rows compares so many random anchors with all, which is what
`icone pretrain` does by itself where all pairs take too long. What --out holds already is not measured again.
"""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import tyro
from PIL import Image
from rich.console import Console
from sklearn.model_selection import train_test_split
from torch import Tensor

import icone
from icone.evaluation.metrics import find_metric, metric_value
from icone.nn.diversity import orthogonality, sampled_orthogonality
from icone.process import configure_process
from icone.run import Run
from learning import markdown, spread

Rows = int | Literal["all"]
METRICS = ("linear_probe", "knn_5", "recognition", "rankme")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured, and where."""

    source: Path
    """Folder of images in subfolders of classes."""
    out: Path
    """JSON lines: a run each."""
    work: Path = Path("sampled-runs")
    """Folder of the runs, which an interrupted measurement goes on with."""
    rows: tuple[Rows, ...] = ("all", 4096, 256, 64)
    seeds: tuple[int, ...] = (0, 1, 2)
    tile: int = 32
    stride: int = 24
    encoder: str = "resnet18"
    epochs: int = 5
    batch_size: int = 4
    device: str = "auto"
    table: bool = False
    """Print the table of --out, and measure nothing."""


def tiles_of(paths: list[Path], options: Options) -> tuple[np.ndarray, list[str]]:
    """The tiles of some images (N, 3, tile, tile) that are not blank, and the class of each."""
    tiles, labels = [], []
    for path in paths:
        image = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)
        starts = [range(0, edge - options.tile + 1, options.stride) for edge in image.shape[1:]]
        for y, x in itertools.product(*starts):
            tile = image[:, y : y + options.tile, x : x + options.tile]
            if tile.min() < tile.max():
                tiles.append(tile)
                labels.append(path.parent.name)
    return np.stack(tiles), labels


def measure(rows: Rows, seed: int, parts: dict[str, Any], options: Options) -> dict[str, Any]:
    """Train and evaluate one encoder."""
    train, labels = parts["train"]
    test, test_labels = parts["test"]
    run, console = Run(options.work / f"{rows}-{seed}"), Console(file=io.StringIO())

    def chosen(shape: tuple[int, int], flops: float, *, sampled_share: float, normalisation: Any) -> partial[Tensor]:
        form = orthogonality if rows == "all" else partial(sampled_orthogonality, rows=rows)
        return partial(form, normalisation=normalisation)

    with patch("icone.methods.icone.affordable_orthogonality", chosen):
        if not (run.exists() and run.finished):
            icone.pretrain(
                train, labels=labels, encoder=options.encoder, epochs=options.epochs, batch_size=options.batch_size,
                seed=seed, probe_every=0, device=options.device, out=run.folder, resume=run.exists(), console=console,
            )  # fmt: skip
        found = icone.evaluate(
            run.folder, data=train, labels=labels, test=test, test_labels=test_labels, untrained=seed == 0,
            device=options.device, console=console,
        )  # fmt: skip
    about = {"rows": rows, "seed": seed, "samples": len(train), "test": len(test), "epochs": options.epochs}
    last = Run.open(run.folder).history[-1]
    scores = {name: metric_value(found["trained"], find_metric(name)) for name in METRICS}
    before = {name: metric_value(found["untrained"], find_metric(name)) for name in METRICS} if seed == 0 else None
    return {**about, **scores, "untrained": before, "anchor_cosine": last["anchor_cosine"]}


def table(found: list[dict[str, Any]]) -> str:
    """Mean ± standard deviation over seeds, in Markdown."""
    lines = []
    for rows in dict.fromkeys(row["rows"] for row in found):
        here = [row for row in found if row["rows"] == rows]
        cells = [spread([find_metric(name).scale * row[name] for row in here]) for name in METRICS]
        lines.append([str(rows), *cells, f"{np.mean([row['anchor_cosine'] for row in here]):.4f}", str(len(here))])
    titles = [find_metric(name).title for name in METRICS]
    return markdown(["rows", *titles, "mean cosine of anchors", "seeds"], lines) + "\n"


def main(options: Options) -> None:
    known = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if not options.table:
        configure_process()
        paths = sorted(path for path in options.source.glob("*/*") if path.is_file())
        halves = train_test_split(paths, test_size=0.2, random_state=0, stratify=[path.parent.name for path in paths])
        parts = {name: tiles_of(half, options) for name, half in zip(("train", "test"), halves, strict=True)}
        done = {(row["rows"], row["seed"]) for row in known}
        for seed, rows in itertools.product(options.seeds, options.rows):
            if (rows, seed) not in done:
                known.append(measure(rows, seed, parts, options))
                with options.out.open("a") as file:
                    file.write(json.dumps(known[-1]) + "\n")
    print(table(known))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
