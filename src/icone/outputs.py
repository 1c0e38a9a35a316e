"""Where a verb writes without `--out`: into the folder of the run that it is about, where no other run writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from icone.config import OBJECT, is_object
from icone.run import Run
from icone.seeds import group_seeds, seed_folders

NAMED = 4
"""Runs that the name of a file about several of them names; of more it names the first, and counts the others."""
_TABLE = r"(embeddings|predictions|features|feature-maps)(-.+)?\.(parquet|csv|zarr|png|npz)"
_OUTPUT = re.compile(rf"report\.html|figures|(encoder|classifier)-\w+(\.\w+)*|(?!features\.npz){_TABLE}")
"""What verbs write; features.npz is a file of the run itself."""


def source_name(source: str) -> str:
    """The last part of the name of a source, without its suffix.

    >>> source_name("data/scans/"), source_name("medmnist:adrenalmnist3d@64"), source_name("scans.h5:/images")
    ('scans', 'adrenalmnist3d@64', 'scans')
    >>> source_name("new/brain.nii.gz")
    'brain'
    """
    if is_object(source):
        return source.removeprefix(OBJECT).split()[0].lower()
    return Path(source.partition(":/")[0].rsplit(":", 1)[-1].removesuffix(".gz")).stem


def default_folder(source: str) -> Path:
    """The folder of a new run: `runs/` and the name of the source.

    >>> default_folder("data/scans/").as_posix()
    'runs/scans'
    """
    return Path("runs") / (source_name(source) or "run")


def from_here(path: Path) -> Path:
    """A path as it is printed: relative where it lies below the working directory, else as it is.

    >>> from_here(Path.cwd() / "runs" / "a").as_posix(), from_here(Path("runs/a")).as_posix()
    ('runs/a', 'runs/a')
    """
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def output_of_run(folder: Path, name: str, source: str | None = None) -> Path:
    """A file or folder in a run folder; what is about other data than the run's own has the name of that data too.

    >>> output_of_run(Path("runs/a"), "embeddings.parquet").as_posix()
    'runs/a/embeddings.parquet'
    >>> output_of_run(Path("runs/a"), "embeddings.parquet", "new/slides").as_posix()
    'runs/a/embeddings-slides.parquet'
    """
    path = folder / name
    return path if source is None else path.with_name(f"{path.stem}-{source_name(source) or 'data'}{path.suffix}")


def output_of_runs(runs: Sequence[Run], name: str) -> Path:
    """A file or folder about runs: in the one run, in the folder of all its seeds, else here, named after the runs.

    >>> output_of_runs([Run("runs/a")], "report.html").as_posix()
    'runs/a/report.html'
    >>> output_of_runs([Run("runs/a"), Run("runs/b")], "report.html").as_posix()
    'report-a-b.html'
    """
    groups = group_seeds(runs)
    folder = runs[0].folder if len(runs) == 1 else runs[0].folder.parent
    given, seeds = ({path.absolute() for path in paths} for paths in ((r.folder for r in runs), seed_folders(folder)))
    if len(runs) == 1 or given == seeds:
        return folder / name
    names = [re.sub(r"[/\\]+", "-", group.name).strip("-") for group in groups]
    if len(set(names)) < len(names):
        names = [f"{group.runs[0].folder.absolute().parent.name}-{group.name}" for group in groups]
    if len(groups) == 1:
        names = [names[0], *(run.folder.name for run in runs)]
    if len(names) > NAMED:
        names = [names[0], f"and-{len(names) - 1}-more"]
    path = Path(name)
    return path.with_name("-".join([path.stem, *names]) + path.suffix)


def is_output(path: Path) -> bool:
    """Whether something in a run folder has the name of what a verb writes there without `--out`.

    >>> is_output(Path("runs/a/report.html")), is_output(Path("runs/a/encoder.safetensors"))
    (True, False)
    """
    return _OUTPUT.fullmatch(path.name) is not None


def outputs_in(folder: Path) -> list[str]:
    """The names of what verbs have written into a run folder without `--out`."""
    return sorted(path.name for path in folder.iterdir() if is_output(path)) if folder.is_dir() else []
