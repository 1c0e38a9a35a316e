"""The evidence at length: runs of 100 epochs by the question that they answer, in a store that a later call continues.

    python benchmarks/evidence.py --data DIR --store runs/evidence --show             # what is done and what is left
    python benchmarks/evidence.py --data DIR --store runs/evidence --max-minutes 9    # the next runs; again, it goes on
    icone paper import benchmarks/results/evidence.zip --store runs/evidence          # the runs that are done

Three seeds, the default recipe. Runs of before there was a warm-up, as those of docs/results.md are, are asked for with
--no-warmup; with both, the same questions tell what the warm-up gives after a hundred epochs. DIR holds the folders
caltech20, bloodcells and medmnist, and breastmnist_128_rebuilt.npz. Large batches are trained first, which take the
least time, then the questions in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from icone.paper import Experiment, Grid, Options, run_experiment
from icone.paper.spec import Cell
from icone.paper.store import Store
from icone.process import configure_process
from icone.recipe import Recipe

CALTECH, BREAST, BLOOD = "caltech20", "breastmnist_128_rebuilt.npz", "bloodcells/images"
ADRENAL, GENERATED = "adrenalmnist3d@64", "synthetic:cells@32x60"
SETTINGS: dict[str, dict[str, Any]] = {
    CALTECH: {"size": 112},
    BREAST: {"size": 112},
    BLOOD: {"size": 64},
    ADRENAL: {"encoder": "nf_resnet18_3d"},
    GENERATED: {"encoder": "test_vit"},
}
"""Of every set. MedMNIST's has its official test split, and the network without BatchNorm."""

ONE_BY_ONE: dict[str, Sequence[Any]] = {"micro_batch": (1,)}
RATES: dict[str, Sequence[Any]] = {"lr": (3e-5, 3e-4)}
"""A third of the default learning rate, and three times that."""
CENTER: dict[str, Sequence[Any]] = {"center_weight": (10.0,), "lr": (3e-4,)}
"""A loss that keeps features near their mean (`icone.nn.CenterLoss`), with a rate that features bear only with it."""
SPLITS: dict[str, Sequence[Any]] = {"split_seed": (1, 2)}
"""Other fifths of a set for the test. One fifth of the blood cells is 70."""


@dataclass(frozen=True)
class Question:
    """Some runs that answer a question together."""

    asks: str
    data: str
    methods: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    recipe: Recipe = "icone"
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Settings in which runs differ from the default, with their values."""

    def cells(self, folder: Path, epochs: int = 100, seeds: int = 3, warmup: bool = True) -> list[Cell]:
        """The runs; without a warm-up, as before there was one, or with that of the recipe."""
        source = str(folder / self.data) if self.data in (CALTECH, BREAST, BLOOD) else self.data
        options = Options(
            data_root=folder / "medmnist",
            official_test=self.data == ADRENAL,
            labels=folder / "bloodcells/labels.csv" if self.data == BLOOD else None,
            recipe=self.recipe,
            epochs=epochs,
        )
        grid = Grid(
            datasets=(source,), methods=self.methods, batch_sizes=self.batch_sizes, seeds=seeds,
            settings=SETTINGS[self.data] | ({} if warmup else {"warmup": None}), vary=self.vary,
        )  # fmt: skip
        return grid(options)


QUESTIONS: tuple[Question, ...] = (
    Question("Is IConE as good at B = 1 as at 16 on natural images?", CALTECH, ("icone",), (1, 16)),
    Question("Is IConE as good at B = 1 as at 16 on ultrasound?", BREAST, ("icone",), (1, 16)),
    Question("Is IConE ahead of MAE at B = 1 on natural images?", CALTECH, ("mae",), (1,)),
    Question("Is IConE ahead of DIET and NPID at B = 1 on volumes?", ADRENAL, ("diet", "npid"), (1,)),
    Question("Is IConE ahead of SimCLR and MAE at B = 16 on natural images?", CALTECH, ("simclr", "mae"), (16,)),
    Question("Does a center loss help at B = 1 on blood cells?", BLOOD, ("icone",), (1,), vary=CENTER),
    Question("Does a center loss help at B = 1 on ultrasound?", BREAST, ("icone",), (1,), vary=CENTER),
    Question("Does a center loss help at B = 1 on natural images?", CALTECH, ("icone",), (1,), vary=CENTER),
    Question("Is IConE ahead of MAE, DIET and MoCo v2 at B = 1 on ultrasound?", BREAST, ("mae", "diet", "moco"), (1,)),
    Question("Is IConE ahead of MAE, DIET and MoCo v2 at B = 1 on blood cells?", BLOOD, ("mae", "diet", "moco"), (1,)),
    Question("Is IConE ahead of others at B = 16 on ultrasound?", BREAST, ("simclr", "mae", "moco"), (16,)),
    Question("Is IConE ahead of others at B = 16 on blood cells?", BLOOD, ("simclr", "mae", "moco"), (16,)),
    Question("How is B = 4 on ultrasound?", BREAST, ("icone", "simclr"), (4,)),
    Question("How is B = 4 on natural images?", CALTECH, ("icone", "simclr"), (4,)),
    Question("How is B = 4 on volumes?", ADRENAL, ("icone", "simclr"), (4,)),
    Question("Is IConE ahead of DIET at B = 1 on natural images?", CALTECH, ("diet",), (1,)),
    Question("Does the printed objective recover on ultrasound?", BREAST, ("icone",), (1,), recipe="paper"),
    Question("Does the printed objective recover on natural images?", CALTECH, ("icone",), (1,), recipe="paper"),
    Question("Is IConE ahead of MoCo v2 and DIET at B = 16 on volumes?", ADRENAL, ("moco", "diet"), (16,)),
    Question("Is IConE ahead of MoCo v2 at B = 1 on volumes?", ADRENAL, ("moco",), (1,)),
    Question("Is IConE ahead of MoCo v2 at B = 1 on natural images?", CALTECH, ("moco",), (1,)),
    Question(
        "Is B = 16 in micro-batches of 1 level with 16 on blood cells?", BLOOD, ("icone",), (16,), vary=ONE_BY_ONE
    ),
    Question(
        "Is B = 16 in micro-batches of 1 level with 16 on ultrasound?", BREAST, ("icone",), (16,), vary=ONE_BY_ONE
    ),
    Question("Is IConE ahead of SimMIM at B = 1 on volumes?", ADRENAL, ("simmim",), (1,)),
    Question("Is another learning rate better at B = 1 on blood cells?", BLOOD, ("icone",), (1,), vary=RATES),
    Question("Is another learning rate better at B = 1 on ultrasound?", BREAST, ("icone",), (1,), vary=RATES),
    Question("Is another learning rate better at B = 1 on natural images?", CALTECH, ("icone",), (1,), vary=RATES),
    Question(
        "Is IConE as good at B = 1 as at 16 on other splits of blood cells?", BLOOD, ("icone",), (1, 16), vary=SPLITS
    ),
)


def left_of(cells: Iterable[Cell], store: Store) -> list[Cell]:
    """The runs that have not ended yet."""
    return [cell for cell in cells if store.last_record(cell.spec.key) is None]


def _these(cells: list[Cell], options: Options) -> list[Cell]:
    return cells


def main(
    store: Path,
    data: Path = Path("data"),
    max_minutes: float | None = None,
    workers: int = 3,
    questions: tuple[int, ...] = (),
    show: bool = False,
    warmup: bool = True,
    smoke: bool = False,
) -> None:
    """Run what is missing.

    Args:
        store: folder of the runs.
        data: folder that holds the data.
        max_minutes: save and stop after this time; the same call goes on.
        workers: processes beside each other; each trains the seeds of a run side by side.
        questions: numbers of those to run, as the table counts them (default: all).
        show: say what is done and what is left, and run nothing.
        warmup: train with the recipe's warm-up.
        smoke: one question on generated images with a tiny network, for one epoch.
    """
    configure_process()
    console = Console()
    chosen, settings = dict(enumerate(QUESTIONS, start=1)), dict[str, Any](warmup=warmup)
    if smoke:
        chosen = {1: dataclasses.replace(QUESTIONS[0], data=GENERATED, batch_sizes=(1,))}
        settings |= {"epochs": 1, "seeds": 2}
    if unknown := [number for number in questions if number not in chosen]:
        raise SystemExit(f"--questions are 1 to {len(chosen)}, got {unknown[0]}")
    asked = {number: chosen[number].cells(data, **settings) for number in questions or chosen}
    if not show:
        cells = [cell for cells in asked.values() for cell in cells]
        experiment = Experiment(name="evidence", grid=partial(_these, cells))
        run_experiment(experiment, store=store, workers=workers, max_minutes=max_minutes, console=console)
    table = Table("", "question", "runs", "left")
    for number, cells in asked.items():
        left = len(left_of(cells, Store(store)))
        table.add_row(str(number), chosen[number].asks, str(len(cells)), str(left))
    console.print(table)


if __name__ == "__main__":
    tyro.cli(main)
