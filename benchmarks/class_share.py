"""IConE-Instance: how much of the pull should go to a view's own anchor, and how much to those of its class?

    python benchmarks/class_share.py --workers 2 --out benchmarks/results
    python benchmarks/class_share.py --source FOLDER --labels labels.csv --encoder test_efficientnet_gn --size 64

`class_share` 0 pulls to the own anchor alone, 1 to all anchors of the class alike. Mean ± standard deviation over
seeds of the balanced accuracy on volumes that were not trained on, in percent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from learning import METRICS, Entry, Figures, Terms, markdown, measure_all, save, spread

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def entry(share: float, batch_size: int, seed: int) -> Entry:
    options = (f"class_share={share:g}", "init_std=0.2")  # as in benchmarks/rivals.py
    return Entry(f"class_share {share:g}", "icone_instance", batch_size, options, seed)


def _cells(runs: Sequence[Figures]) -> list[str]:
    return [spread([run[metric] for run in runs]) for metric in METRICS]


def main(
    *,
    terms: Annotated[Terms, tyro.conf.arg(name="")] = Terms(),  # noqa: B008
    batch_sizes: tuple[int, ...] = (16, 1),
    seeds: int = 3,
    workers: int = 1,
    out: Path | None = None,
) -> None:
    """Measure every share at every batch size and print the table; `out` is a folder for it and all figures."""
    console = Console(soft_wrap=True, highlight=False)
    entries = [entry(share, size, seed) for size in batch_sizes for share in SHARES for seed in range(seeds)]
    found = measure_all(terms, entries, workers=workers, report=console.print)
    untrained = [found[entry(0, batch_sizes[0], seed)].untrained for seed in range(seeds)]
    rows = [["–", "untrained", *_cells(untrained)]]
    for size, share in itertools.product(batch_sizes, SHARES):
        trained = [found[entry(share, size, seed)].trained for seed in range(seeds)]
        rows.append([str(size), f"{share:g}", *_cells(trained)])
    header = ["B", "class_share", "linear probe", "kNN-5", "RankMe"]
    text = markdown(header, rows) + "\n"
    console.print(text, markup=False)
    if out is not None:
        save(out, "class-share", terms, list(found.values()), text)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
