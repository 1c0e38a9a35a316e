"""How long a step of every method takes: what equal epochs are in GPU time.

    python benchmarks/method_times.py --out method-times.json      # a GPU: ViT-S/16 at 112², 3D ResNet-18 at 64³
    python benchmarks/method_times.py --smoke                      # tiny networks, on a CPU
    python benchmarks/method_times.py --out method-times.json --table    # what is there, as Markdown

Each method trains at the smallest batch at which it is defined, and at 16, with its own number of encoder passes. A
step has views, encoder, head, loss and AdamW, captured without the compiler. "relative" is the time of a sample against
IConE's at the same network and a batch of 16: a method with 0.5 trains twice as many epochs in the same time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from icone.config import PretrainConfig
from icone.errors import InputError
from icone.methods import METHODS
from icone.paper.execute import device_name
from icone.process import configure_process
from learning import markdown
from random_step import preparation_of, step_seconds

SAMPLES, BATCH = 1000, 16
NETWORKS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "vit_small_patch16, 112²": ("vit_small_patch16", (112, 112), 3),
    "resnet18_3d, 64³": ("resnet18_3d", (64, 64, 64), 1),
}
SMALL: dict[str, tuple[str, tuple[int, ...], int]] = {"test_vit, 32²": ("test_vit", (32, 32), 3)}


def measure(method: str, network: str, batch: int, device: torch.device) -> dict[str, Any]:
    """Milliseconds of a step and of a sample, or why there is none."""
    encoder, size, channels = (NETWORKS | SMALL)[network]
    about = {"method": method, "network": network, "batch_size": batch}
    try:
        config = PretrainConfig(
            source="random", encoder=encoder, method=method, batch_size=batch, device=device.type, epochs=100
        )
        seconds, _ = step_seconds(config, preparation_of(size, channels), SAMPLES)
    except InputError as error:
        return {**about, "reason": str(error)}
    return {**about, "step_ms": 1000 * seconds, "sample_ms": 1000 * seconds / batch}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Methods × networks and batches in Markdown: the time of a sample as a multiple of IConE's at the same batch."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    times = {(row["network"], row["method"], row["batch_size"]): row.get("sample_ms") for row in rows}
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        smallest = min(row["batch_size"] for row in rows if row["method"] == method)
        cells = []
        for network, batch in itertools.product(networks, (1, BATCH)):
            cell = (network, method, batch)
            own, icone = times.get(cell), times.get((network, "icone", batch))
            undefined = "undefined" if batch < smallest or cell in times else "not measured"
            cells.append(f"{own / icone:.2f}" if own and icone else undefined)
        lines.append([METHODS[method].title, *cells])
    heads = [f"{network}, B = {batch}" for network, batch in itertools.product(networks, (1, BATCH))]
    return markdown(["method", *heads], lines)


def main(
    out: Path | None = None, smoke: bool = False, show: Annotated[bool, tyro.conf.arg(name="table")] = False
) -> None:
    """Print the time of a step of every method without labels.

    Args:
        out: file for the figures, as JSON; it is written after every row, and measured rows are not measured again.
        smoke: tiny networks.
        show: print a table of `out` as Markdown, and measure nothing.
    """
    known = json.loads(out.read_text())["rows"] if out is not None and out.is_file() else []
    if show:
        print(table(known))
        return
    configure_process()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shown = Table("method", "network", "B", "ms a step", "ms a sample", "relative", title=device_name(device))
    rows: list[dict[str, Any]] = [row for row in known if "sample_ms" in row]
    done = {(row["method"], row["network"], row["batch_size"]) for row in rows}
    for network in SMALL if smoke else NETWORKS:
        reference = measure("icone", network, BATCH, device)["sample_ms"]
        for method, kind in METHODS.items():
            if kind.needs_labels:
                continue
            for batch in sorted({kind.min_batch_size, BATCH}):
                if (method, network, batch) in done:
                    continue
                row = measure(method, network, batch, device)
                if "sample_ms" in row:
                    row["relative"] = row["sample_ms"] / reference
                    cells = [f"{row[name]:.2f}" for name in ("step_ms", "sample_ms", "relative")]
                else:
                    cells = ["–"] * 3
                rows.append(row)
                shown.add_row(method, network, str(batch), *cells)
                if out is not None:
                    out.write_text(json.dumps({"device": device_name(device), "rows": rows}, indent=1) + "\n")
    Console(width=110).print(shown)


if __name__ == "__main__":
    tyro.cli(main)
