"""What `--freeze-patch-embed` gives a vision transformer: IConE with the projection of patches learned and frozen.

    python benchmarks/patch_projection.py --data DIR --store runs/patches              # ViT-S, 20 epochs, a GPU
    python benchmarks/patch_projection.py --smoke --store runs/patches-smoke           # generated images, on a CPU

Two sets decide, Caltech's classes and BreastMNIST; blood cells and PneumoniaMNIST confirm. Each is trained at the
default learning rate and at three times that, at which a transformer lost its rank (docs/decisions/small-batches.md).
Probes are tested on a held-out fifth. Run again, it redoes nothing.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tyro

from icone.paper import Experiment, Grid, Options, run_experiment, show_experiment
from icone.paper.spec import Cell
from icone.process import configure_process

RATES = (1e-4, 3e-4)
SETS: dict[str, dict[str, Any]] = {
    "caltech20": {"size": 64},
    "breastmnist@28": {"size": 32},
    "bloodcells/images": {"size": 64, "labels": "bloodcells/labels.csv"},
    "pneumoniamnist@28": {"size": 32, "subset": 1500},
}
"""Folders of --data, and MedMNIST sets in its folder medmnist, with their settings."""


def study(name: str, data: Path, epochs: int) -> Experiment:
    """The experiment on one set."""
    settings = {"epochs": epochs, **SETS[name]}
    labels = data / settings.pop("labels") if "labels" in settings else None

    def grid(options: Options) -> list[Cell]:
        options = dataclasses.replace(options, labels=labels)
        source = name if "@" in name else str(data / name)
        vary = {"freeze_patch_embed": (False, True), "lr": RATES}
        return Grid(datasets=(source,), batch_sizes=(1, 16), seeds=3, settings=settings, vary=vary)(options)

    return Experiment(name="patches-" + name.split("/")[0].split("@")[0], grid=grid)


def main(
    store: Path,
    data: Path = Path("data"),
    sets: tuple[str, ...] = tuple(SETS),
    seeds: int = 3,
    epochs: int = 20,
    max_minutes: float | None = None,
    smoke: bool = False,
) -> None:
    """Run what is missing, and print the tables.

    Args:
        store: folder of the runs.
        data: folder that holds the data.
        sets: which of them.
        seeds: seeds of every setting.
        epochs: epochs of every run.
        max_minutes: save and stop after this time; the same call goes on.
        smoke: a tiny network on generated images, for one epoch.
    """
    configure_process()
    options = Options(data_root=data / "medmnist", seeds=seeds, encoder="vit_small_patch16")
    if smoke:
        sets, epochs = sets[:1], 1
        options = Options(datasets=("synthetic:cells@32x60",), encoder="test_vit", seeds=1)
    studies = [study(name, data, epochs) for name in sets]
    for one in studies:
        run_experiment(one, store=store, options=options, max_minutes=max_minutes)
    for one in studies:
        show_experiment(one, store=store, options=options)


if __name__ == "__main__":
    tyro.cli(main)
