"""IConE-Instance: how much of the pull should go to a view's own anchor, and how much to those of its class?

    python benchmarks/class_share.py --workers 2 --out benchmarks/results
    python benchmarks/class_share.py --source FOLDER --labels labels.csv --encoder test_efficientnet_gn --size 64

`class_share` 0 pulls to the own anchor alone, 1 to all anchors of the class alike. Mean ± standard deviation over
seeds of the balanced accuracy on volumes that were not trained on, in percent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from learning import METRICS, Entry, Terms, markdown, measure_all, save, spread

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


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
    cases = [(size, share) for size in batch_sizes for share in SHARES]
    entries = [
        Entry(f"class_share={share:g}", "icone_instance", size, (f"class_share={share:g}",), seed)
        for size, share in cases
        for seed in range(seeds)
    ]
    outcomes = measure_all(terms, entries, workers, console.print)
    rows = []
    for i, (size, share) in enumerate(cases):
        runs = outcomes[i * seeds : (i + 1) * seeds]
        rows.append([str(size), f"{share:g}", *(spread([o.trained[metric] for o in runs]) for metric in METRICS)])
    untrained = [spread([o.untrained[metric] for o in outcomes[:seeds]]) for metric in METRICS]
    header = ["B", "class_share", "linear probe", "kNN-5", "RankMe"]
    text = markdown(header, [["–", "untrained", *untrained], *rows]) + "\n"
    console.print(text, markup=False)
    if out is not None:
        save(out, "class-share", terms, outcomes, text)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
