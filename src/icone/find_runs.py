"""Runs near a place where somebody looked for one: an error names those that are there, newest first."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from icone.errors import InputError, nearest_names
from icone.validation import MOST_ENTRIES, meant_path

FINETUNED = "fine-tuned classifier"
"""Marks the config.json of a folder of `icone finetune`."""
USUAL = Path("runs")
"""Where runs are by default."""
LISTED = 10
"""Runs that an error names."""

Wanted = Callable[[Path], bool]


class NoRun(InputError):
    """There is no run where one was looked for; `folder` is what was given, and `instead` one that is there."""

    folder: Path | None = None
    instead: Path | None = None


def is_pretrained(folder: Path) -> bool:
    """Whether a folder is that of a run of `icone pretrain`; exported encoders have a config.json too."""
    return os.path.isfile(folder / "config.json") and os.path.isfile(folder / "instances.json")


def is_finetuned(folder: Path) -> bool:
    """Whether a folder is that of `icone finetune`, whose config.json is another."""
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return bool(content.get("kind") == FINETUNED)
    except (OSError, ValueError, AttributeError):
        return False  # what is wrong with it is said when it is needed


def runs_in(folder: Path, wanted: Wanted = is_pretrained, levels: int = 2) -> list[Path]:
    """The runs in a folder, and in its folders that are none themselves (seeds, for example), newest first."""
    found = itertools.islice(_walk(folder, wanted, levels), MOST_ENTRIES)
    runs = [path for path in found if path is not None]
    return sorted(runs, key=lambda path: (-(path / "config.json").stat().st_mtime, path))


def _walk(folder: Path, wanted: Wanted, levels: int) -> Iterator[Path | None]:
    """Every entry of a folder, level by level: its path where it is a run, else None."""
    try:
        with os.scandir(folder) as entries:
            inner = [entry.name for entry in itertools.islice(entries, MOST_ENTRIES) if _is_folder(entry)]
    except OSError:
        return
    others = []
    for name in sorted(inner):
        path = folder / name
        is_run = wanted(path)
        yield path if is_run else None
        if not is_run and not (path / "config.json").exists():
            others.append(path)
    for path in others if levels > 1 else []:
        yield from _walk(path, wanted, levels - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir()
    except OSError:
        return False


def no_run(folder: Path | None, problem: str, wanted: Wanted = is_pretrained) -> NoRun:
    """The error about a folder that is no run, or about none that was given: what is wrong, and the runs there are.

    They are looked for in the folder, beside it, and in runs/. A run with nearly the same name was meant.
    """
    inside = [] if folder is None else runs_in(folder, wanted)
    beside = [] if folder is None or inside else runs_in(folder.parent, wanted, levels=1)
    found = inside or beside or runs_in(USUAL, wanted)
    tuned = [] if folder is None or inside else runs_in(folder.parent, is_finetuned, levels=1)
    by_name = {path.name: path for path in (*tuned, *reversed(found))}
    meant = [] if folder is None or inside else nearest_names(folder.name, by_name, most=1)
    if meant:
        text = f"{problem}; did you mean {by_name[meant[0]]}?"
    elif found:
        more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
        text = f"{problem}. Runs that are there, newest first: {', '.join(map(str, found[:LISTED]))}{more}"
    elif folder is not None:
        text = problem + (meant_path(folder) or ": check the path")
    else:
        text = f"{problem}, and there is none in {USUAL}/"
    error = NoRun(text)
    error.folder = folder
    error.instead = by_name[meant[0]] if meant else found[0] if found else None
    return error
