"""Folders of seeds: seed-0, seed-1, … in one folder, as `icone pretrain --seeds` writes them, are one group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from icone.config import PretrainConfig
from icone.config_text import to_command, to_toml
from icone.find_runs import is_finetuned
from icone.run import Run, free_folder
from icone.terminal import counted

SEED = re.compile(r"seed-(\d+)")
TUNED_SEED = re.compile(r"seed-\d+-.+")
"""A fine-tuning of such a run: without `--out`, that of seed-0 is seed-0-finetuned."""


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ in their seed alone, or a single run."""

    name: str
    runs: tuple[Run, ...]


def seed_folders(folder: str | Path) -> list[Path]:
    """The folders seed-0, seed-1, … of a folder that is no run itself, by number; none elsewhere."""
    folder = Path(folder)
    if Run(folder).exists() or not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := SEED.fullmatch(path.name))]
    return [path for _, path in sorted(found) if path.is_dir()]


def seeds_command(configs: Sequence[PretrainConfig], runs: Sequence[Run]) -> list[str]:
    """The words of the command line that repeat a whole folder of seeds in a new one; none for runs that are no such.

    >>> seeds = [PretrainConfig(source="scans", warmup=0.05, seed=seed) for seed in (3, 4)]
    >>> seeds_command(seeds, [Run("runs/no such run/seed-3"), Run("runs/no such run/seed-4")])
    ['icone', 'pretrain', 'scans', '--batch-size', '1', '--seed', '3', '--out', 'runs/no such run-2', '--seeds', '2']
    >>> seeds_command(seeds, [Run("a"), Run("b")])
    []
    """
    first, folder = configs[0], runs[0].folder.parent
    expected = [
        (replace(first, seed=seed), folder / f"seed-{seed}") for seed in range(first.seed, first.seed + len(runs))
    ]
    found = [(config, run.folder) for config, run in zip(configs, runs, strict=True)]
    if len(runs) == 1 or found != expected or to_toml(first) is None:
        return []
    return [*to_command(first, free_folder(folder)), "--seeds", str(len(runs))]


def expand_seeds(given: str | Path | Run | Sequence[str | Path | Run]) -> list[Run]:
    """Runs, with the runs of a folder of seeds in its place; whether each exists is seen when it is opened."""
    return [
        run
        for one in ([given] if isinstance(given, (str, Path, Run)) else given)
        for run in ([one] if isinstance(one, Run) else [Run(path) for path in seed_folders(one) or [Path(one)]])
    ]


def group_seeds(runs: Sequence[Run]) -> list[SeedGroup]:
    """Runs of one folder of seeds together, under its name; others each for itself; in the order of the first ones.

    >>> [(group.name, len(group.runs)) for group in group_seeds([Run("a/seed-0"), Run("b"), Run("a/seed-1")])]
    [('a', 2), ('b', 1)]

    Fine-tunings of the runs of such a folder are a group too: seed-0-finetuned and seed-1-finetuned.
    """
    together: dict[Path, list[Run]] = {}
    for run in runs:
        together.setdefault(_whole(run), []).append(run)
    short = [folder.name for folder in together]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in together]
    return [
        SeedGroup(name if len(members) > 1 else run_names(members)[0], tuple(members))
        for name, members in zip(names, together.values(), strict=True)
    ]


def _whole(run: Run) -> Path:
    """The folder of seeds that a run belongs to, or its own; `a/seed-0-grade` belongs to what is called `a-grade`."""
    folder = run.folder.absolute()
    if not _is_seed(folder):
        return folder
    return folder.parent.with_name(folder.parent.name + re.sub(r"^seed-\d+", "", folder.name))


def _is_seed(folder: Path) -> bool:
    """Whether the name of a folder is that of one seed of several, or of its fine-tuning."""
    return SEED.fullmatch(folder.name) is not None or (
        TUNED_SEED.fullmatch(folder.name) is not None and is_finetuned(folder)
    )


def unequal_training(runs: Sequence[Run]) -> str:
    """A sentence where runs of one group were not trained alike: one may have been extended alone. Else nothing."""
    together: dict[str, list[str]] = {}
    for run in runs:
        epochs, samples = len(run.history), int(run.record["data"]["instances"])
        trained = f"{counted(epochs, 'epoch')} of {counted(samples, 'sample')}"
        together.setdefault(trained, []).append(run.folder.name)
    if len(together) < 2:
        return ""
    parts = "; ".join(f"{', '.join(names)}: {trained}" for trained, names in together.items())
    return f"the seeds were not trained alike, so that their mean is of different trainings ({parts})"


def run_names(runs: Sequence[Run]) -> list[str]:
    """Names that tell runs apart: the last folder, or the whole path where two are called the same.

    >>> run_names([Run("a/x"), Run("b/x")]), run_names([Run("runs/scans/")]), run_names([Run("runs/scans/seed-0")])
    (['a/x', 'b/x'], ['scans'], ['scans/seed-0'])
    """
    folders = [run.folder.absolute() for run in runs]
    short = [f"{f.parent.name}/{f.name}" if _is_seed(f) else f.name for f in folders]
    return short if len(set(short)) == len(short) else [str(run.folder) for run in runs]
