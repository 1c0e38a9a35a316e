"""What `center_weight` gives IConE: a loss that keeps features near their mean direction, on five sets.

    python benchmarks/center_loss.py --data DIR --store runs/center           # small networks; hours on two cores
    python benchmarks/center_loss.py --data DIR --store runs/center --sets bloodcells/images --weights 0 1 3 10 30
    python benchmarks/center_loss.py --smoke --store runs/center-smoke        # generated images, a minute

Blood cells decided the weight, and the other sets confirm it. Probes are tested on a held-out fifth,
those of MedMNIST on the official test split. Run again, it redoes nothing.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tyro

from icone.paper import Experiment, Grid, Options, run_experiment, show_experiment
from icone.paper.spec import Cell
from icone.process import configure_process

IMAGES: dict[str, Any] = {"encoder": "test_vit", "size": 64, "lr": 1e-3, "epochs": 20}
SETS: dict[str, dict[str, Any]] = {
    "bloodcells/images": {**IMAGES, "labels": "bloodcells/labels.csv"},
    "caltech20": IMAGES,
    "breastmnist_128_rebuilt.npz": IMAGES,
    "pneumoniamnist@28": {**IMAGES, "size": 32, "subset": 600},
    "adrenalmnist3d@28": {"encoder": "nf_resnet10_3d", "width": 0.25, "size": 28, "lr": 1e-4, "epochs": 10},
}
"""Folders and files of --data, and MedMNIST sets in its folder medmnist, with their settings."""
GENERATED = {"synthetic:cells@32x60": {**IMAGES, "size": 32, "epochs": 1}}


def study(name: str, settings: dict[str, Any], data: Path, weights: tuple[float, ...]) -> Experiment:
    """The experiment on one set."""
    settings, is_medmnist = dict(settings), "@28" in name
    labels = data / settings.pop("labels") if "labels" in settings else None

    def grid(options: Options) -> list[Cell]:
        options = dataclasses.replace(options, labels=labels, official_test=is_medmnist)
        source = name if "@" in name else str(data / name)
        vary = {"center_weight": weights}
        return Grid(datasets=(source,), batch_sizes=(1, 16), seeds=3, settings=settings, vary=vary)(options)

    return Experiment(name="center-" + name.split("/")[0].split("@")[0].split(".")[0].replace(":", "-"), grid=grid)


def main(
    store: Path,
    data: Path = Path("data"),
    sets: tuple[str, ...] = tuple(SETS),
    weights: tuple[float, ...] = (0.0, 10.0),
    batch_sizes: tuple[int, ...] = (1, 16),
    seeds: int = 3,
    lr: float | None = None,
    encoder: str | None = None,
    epochs: int | None = None,
    workers: int = 2,
    max_minutes: float | None = None,
    smoke: bool = False,
) -> None:
    """Run what is missing, and print the tables.

    Args:
        store: folder of the runs.
        data: folder that holds the data.
        sets: which of them.
        weights: values of center_weight.
        batch_sizes: samples of a step.
        seeds: seeds of every setting.
        lr: another learning rate.
        encoder: another network.
        epochs: other epochs.
        workers: runs beside each other.
        max_minutes: save and stop after this time; the same call goes on.
        smoke: a tiny network on generated images, for one epoch.
    """
    configure_process()
    chosen = GENERATED if smoke else {name: SETS[name] for name in sets}
    others = {name: value for name, value in {"lr": lr, "encoder": encoder, "epochs": epochs}.items() if value}
    options = Options(data_root=data / "medmnist", seeds=1 if smoke else seeds, batch_sizes=batch_sizes)
    studies = [study(name, {**settings, **others}, data, weights) for name, settings in chosen.items()]
    for one in studies:
        run_experiment(one, store=store, options=options, workers=workers, max_minutes=max_minutes)
    for one in studies:
        show_experiment(one, store=store, options=options)


if __name__ == "__main__":
    tyro.cli(main)
