"""From what a user gives to a source: a path, a name, or a Python object."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from icone.config import DataConfig, is_object
from icone.data.formats.registry import FORMATS, path_and_key, suffix_of
from icone.data.sources.array_file import SUFFIXES, ArraySource
from icone.data.sources.base import Source
from icone.data.sources.channel_files import ChannelFilesSource
from icone.data.sources.dataframe import open_csv, open_frame
from icone.data.sources.folder import FilesSource, FolderFiles, FolderSource, open_paths
from icone.data.sources.found_files import Patterns
from icone.data.sources.labelling import attach_labels
from icone.data.sources.medmnist import open_medmnist
from icone.data.sources.objects import PATH, ArrayObjectSource, SequenceSource, as_list, is_dataset
from icone.data.sources.synthetic import open_synthetic
from icone.data.sources.tiles import open_tiles
from icone.errors import InputError
from icone.validation import meant_path, user_path

TABLES = (".csv", ".tsv")
NAMED = ("medmnist:", "synthetic:")
KNOWN = (
    "give a folder, an array file, a CSV of paths, medmnist:NAME or synthetic:NAME; in Python also an array, a list of "
    "paths or images, a Dataset or a DataFrame"
)


def open_source(data: Any, config: DataConfig, labels: Any = None, groups: Any = None) -> Source:
    """The data set behind a path, a name like `medmnist:NAME@SIZE` or `synthetic:NAME@SIZExCOUNT`, or an object.

    `labels` are those of the configuration, a CSV, unless they are given as an object: a sequence with one label per
    sample, a mapping (a dictionary, a pandas Series) from ids to labels, a DataFrame, or an array (N, K) of 0 and 1.
    `groups` are one per sample in the same ways.

    >>> source = open_source("synthetic:gaussians", DataConfig())
    >>> len(source), source.spatial_dims, source.ids[0]
    (1750, 0, '000000')
    >>> open_source(np.zeros((5, 32, 32, 3), np.uint8), DataConfig()).read(0).array.shape
    (3, 32, 32)
    """
    for text in (data, config.labels or "", config.data_root or ""):
        if isinstance(text, (str, os.PathLike)):
            _check_utf8(os.fspath(text))
    if config.tiles is not None and not isinstance(data, Source):
        source: Source = open_tiles(data, config)
    else:
        source = _open(data, config)
        _check_flags(source, config)
    if config.no_labels:
        source.labels = None
    attach_labels(source, config, labels, groups)
    return source


class OneFile(list[Any]):
    """The path of one image or volume, as the list of it; its id is the name of the file, as it is in a folder."""


def one_sample(data: Any) -> Any:
    """A file with one image or volume, or a PIL image, as the list of it; all other data as it is.

    One sample is nothing to train on, but a trained network can be asked about it.
    """
    if isinstance(data, Image.Image):
        return [data]
    if not isinstance(data, PATH):
        return data
    path = user_path(os.fspath(data))
    return data if path.suffix.lower() in (*SUFFIXES, *TABLES) or not path.is_file() else OneFile([data])


def check_splits(source: Source, spec: str, flag: str) -> None:
    """Refuse a flag that chooses an official split of a source that has none."""
    if not source.splits and source.assigned is not None:
        raise InputError(
            f"{spec} says itself which samples are trained on and which are held out, so {flag} means nothing: leave "
            "it out"
        )
    if not source.splits:
        raise InputError(
            f"{spec} has no official splits, so {flag} means nothing: it is for MedMNIST, synthetic sets and .npz "
            "files that hold train_images, test_images and so on. --test-fraction=0.2 at pretraining holds samples out"
        )


def _check_flags(source: Source, config: DataConfig) -> None:
    """Refuse flags that say nothing about this kind of source."""
    if config.axes is not None and not isinstance(
        source, (ArraySource, ArrayObjectSource, SequenceSource, FilesSource)
    ):
        raise InputError(f"--axes={config.axes} is for arrays and files, and {source.name} is neither: leave it out")
    for flag in ("include", "exclude", "channels_from"):
        if getattr(config, flag) and not isinstance(source, FolderFiles):
            raise InputError(f"--{flag.replace('_', '-')} is for folders, and {source.name} is none: leave it out")
    if config.missing_channels != "error" and config.channels_from is None:
        raise InputError("--missing-channels goes with --channels-from: leave it out")


def _check_utf8(path: str) -> None:
    """Refuse a path that a run could not write down; names below a folder are recorded in a `printable` form."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the path {path} is not UTF-8; rename it, or make a link to it with another name") from error


def _open(data: Any, config: DataConfig) -> Source:
    if isinstance(data, PATH):
        return _open_text(os.fspath(data), config)
    if isinstance(data, Source):
        return data
    data = as_list(data)
    if isinstance(data, (np.ndarray, Tensor)):
        return ArrayObjectSource(data, config.axes)
    if hasattr(data, "columns") and hasattr(data, "iloc"):  # a DataFrame, without importing pandas
        return open_frame(data, config.axes)
    if isinstance(data, (list, tuple)) and any(isinstance(one, PATH) for one in data):
        other = next((row for row, one in enumerate(data) if not isinstance(one, PATH)), None)
        if other is not None:
            kind = type(data[other]).__name__
            raise InputError(f"entry {other} of the list is of type {kind}, and others are paths: give paths alone")
        return open_paths(data, config.axes, by_name=isinstance(data, OneFile))
    if is_dataset(data):
        return SequenceSource(data, config.axes)
    if isinstance(data, Image.Image):
        raise InputError("one image is no data set: give a list of images")
    way_out = "give its data set, loader.dataset" if hasattr(data, "batch_sampler") else KNOWN
    raise InputError(f"a {type(data).__name__} is no data set; {way_out}")


def _open_text(spec: str, config: DataConfig) -> Source:
    if is_object(spec):
        raise InputError(
            f"the run was trained on a Python object ({spec.partition(':')[2]}), which no file holds: give it again, "
            "icone.pretrain(data, …), icone.embed(run, data), icone.evaluate(run, data=data) or icone.report(run, "
            "data=data)"
        )
    if spec.startswith("medmnist:"):
        return open_medmnist(spec, config.data_root, config.split)
    if spec.startswith("synthetic:"):
        return open_synthetic(spec, config.split)
    if not spec:
        raise InputError(f"the source is empty; {KNOWN}")
    path, key = path_and_key(spec)
    if path.suffix.lower() in SUFFIXES and not _is_image_store(path):
        return ArraySource(path, config.split, axes=config.axes, key=key)
    if path.is_dir():
        patterns = Patterns(config.include, config.exclude) if config.include or config.exclude else None
        if config.channels_from is not None:
            fill = config.missing_channels == "zero"
            return ChannelFilesSource(path, config.channels_from, patterns, config.axes, fill, config.labels)
        return FolderSource(path, patterns, config.axes, config.labels)
    if path.is_file() and path.suffix.lower() in TABLES:
        return open_csv(path, config.axes)
    if path.exists():
        raise InputError(
            f"{path} is one file; give the folder of the samples, or an .npy, .npz, .zarr or .h5 file; "
            "one huge image or volume is cut into samples by --tiles"
        )
    raise _missing(path)


def check_path(spec: str) -> None:
    """Refuse a path where nothing is, before anything else is looked at; names and objects are left alone."""
    if not spec or is_object(spec) or spec.startswith(NAMED):
        return
    path, _ = path_and_key(spec)
    if not path.exists():
        raise _missing(path)


def _missing(path: Path) -> InputError:
    return InputError(f"there is no {path}{meant_path(path) or f'; {KNOWN}'}")


def _is_image_store(path: Path) -> bool:
    """Whether a path is an OME-Zarr store, whose images are samples, and no array of samples."""
    known = FORMATS[suffix_of(path.name)]
    if not (known.is_folder and known.samples and path.is_dir()):
        return False
    known.check_installed()
    try:
        return bool(known.samples(path))
    except Exception:  # decoders raise anything; opening it as arrays says what is wrong
        return False
