"""How long a step takes on this CPU, at two batch sizes: what `icone paper` estimates times on a CPU by.

    python benchmarks/cpu_steps.py --out benchmarks/results/cpu-steps.json     # four minutes on two cores
    python benchmarks/cpu_steps.py --smoke                                     # the tiny networks only

A step of few small samples is spent on the weights, one of many large ones on the samples. Two batch sizes tell both
apart. The figures go into `src/icone/paper/step_times.json`, by batch × views.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import tyro

from icone.config import PretrainConfig
from icone.paper.execute import device_name
from icone.process import configure_process
from learning import markdown
from random_step import preparation_of, step_seconds

SAMPLES, BATCHES = 1000, (1, 16)
NETWORKS: dict[str, tuple[int, ...]] = {
    "test_vit": (32, 32),
    "resnet10_3d": (16, 16, 16),
    "vit_small_patch16": (224, 224),
    "resnet18_3d": (64, 64, 64),
    "nf_resnet18_3d": (64, 64, 64),
}
"""Encoders with the size of their samples."""
TINY = ("test_vit",)


def measure(encoder: str, batch: int) -> dict[str, Any]:
    """Milliseconds of a step of IConE."""
    size = NETWORKS[encoder]
    config = PretrainConfig(source="random", encoder=encoder, batch_size=batch, device="cpu", epochs=100)
    seconds, _ = step_seconds(config, preparation_of(size, 3 if len(size) == 2 else 1), SAMPLES)
    return {"encoder": encoder, "size": size[0], "batch_views": batch * config.views, "step_ms": 1000 * seconds}


def main(out: Path | None = None, smoke: bool = False) -> None:
    """Print the time of a step of every network.

    Args:
        out: file for the figures, as JSON.
        smoke: the tiny networks only.
    """
    configure_process()
    rows = [measure(encoder, batch) for encoder in (TINY if smoke else NETWORKS) for batch in BATCHES]
    about = {"device": device_name(torch.device("cpu")), "threads": torch.get_num_threads()}
    if out is not None:
        out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    cells = [[row["encoder"], str(row["size"]), str(row["batch_views"]), f"{row['step_ms']:.1f}"] for row in rows]
    print(about, markdown(["encoder", "size", "batch × views", "ms a step"], cells), sep="\n")


if __name__ == "__main__":
    tyro.cli(main)
