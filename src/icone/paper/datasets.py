"""The data sets of the paper by name, and those that a user brings."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from icone.config import DataConfig
from icone.data import open_source
from icone.data.sources.synthetic import open_synthetic
from icone.data.targets import TaskSetting
from icone.errors import InputError
from icone.paper.contents import Contents, content_digest
from icone.paper.options import Options
from icone.validation import user_path

PAPER_2D = {
    "bloodmnist": "Blood",
    "breastmnist": "Breast",
    "organamnist": "OrganA",
    "organcmnist": "OrganC",
    "organsmnist": "OrganS",
    "pathmnist": "Path",
    "pneumoniamnist": "Pneumonia",
}
PAPER_3D = {
    "organmnist3d": "Organ3D",
    "nodulemnist3d": "Nodule3D",
    "adrenalmnist3d": "Adrenal3D",
    "fracturemnist3d": "Fracture3D",
    "synapsemnist3d": "Synapse3D",
    "vesselmnist3d": "Vessel3D",
}
SUBSET_2D = 5000
"""Samples drawn from a 2D set where the experiment does not vary them: the largest of the paper's four sizes."""
TRAINING_SPLIT = {
    "bloodmnist": 11959, "breastmnist": 546, "organamnist": 34561, "organcmnist": 12975, "organsmnist": 13932,
    "pathmnist": 89996, "pneumoniamnist": 4708, "organmnist3d": 971, "nodulemnist3d": 1158, "adrenalmnist3d": 1188,
    "fracturemnist3d": 1027, "synapsemnist3d": 1230, "vesselmnist3d": 1335,
}  # fmt: skip
"""Images in the official training splits, for estimates before any data is read."""
SMOKE = {2: ("synthetic:cells@32x80", "synthetic:cells@48x80"), 3: ("synthetic:shapes@16x80", "synthetic:shapes@20x80")}
"""Of 80 samples 64 train: as many as the largest batch of the printed tables."""
SMOKE_SUBSET = 80


@dataclass(frozen=True)
class PaperDataset:
    """A data set in an experiment."""

    title: str
    source: str
    dims: int
    subset: int | None
    count: int | None
    """Samples, where they are known without reading the data."""
    contents: Contents
    """What it holds now, so that all its runs are named after one look."""

    @property
    def samples(self) -> int | None:
        if self.subset is None or self.count is None:
            return self.count or self.subset
        return min(self.subset, self.count)


def datasets(options: Options, dims: int) -> list[PaperDataset]:
    """The data sets of this dimension that the options ask for: the given ones, the miniature or the paper's."""
    names = options.datasets or (SMOKE[dims] if options.smoke else tuple(PAPER_2D if dims == 2 else PAPER_3D))
    found = [find_dataset(name, options) for name in names]
    return [dataset for dataset in found if dataset.dims == dims]


def find_dataset(name: str, options: Options, task: TaskSetting = "auto") -> PaperDataset:
    """The data set behind a MedMNIST name, a synthetic name, a folder or an array file; `task` is what labels are."""
    if name.startswith("synthetic:"):
        synthetic = open_synthetic(name, "train")
        subset = SMOKE_SUBSET if options.smoke and options.subset is None else options.subset
        title = name.removeprefix("synthetic:")
        return _dataset(title, name, synthetic.spatial_dims, subset, len(synthetic), options)
    bare = name.removeprefix("medmnist:").partition("@")[0]
    if bare in TRAINING_SPLIT or name.startswith("medmnist:") or bare in _medmnist():
        dims = 3 if bare.endswith("3d") else 2
        size = name.partition("@")[2] or ("64" if dims == 3 else "224")
        title = {**PAPER_2D, **PAPER_3D}.get(bare, bare)
        subset = _subset_2d(options) if dims == 2 else None
        count = TRAINING_SPLIT.get(bare) or _medmnist().get(bare)
        return _dataset(title, f"medmnist:{bare}@{size}", dims, subset, count, options)
    path = user_path(name).resolve()
    if not path.exists():
        known = ", ".join([*PAPER_2D, *PAPER_3D])
        raise InputError(f"there is no data set {name!r}: give a folder, a file, synthetic:NAME, or one of {known}")
    source = open_source(str(path), DataConfig(labels=options.labels, task=task))
    if source.labels is not None and source.task != "classification":
        kind = "numbers" if source.task == "regression" else "several per sample"
        raise InputError(
            f"the labels of {path} are {kind}, and the experiments are scored by classes: give a table with the class "
            "of every sample, a name such as grade 2 where classes are numbers, with --labels=FILE.csv"
        )
    if len(set(source.labels or ()) - {None}) < 2:
        raise InputError(
            f"{path} has no two classes, by which the experiments are scored: "
            "give a folder whose subfolders are classes, or a table of labels with --labels=FILE.csv"
        )
    subset = _subset_2d(options) if source.spatial_dims == 2 else options.subset
    return _dataset(path.stem, str(path), source.spatial_dims, subset, len(source), options)


@functools.cache
def _medmnist() -> dict[str, int]:
    """Images in the official training splits of all MedMNIST sets, where the package is installed; else the paper's.

    The package imports much, so it is asked for sets outside the paper alone.
    """
    try:
        from medmnist.info import INFO
    except ImportError:
        return TRAINING_SPLIT
    return {name: int(entry["n_samples"]["train"]) for name, entry in INFO.items()}


def _dataset(
    title: str, source: str, dims: int, subset: int | None, count: int | None, options: Options
) -> PaperDataset:
    labels = None if options.labels is None else content_digest(options.labels)
    if subset is not None and count is not None and subset >= count and dims == 2 and not options.smoke:
        subset = max(subset, SUBSET_2D)  # all of it, whatever is asked for beyond: the same runs
    return PaperDataset(title, source, dims, subset, count, Contents(content_digest(source), labels))


def _subset_2d(options: Options) -> int:
    return SUBSET_2D if options.subset is None else options.subset
