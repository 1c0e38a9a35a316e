"""What a large anchor table costs: time and peak memory of a step, all pairs against sampled rows, side by side.

    python benchmarks/tables.py                                             # a GPU: ViT-S/16, 224², batch 1, captured
    python benchmarks/tables.py --n 2000 8000 --encoder test_vit --size 32  # small, on a CPU

A step has views, encoder, projection head, the diversity loss over all N anchors, and AdamW on all of them.
`orthogonality` compares all pairs, and its time grows with N². `sampled_orthogonality` compares 4096 rows with all.
`auto` is what `icone pretrain` chooses. Peak memory is that of PyTorch's allocator, on a GPU only. `table` is the part
that the anchors, their gradient and AdamW's two averages take.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import torch
import tyro
from rich.console import Console
from rich.table import Table

from icone.config import PretrainConfig
from icone.methods.icone import IConE
from icone.paper.execute import device_name
from icone.process import configure_process
from random_step import preparation_of, step_seconds

FORMS = ("orthogonality", "sampled_orthogonality", "auto")
CHANNELS = 3


def measure(count: int, form: str, batch_size: int, encoder: str, size: int, device: torch.device) -> dict[str, Any]:
    """Milliseconds and gigabytes of a step with `count` anchors, captured on a GPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    config = PretrainConfig(
        source="random", encoder=encoder, batch_size=batch_size, options=(f"diversity={form}",), device=device.type
    )
    seconds, parts = step_seconds(config, preparation_of((size, size), CHANNELS), count)
    table = cast(IConE, parts.method).table.weight
    return {
        "n": count,
        "diversity": form,
        "milliseconds": 1000 * seconds,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else math.nan,
        "table_gb": 4 * table.numel() * table.element_size() / 1e9,
        "notes": list(parts.method.notes),
    }


def main(
    n: tuple[int, ...] = (20_000, 100_000, 1_000_000),
    batch_size: int = 1,
    encoder: str = "auto",
    size: int = 224,
    out: Path | None = None,
) -> None:
    """Print milliseconds and gigabytes of a step for every N and form.

    Args:
        n: numbers of anchors.
        batch_size: samples of a step.
        encoder: name of the network.
        size: edge of the images, in pixels.
        out: file for the figures, as JSON; it is written after every row.
    """
    configure_process()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    title = f"batch {batch_size}, {device_name(device)}"
    shown = Table("N", "diversity", "ms a step", "peak GB", "table GB", title=title)
    rows: list[dict[str, Any]] = []
    for count in n:
        for form in FORMS:
            row = measure(count, form, batch_size, encoder, size, device)
            rows.append(row)
            cells = (f"{row[name]:.2f}" for name in ("milliseconds", "peak_gb", "table_gb"))
            shown.add_row(f"{count:,}", form, *cells)
            if out is not None:
                out.write_text(json.dumps({"device": device_name(device), "rows": rows}, indent=1) + "\n")
    Console().print(shown)
    for note in dict.fromkeys(note for row in rows for note in row["notes"]):
        print(note)


if __name__ == "__main__":
    tyro.cli(main)
