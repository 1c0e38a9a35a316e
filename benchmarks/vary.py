"""What a setting gives: runs that differ in it alone, on five real sets with small networks.

    python benchmarks/vary.py warmup=0,0.05,0.1 --data DIR --store runs/vary              # hours on two cores
    python benchmarks/vary.py center_weight=0,10 --data DIR --store runs/vary --sets bloodcells/images
    python benchmarks/vary.py freeze_patch_embed=false,true lr=1e-4,3e-4 --data DIR --store runs/vary \
        --encoder vit_small_patch16 --sets caltech20
    python benchmarks/vary.py warmup=0,0.05 --smoke --store runs/vary-smoke                # generated images, a minute

Settings are those of `icone.pretrain`, or options of the method; several are combined. Probes are tested on a held-out
fifth, those of MedMNIST on the official test split. Run again, it redoes nothing. --out FILE.csv keeps the runs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro

from icone.paper import Experiment, Grid, Options, run_experiment, show_experiment
from icone.paper.results import TESTED
from icone.paper.spec import Cell
from icone.paper.store import Store
from icone.process import configure_process
from learning import markdown, spread

IMAGES: dict[str, Any] = {"encoder": "test_vit", "size": 64, "lr": 1e-3, "epochs": 20}
SETS: dict[str, dict[str, Any]] = {
    "bloodcells/images": {**IMAGES, "labels": "bloodcells/labels.csv"},
    "caltech20": IMAGES,
    "breastmnist_128_rebuilt.npz": IMAGES,
    "pneumoniamnist@28": {**IMAGES, "size": 32, "subset": 600},
    "adrenalmnist3d@28": {"encoder": "nf_resnet10_3d", "width": 0.25, "size": 28, "lr": 1e-4, "epochs": 10},
}
"""Folders and files of --data, and MedMNIST sets in its folder medmnist, with their settings."""
SHOWN = {"linear_probe": (100, 1), "auroc": (1, 3), "knn_5": (100, 1), "rankme": (1, 0), "recognition": (100, 1)}
"""Metrics of the table, by what they are multiplied, and their digits."""
GENERATED = {"synthetic:cells@32x60": {**IMAGES, "size": 32, "epochs": 1}}


def parse(text: str) -> tuple[str, list[Any]]:
    """The name of a setting and its values.

    >>> parse("warmup=0,0.05"), parse("freeze_patch_embed=false,true")
    (('warmup', [0, 0.05]), ('freeze_patch_embed', [False, True]))
    """
    name, _, values = text.partition("=")
    if not values:
        raise SystemExit(f"write a setting and its values as NAME=VALUE,VALUE, got {text!r}")
    return name, [_value(value) for value in values.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def study(name: str, settings: dict[str, Any], data: Path, vary: dict[str, list[Any]]) -> Experiment:
    """The experiment on one set."""
    settings, is_medmnist = dict(settings), "@28" in name
    labels = data / settings.pop("labels") if "labels" in settings else None
    settings = {key: value for key, value in settings.items() if key not in vary}

    def grid(options: Options) -> list[Cell]:
        options = dataclasses.replace(options, labels=labels, official_test=is_medmnist)
        source = name if "@" in name else str(data / name)
        return Grid(datasets=(source,), settings=settings, vary=vary)(options)

    where = name.split("/")[0].split("@")[0].split(".")[0].replace(":", "-")
    return Experiment(name="-".join(["vary", where, *vary]), grid=grid)


def runs_of(cells: Sequence[Cell], names: Iterable[str], store: Store) -> pd.DataFrame:
    """What was measured, a line for each run, with the settings `names` that are compared."""
    results = store.results()
    metrics = results[results["epoch"].isna()].pivot(index="run", columns="metric", values="value")
    tested = results.drop_duplicates("run").set_index("run")[["device", *TESTED]]
    lines = []
    for cell in cells:
        c, key = cell.spec.config, cell.spec.key
        chosen = dict(part.rsplit(" ", 1) for part in cell.labels["variant"].split(", "))
        usual = ("encoder", "method", "epochs", "lr", "batch_size", "seed")
        about: dict[str, Any] = {"dataset": cell.labels["dataset"]}
        about |= {name: getattr(c, name) for name in usual} | {name: chosen[name] for name in names}
        if key in metrics.index:
            lines.append(about | dict(metrics.loc[key].dropna()) | dict(tested.loc[key]))
    return pd.DataFrame(lines)


def table(runs: pd.DataFrame, names: Sequence[str]) -> str:
    """A line for every set, batch size and setting in Markdown: means and standard deviations over seeds."""
    lines = []
    for of, group in runs.groupby(["dataset", "encoder", "method", "epochs", "batch_size", *names], sort=False):
        told = [spread((scale * group[name]).tolist(), digits) for name, (scale, digits) in SHOWN.items()]
        lines.append([*map(str, of), *told, str(len(group))])
    return markdown(["set", "encoder", "method", "epochs", "B", *names, *SHOWN, "seeds"], lines)


def main(
    vary: Annotated[tuple[str, ...], tyro.conf.Positional],
    store: Path,
    data: Path = Path("data"),
    sets: tuple[str, ...] = tuple(SETS),
    methods: tuple[str, ...] = ("icone",),
    batch_sizes: tuple[int, ...] = (1, 16),
    seeds: int = 3,
    encoder: str | None = None,
    lr: float | None = None,
    epochs: int | None = None,
    out: Path | None = None,
    workers: int = 2,
    max_minutes: float | None = None,
    smoke: bool = False,
) -> None:
    """Run what is missing, and print the tables.

    Args:
        vary: NAME=VALUE,VALUE: a setting and the values that are compared.
        store: folder of the runs.
        data: folder that holds the data.
        sets: which of them.
        methods: which methods.
        batch_sizes: samples of a step.
        seeds: seeds of every setting.
        encoder: another network.
        lr: another learning rate.
        epochs: other epochs.
        out: CSV file for the runs, which are printed as a table in Markdown then.
        workers: runs beside each other.
        max_minutes: save and stop after this time; the same call goes on.
        smoke: a tiny network on generated images, for one epoch.
    """
    configure_process()
    varied = dict(map(parse, vary))
    chosen = GENERATED if smoke else {name: SETS[name] for name in sets}
    others = {name: value for name, value in {"lr": lr, "encoder": encoder, "epochs": epochs}.items() if value}
    options = Options(
        data_root=data / "medmnist", seeds=1 if smoke else seeds, batch_sizes=batch_sizes, methods=methods
    )
    studies = [study(name, {**settings, **others}, data, varied) for name, settings in chosen.items()]
    for one in studies:
        run_experiment(one, store=store, options=options, workers=workers, max_minutes=max_minutes)
    for one in studies:
        show_experiment(one, store=store, options=options)
    if out is not None:
        found = Store(store)
        runs = pd.concat([runs_of(one.grid(options), varied, found) for one in studies])
        runs.to_csv(out, index=False)
        print(table(runs, list(varied)))


if __name__ == "__main__":
    tyro.cli(main)
