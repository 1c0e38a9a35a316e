"""From what the user wrote to a source."""

from __future__ import annotations

from icone.config import DataConfig
from icone.data.labels import read_labels
from icone.data.sources.array_file import SUFFIXES, ArraySource
from icone.data.sources.base import Source
from icone.data.sources.folder import FolderSource
from icone.data.sources.medmnist import open_medmnist
from icone.data.sources.synthetic import open_synthetic
from icone.errors import InputError
from icone.validation import user_path


def open_source(spec: str, config: DataConfig) -> Source:
    """The data set behind a folder, an array file, `medmnist:NAME@SIZE` or `synthetic:NAME@SIZExCOUNT`.

    >>> source = open_source("synthetic:gaussians", DataConfig())
    >>> len(source), source.spatial_dims, source.ids[0]
    (1750, 0, '000000')
    """
    for text in (spec, str(config.labels or ""), str(config.data_root or "")):
        _check_utf8(text)
    source = _open(spec, config)
    if config.labels is not None:
        source.labels = read_labels(config.labels, source.ids)
    return source


def check_splits(source: Source, spec: str, flag: str) -> None:
    """Refuse a flag that chooses an official split of a source that has none."""
    if not source.splits:
        raise InputError(
            f"{spec} has no official splits, so {flag} means nothing: it is for MedMNIST, synthetic sets and .npz "
            "files that hold train_images, test_images and so on. --test-fraction 0.2 at pretraining holds samples out"
        )


def _check_utf8(path: str) -> None:
    """Refuse a path that a run could not write down; names below a folder are recorded in a `printable` form."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the path {path} is not UTF-8; rename it, or make a link to it with another name") from error


def _open(spec: str, config: DataConfig) -> Source:
    if spec.startswith("medmnist:"):
        return open_medmnist(spec, config.data_root, config.split)
    if spec.startswith("synthetic:"):
        return open_synthetic(spec, config.split)
    if not spec:
        raise InputError("the source is empty; give a folder, an array file, medmnist:NAME or synthetic:NAME")
    path = user_path(spec)
    if path.suffix.lower() in SUFFIXES:
        return ArraySource(path, config.split)
    if path.is_dir():
        return FolderSource(path)
    if path.exists():
        raise InputError(f"{path} is one file; give the folder of the samples, or an .npy, .npz or .zarr file")
    raise InputError(f"there is no {path}; give a folder, an array file, medmnist:NAME or synthetic:NAME")
