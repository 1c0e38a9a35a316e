"""IConE-Instance: how much of the pull should go to a view's own anchor, and how much to those of its class?

    python benchmarks/class_share.py --workers 2 --out benchmarks/results
    python benchmarks/class_share.py --source FOLDER --labels labels.csv --encoder test_efficientnet_gn --size 64

`class_share` 0 pulls to the own anchor alone, 1 to all anchors of the class alike. Mean ± standard deviation over
seeds of the balanced accuracy on volumes that were not trained on, in percent.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from learning import METRICS, Entry, Metrics, Outcome, Terms, markdown, measure_and_tell, spread

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def entry(share: float, batch_size: int, seed: int) -> Entry:
    options = (f"class_share={share:g}",)
    return Entry(f"class_share {share:g}", "icone_instance", batch_size, options, seed)


def _cells(runs: Sequence[Metrics]) -> list[str]:
    return [spread([run[metric] for run in runs]) for metric in METRICS]


def main(
    *,
    terms: Annotated[Terms, tyro.conf.arg(name="")] = Terms(),  # noqa: B008
    batch_sizes: tuple[int, ...] = (16, 1),
    seeds: int = 3,
    workers: int = 1,
    reuse: Path | None = None,
    out: Path | None = None,
) -> None:
    """Measure every share at every batch size and print the table.

    Args:
        workers: Runs at the same time, each in a process with one thread.
        reuse: The JSON file of an earlier comparison, or an interrupted one, whose runs are not repeated.
        out: Folder that the table and the figures of every run are written to.
    """

    def tell(found: Mapping[Entry, Outcome]) -> str:
        untrained = [found[entry(0, batch_sizes[0], seed)].untrained for seed in range(seeds)]
        rows = [["–", "untrained", *_cells(untrained)]]
        for size, share in itertools.product(batch_sizes, SHARES):
            trained = [found[entry(share, size, seed)].trained for seed in range(seeds)]
            rows.append([str(size), f"{share:g}", *_cells(trained)])
        return markdown(["B", "class_share", "linear probe", "kNN-5", "RankMe"], rows) + "\n"

    entries = [entry(share, size, seed) for seed in range(seeds) for size in batch_sizes for share in SHARES]
    measure_and_tell(terms, entries, tell, name="class-share", workers=workers, reuse=reuse, out=out)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
