"""What micro-batches give on real volumes: a batch of 16 at once, in pieces of 1, and a batch of 1, compared.

    python benchmarks/micro_batches.py --data-root DIR --store runs/micro          # AdrenalMNIST3D 64³, 20 epochs
    python benchmarks/micro_batches.py --data-root DIR --store runs/micro-28 --datasets adrenalmnist3d --size 28 \\
        --encoder resnet10_3d --width 0.25 --epochs 10                             # 28³, 75 minutes of a CPU core
    python benchmarks/micro_batches.py --smoke --store runs/micro-smoke            # generated volumes, seconds on a CPU

`--batch-size 16 --micro-batch 1` has the memory of one sample and the gradient of 16. That is exact for encoders
without BatchNorm; the 3D ResNet-18 has BatchNorm, whose statistics are then moving averages over micro-batches. So the
comparison is made on that network. The probes are tested on the official test split. Run again, it redoes nothing.
"""

from __future__ import annotations

from pathlib import Path

import tyro

from icone.paper import Experiment, Grid, Options, run_experiment, show_experiment
from icone.paper.spec import Cell
from icone.process import configure_process

VOLUMES = ("adrenalmnist3d@64",)
EPOCHS = 20


def grid(options: Options) -> list[Cell]:
    """IConE and SimCLR at a batch of 16, in one piece and in pieces of 1; IConE at a batch of 1."""
    settings = {"epochs": options.epochs or EPOCHS}
    batches = Grid(
        datasets=VOLUMES, methods=("icone", "simclr"), batch_sizes=(16,), seeds=3, settings=settings,
        vary={"micro_batch": (None, 1)},
    )  # fmt: skip
    single = Grid(datasets=VOLUMES, batch_sizes=(1,), seeds=3, settings=settings, vary={"micro_batch": (None,)})
    return [*batches(options), *single(options)]


STUDY = Experiment(name="micro-batches", grid=grid)


USUAL = Options(seeds=3, official_test=True)
SMALL = Options(datasets=("synthetic:shapes@16x60",), encoder="resnet10_3d", width=0.125, epochs=1, seeds=1)


def main(
    store: Path,
    options: tyro.conf.OmitArgPrefixes[Options] = USUAL,
    max_minutes: float | None = None,
) -> None:
    """Run what is missing, and print the table.

    Args:
        store: folder of the runs.
        options: other data sets, networks, epochs, …
        max_minutes: stop after this time; the same command goes on.
    """
    configure_process()
    chosen = SMALL if options.smoke else options
    run_experiment(STUDY, store=store, options=chosen, max_minutes=max_minutes)
    show_experiment(STUDY, store=store, options=chosen)


if __name__ == "__main__":
    tyro.cli(main)
