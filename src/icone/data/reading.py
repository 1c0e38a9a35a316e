"""From the files of a source to prepared samples, each decoded once where memory or disk allow it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from icone.config import PretrainConfig
from icone.data.cache import cache_folder
from icone.data.dataset import Dataset
from icone.data.inspection import Inspection, Problem, Progress, inspect_source
from icone.data.memory import GB, free_bytes
from icone.data.prepare import Preparation
from icone.data.prepared import SourceCache
from icone.data.sources.base import Source
from icone.data.sources.folder import FolderSource
from icone.data.splits import Integers
from icone.errors import InputError

Report = Callable[[str], None]


class Reading:
    """Reads the samples of a source: `inspect`, then `prepare`.

    Decoded samples stay in memory in between, as far as a quarter of what is free goes, and the outcome of both
    stays on disk, where later readings find it. `report` is told what the disk refuses, now or during training.
    """

    def __init__(
        self, source: Source, config: PretrainConfig, report: Report | None, progress: Progress | None
    ) -> None:
        self._source = source
        self._config = config
        self._progress = progress
        folder = cache_folder(config.cache) if source.is_cacheable else None
        if folder and isinstance(source, FolderSource):
            check_outside("the cache", folder, source.folder, "--cache DIR")
        self._cache = SourceCache(source, folder, report or _warn) if folder else None

    def inspect(self, positions: Sequence[int]) -> Inspection:
        """What the samples at these positions hold, and which cannot be used."""
        inspect = self._cache.inspect if self._cache else inspect_source
        self._source.recall(limit=self._memory_limit() / 2)
        return inspect(self._source, self._config, self._config.workers, self._progress, positions)

    def prepare(
        self, preparation: Preparation, *parts: Integers, skipped: Sequence[Problem] = ()
    ) -> tuple[Dataset, ...]:
        """A data set for every part of the samples, all of them in memory or none."""
        config, source = self._config, self._source
        positions = np.unique(np.concatenate(parts))
        resident = len(positions) * preparation.nbytes <= self._memory_limit()
        kept = self._cache.samples(positions, preparation, config.workers, self._progress) if self._cache else None
        datasets = tuple(
            Dataset(
                source,
                part,
                preparation,
                resident=resident,
                workers=config.workers,
                progress=self._progress,
                skipped=skipped,
                prepared=kept,
            )
            for part in parts
        )
        source.recall(limit=0)
        if resident or kept:
            source.close()
        return datasets

    def _memory_limit(self) -> float:
        """Bytes that prepared samples may take; those that are recalled make room for them."""
        if self._config.memory_gb is not None:
            return self._config.memory_gb * GB
        return (free_bytes() + self._source.recalled.nbytes) / 2


def check_outside(what: str, folder: Path, data: Path, flag: str) -> None:
    """Refuse a folder among the data, where its arrays would be taken for samples; hidden folders are passed over."""
    place, around = (Path(os.path.realpath(path)) for path in (folder, data))
    if place.is_relative_to(around) and not any(part.startswith(".") for part in place.relative_to(around).parts):
        raise InputError(f"{what} {folder} lies inside the data {data}: choose another folder with {flag}")


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
