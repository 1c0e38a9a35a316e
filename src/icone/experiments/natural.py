"""The natural-image subset: 20 classes of any folder of classes, up to 250 images each."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np

from icone.data.folder import FolderSource
from icone.errors import InputError
from icone.experiments.datasets import Dataset, find_dataset
from icone.experiments.options import Options

CLASSES = 20
PER_CLASS = 250


def natural_subset(name: str, options: Options) -> Dataset:
    """The folder itself where it is small enough, else a folder of links to classes and images drawn once.

    The links lie in the user's cache folder under a name that depends on the original alone.
    """
    folder = Path(name).expanduser().resolve()
    if not folder.is_dir():
        raise InputError(f"natural-images needs a folder with {CLASSES} classes or more: --datasets FOLDER, not {name}")
    members = _by_class(folder)
    if len(members) < CLASSES:
        raise InputError(
            f"{folder} has {len(members)} classes, but natural-images compares {CLASSES}: "
            "give a folder whose subfolders are at least that many classes"
        )
    if len(members) > CLASSES or max(map(len, members.values())) > PER_CLASS:
        folder = _linked(folder, members)
    return find_dataset(str(folder), options)


def _by_class(folder: Path) -> dict[str, list[Path]]:
    source = FolderSource(folder)
    members: dict[str, list[Path]] = {}
    for label, path in zip(source.labels or (), source.paths, strict=False):
        if label is not None and path is not None:
            members.setdefault(label, []).append(path)
    return members


def _linked(folder: Path, members: dict[str, list[Path]]) -> Path:
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "icone"
    place = cache / f"{folder.name}-{CLASSES}x{PER_CLASS}-{digest}"
    rng = np.random.default_rng(0)
    for label in sorted(rng.choice(sorted(members), CLASSES, replace=False)):
        paths = sorted(members[label])
        target = place / label.replace("/", "_")
        target.mkdir(parents=True, exist_ok=True)
        for i in sorted(rng.permutation(len(paths))[:PER_CLASS]):
            link = target / f"{i:06d}{paths[i].suffix}"
            with contextlib.suppress(FileExistsError):  # from before, or by a sweep that starts at the same moment
                link.symlink_to(paths[i])
    return place
