"""Natural images: 20 classes of any folder of classes, up to 250 images each."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from icone.data.sources.folder import FolderSource
from icone.errors import InputError
from icone.paper.datasets import SMOKE, PaperDataset, find_dataset
from icone.paper.experiments.base import Experiment
from icone.paper.experiments.stability import show_stability
from icone.paper.grids import method_grid
from icone.paper.options import Options
from icone.paper.spec import Cell
from icone.validation import user_path

CLASSES = 20
PER_CLASS = 250


def natural_subset(name: str, options: Options) -> PaperDataset:
    """The folder itself where it is small enough, else a folder of links to classes and images drawn once.

    The links lie in the user's cache folder under a name that depends on what they point to.
    """
    folder = user_path(name).resolve()
    if not folder.is_dir():
        raise InputError(
            f"natural-images needs a folder with {CLASSES} classes or more: --natural-images FOLDER, not {name}"
        )
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
    """A folder with exactly these links: complete, or absent."""
    links = _chosen(members)
    digest = hashlib.sha256(json.dumps(links).encode()).hexdigest()[:8]
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "icone"
    place = cache / f"{folder.name}-{CLASSES}x{PER_CLASS}-{digest}"
    if _links_in(place) == links:
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".natural-", dir=cache) as temporary:
        fresh = Path(temporary, "fresh")
        for name, target in links.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).symlink_to(target)
        if place.exists():  # links were taken away or added by hand
            place.rename(Path(temporary, "old"))
        try:
            fresh.rename(place)
        except OSError:
            if _links_in(place) != links:  # else a sweep that started at the same moment was quicker
                raise
    return place


def _chosen(members: dict[str, list[Path]]) -> dict[str, str]:
    """Names of the links and what they point to: the same for the same files, and drawn anew where they change."""
    rng = np.random.default_rng(0)
    links = {}
    for label in sorted(rng.choice(sorted(members), CLASSES, replace=False)):
        paths = sorted(members[label])
        for i in sorted(rng.permutation(len(paths))[:PER_CLASS]):
            links[f"{label.replace('/', '_')}/{i:06d}{paths[i].suffix}"] = str(paths[i])
    return links


def _links_in(place: Path) -> dict[str, str]:
    found = sorted(path for path in place.rglob("*") if not path.is_dir())
    return {path.relative_to(place).as_posix(): os.readlink(path) if path.is_symlink() else "" for path in found}


def _grid(options: Options) -> list[Cell]:
    """20 classes of a folder, up to 250 images each; without a folder there is nothing to run."""
    folders = [str(options.natural_images)] if options.natural_images else _folders(options)
    if options.smoke and not folders:
        return list(method_grid(options, 2, sets=[find_dataset(SMOKE[2][0], options)]))
    return list(method_grid(options, 2, sets=[natural_subset(folder, options) for folder in folders[:1]]))


def _folders(options: Options) -> list[str]:
    """The data sets that are folders, of which the others are for other experiments; what is no folder where all are
    none."""
    return [name for name in options.datasets if user_path(name).is_dir()] or list(options.datasets)


NATURAL_IMAGES = Experiment(
    name="natural-images", labels=("fig:imagenet_subset",), needs="--natural-images FOLDER of 20 classes", grid=_grid,
    present=show_stability,
)  # fmt: skip
