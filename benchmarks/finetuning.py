"""How much does pretraining give with few labels, and is fine-tuning better than a probe?

    python benchmarks/finetuning.py --data DATA --work /tmp/finetuning --out results.jsonl --workers 8 --seconds 330
    python benchmarks/finetuning.py --out results.jsonl --table          # the Markdown table of what is there
    python benchmarks/finetuning.py --data DATA --work /tmp/finetuning --out grid.jsonl --grid --fractions 1 0.1

Four rows for every set, share of the labels and seed: the network trained from random weights, the linear probe of the
untrained and of the pretrained encoder, and the pretrained encoder fine-tuned. All get the same labels, and all are
tested on the same samples, which pretraining never saw. The score is the balanced accuracy in percent.

`--grid` compares recipes of fine-tuning instead. It tests on a quarter of the training samples, so that the recipe is
chosen without the test samples of the table. DATA holds `medmnist/adrenalmnist3d_64.npz`, `bloodcells/labels.csv` with
`images/`, and `caltech20/CLASS/*.jpg`. What was measured before is not repeated, and what was cut off is resumed.
"""

from __future__ import annotations

import csv
import io
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from sklearn.model_selection import train_test_split

import icone
from icone.run import Run
from jobs import Limits, Row, append, finished_jobs, read
from learning import markdown, spread

SETS: dict[str, dict[str, Any]] = {
    "adrenal": {"encoder": "resnet18_3d", "size": 64, "epochs": 15},
    "blood": {"encoder": "resnet18", "size": 64, "epochs": 100, "image_views": {"vertical_flip": 0.5}},
    "caltech": {"encoder": "resnet18", "size": 128, "epochs": 60},
}
"""Settings of pretraining, which is that of the package otherwise."""
TITLES = {"adrenal": "AdrenalMNIST3D (64³)", "blood": "blood cells", "caltech": "Caltech-101, 20 classes"}
ROWS = {
    "from_scratch": "from scratch, fine-tuned",
    "untrained": "untrained + probe",
    "trained": "pretrained + probe",
    "fine_tuned": "pretrained + fine-tuned",
}
FEWEST = 10
"""Samples that a class needs to take part: the one test sample of a class of three would be a fifth of the score."""
TEST_FRACTION = 0.25
GRID: dict[str, dict[str, Any]] = {
    "default": {},
    "lr 3e-4": {"lr": 3e-4},
    "lr 3e-3": {"lr": 3e-3},
    "encoder_lr 0.1": {"encoder_lr": 0.1},
    "encoder_lr 0.1, layer_decay 0.75": {"encoder_lr": 0.1, "layer_decay": 0.75},
    "layer_decay 0.75": {"layer_decay": 0.75},
    "encoder_lr 1": {"encoder_lr": 1.0},
    "val_fraction 0": {"val_fraction": 0.0},
    "val_fraction 0.2": {"val_fraction": 0.2},
    "val_fraction 0.2, patience 50": {"val_fraction": 0.2, "patience": 50},
    "val_fraction 0, classes as frequent": {"val_fraction": 0.0, "balance_classes": False},
    "val_fraction 0.2, classes as frequent": {"val_fraction": 0.2, "balance_classes": False},
    "no views": {"augment": "none"},
    "frozen half": {"freeze": 0.5},
}
"""Recipes that `--grid` compares, by what differs from the default."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured, and where."""

    out: Path
    """JSON lines: a measurement each. What it holds already is not measured again."""
    data: Path = Path("data")
    work: Path = Path("finetuning-runs")
    """Folder of the runs, which an interrupted measurement goes on with."""
    sets: tuple[str, ...] = tuple(SETS)
    fractions: tuple[float, ...] = (1.0, 0.5, 0.1)
    seeds: int = 3
    grid: bool = False
    recipes: tuple[str, ...] = tuple(GRID)
    """Recipes of the grid."""
    recipe: str = "default"
    """Recipe of the table, one of the grid."""
    table: bool = False
    """Print the table of --out, and measure nothing."""
    workers: int = 4
    """Processes side by side."""
    threads: int = 1
    """Threads of each."""
    seconds: float = 1e9
    """Begin nothing after this time, and cut off what still runs."""
    batch_size: int = 16
    """Of pretraining."""
    pretrain_epochs: int | None = None
    finetune_epochs: int | None = None
    width: float = 1.0
    """Of the 3D network."""
    size: int | None = None
    encoder: str | None = None
    """Instead of those of `SETS`, with --size: for a trial on a CPU."""
    subset: int | None = None
    """Pretrain on so many samples."""
    device: str = "auto"


@dataclass(frozen=True)
class Job:
    """One call of the package: `pretrain` (with probes) or `finetune`."""

    data: str
    seed: int
    fraction: float | None = None
    recipe: str | None = None


def settings_of(name: str, options: Options, seed: int) -> Row:
    """Settings of `icone.pretrain` for a set, its data among them."""
    settings = {**SETS[name], "batch_size": options.batch_size, "width": options.width, "seed": seed}
    changes = {
        "epochs": options.pretrain_epochs, "size": options.size, "encoder": options.encoder, "subset": options.subset,
    }  # fmt: skip
    settings |= {key: value for key, value in changes.items() if value is not None}
    if "image_views" in settings:
        settings["image_views"] = icone.config.ImageViews(**settings["image_views"])
    if name == "adrenal":
        return {**settings, "source": "medmnist:adrenalmnist3d@64", "data_root": options.data / "medmnist"}
    return {**settings, "source": options.work.resolve() / f"{name}-train.csv"}


def labelled_files(name: str, data: Path) -> list[tuple[Path, str]]:
    """The files of a set with their labels, those of classes that are too small left out."""
    folder = data / {"blood": "bloodcells", "caltech": "caltech20"}[name]
    if name == "blood":
        with (folder / "labels.csv").open(newline="") as file:
            found = [(folder / "images" / row["file"], row["label"]) for row in csv.DictReader(file)]
    else:
        found = [(path, path.parent.name) for path in sorted(folder.glob("*/*.jpg"))]
    counts = Counter(label for _, label in found)
    return [(path.resolve(), label) for path, label in found if counts[label] >= FEWEST]


def write_parts(name: str, files: Sequence[tuple[Path, str]], folder: Path, test_fraction: float) -> None:
    """Part a set of files into two tables, stratified, the same for all seeds."""
    labels = [label for _, label in files]
    parts = train_test_split(files, test_size=test_fraction, random_state=0, stratify=labels)
    for part, rows in zip(("train", "test"), parts, strict=True):
        write_table(folder / f"{name}-{part}.csv", rows)


def write_table(file: Path, rows: Sequence[tuple[Path, str]]) -> None:
    """A table of files and labels that is a source of `icone.pretrain`."""
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([("path", "label"), *sorted(rows)])


def test_part(name: str, options: Options) -> Row:
    """The arguments of `icone.evaluate` and `icone.finetune` that choose the test samples."""
    if options.grid:
        return {"test_fraction": TEST_FRACTION}
    return {"official_test": True} if name == "adrenal" else {"test": options.work.resolve() / f"{name}-test.csv"}


def same_run(row: Row, job: Job) -> bool:
    """Whether a measurement is of the run that a job pretrains."""
    return (row["data"], row["seed"]) == (job.data, job.seed)


def pretrain(job: Job, options: Options) -> list[Row]:
    """Pretrain, and measure the probes of both encoders with every share of the labels."""
    folder = options.work / f"{job.data}-{job.seed}"
    console, began = Console(file=io.StringIO()), time.monotonic()
    if not (Run(folder).exists() and Run(folder).finished):
        icone.pretrain(
            **settings_of(job.data, options, job.seed), probe_every=0, device=options.device, out=folder,
            resume=Run(folder).exists(), console=console,
        )  # fmt: skip
    trained = time.monotonic() - began
    known = {row["fraction"] for row in read(options.out) if row["row"] == "trained" and same_run(row, job)}
    if options.grid or known.issuperset(options.fractions):
        return []
    result = icone.evaluate(
        folder, **test_part(job.data, options), label_fractions=options.fractions, geometry_instances=0,
        device=options.device, console=console,
    )  # fmt: skip
    rows = []
    for encoder, fraction in itertools.product(("untrained", "trained"), options.fractions):
        points = result["label_efficiency"]["points"][encoder]["linear_probe"]
        point = next(point for point in points if point["fraction"] == fraction)
        score = point["scores"][job.seed if fraction < 1 else 0]  # draw s has the labels of a fine-tuning with seed s
        about = {"row": encoder, "score": 100 * score, "labels": point["labels"], "test": result["data"]["test"]}
        rows.append({"data": job.data, "seed": job.seed, "fraction": fraction, **about})
    return [{**row, "pretrain_seconds": trained, "seconds": time.monotonic() - began} for row in rows]


def finetune(job: Job, options: Options) -> list[Row]:
    """Fine-tune with a share of the labels; without a recipe, from scratch too."""
    folder = options.work / f"{job.data}-{job.seed}-{job.recipe or 'tuned'}-{job.fraction:g}".replace(" ", "-")
    settings = dict(GRID[job.recipe or options.recipe])
    if options.finetune_epochs is not None:
        settings["epochs"] = options.finetune_epochs
    began = time.monotonic()
    tuned = icone.finetune(
        options.work / f"{job.data}-{job.seed}", **test_part(job.data, options), scratch=job.recipe is None,
        fraction=job.fraction, seed=job.seed, out=folder, resume=folder.exists(), device=options.device,
        console=Console(file=io.StringIO()), **settings,
    )  # fmt: skip
    result, rows = tuned.result, []
    for name in ("from_scratch", "fine_tuned", "trained"):
        key = "probe" if name == "trained" and job.recipe else name  # else `pretrain` has measured it
        if key in result:
            data, found = result["data"], result[key]
            about = {"labels": data["train"] + data["val"], "test": data["test"], **result["training"].get(name, {})}
            scores = {"score": 100 * found["balanced_accuracy"], "auroc": found.get("auroc")}
            scores["probe"] = 100 * result["probe"]["balanced_accuracy"]
            rows.append({"data": job.data, "seed": job.seed, "fraction": job.fraction, "row": name, **scores, **about})
    return [{**row, "recipe": job.recipe, "seconds": time.monotonic() - began} for row in rows]


def work(job: Job, options: Options) -> list[Row]:
    """One job, in a process of its own."""
    torch.set_num_threads(options.threads)
    return pretrain(job, options) if job.fraction is None else finetune(job, options)


def measure(options: Options, console: Console) -> None:
    """Do what is missing, `options.workers` jobs at a time; the fine-tunings of a run begin when it is pretrained."""
    known = read(options.out)
    done = {Job(row["data"], row["seed"], row["fraction"], row.get("recipe")) for row in known if "recipe" in row}
    options.work.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        if name != "adrenal" and not (options.work / f"{name}-test.csv").exists():
            write_parts(name, labelled_files(name, options.data), options.work, TEST_FRACTION)

    def follow(job: Job) -> list[Job]:
        recipes: Iterable[str | None] = options.recipes if options.grid else [None]
        shares = () if job.fraction is not None else options.fractions
        jobs = [Job(job.data, job.seed, *one) for one in itertools.product(shares, recipes)]
        return [one for one in jobs if one not in done]

    first = [Job(name, seed) for seed, name in itertools.product(range(options.seeds), options.sets)]
    limits = Limits(options.workers, options.seconds)
    for _, found in finished_jobs(work, first, options, limits, console, follow):
        append(options.out, found)


def _network(row: Row) -> str:
    """What a measurement is of: a row of the table, or a recipe of the grid."""
    return row["recipe"] if row.get("recipe") and row["row"] == "fine_tuned" else str(row["row"])


def table(rows: Sequence[Row]) -> str:
    """Mean ± standard deviation over seeds of every set, row and share of the labels, in Markdown."""
    shares = sorted({row["fraction"] for row in rows})
    lines = []
    for data, name in itertools.product(SETS, (*ROWS, *GRID)):
        cells: list[str] = []
        seeds: set[int] = set()
        for share in shares:
            here = {
                row["seed"]: row["score"] for row in rows
                if (row["data"], row["fraction"]) == (data, share) and name == _network(row)
            }  # fmt: skip
            seeds |= here.keys()
            cells.append(spread(list(here.values())) if here else "–")
        if seeds:
            lines.append([TITLES[data], ROWS.get(name, name), *cells, str(len(seeds))])
    return markdown(["data", "network", *(f"{share:.0%} of labels" for share in shares), "seeds"], lines) + "\n"


def main(options: Options) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if not options.table:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        measure(options, console)
    console.print(table(read(options.out)), markup=False)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
