"""From a configuration to prepared data: open, draw, inspect, infer the preparation, read.

Each sample is decoded once, where memory or the disk allow it.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icone.config import DataConfig, PretrainConfig
from icone.data.cache import cache_folder
from icone.data.chunks import keep_chunks
from icone.data.crops import CropDataset
from icone.data.dataset import Dataset, chunk_size, prepare_samples, source_classes
from icone.data.draw import Drawn, EarlierSplit, draw_samples
from icone.data.formats.registry import quiet_readers
from icone.data.inspection import (
    Facts,
    Inspection,
    Problem,
    Progress,
    check_alike,
    check_spacing,
    check_window,
    find_unusable,
    inspect_source,
    window_notes,
)
from icone.data.memory import GB, free_bytes
from icone.data.notes import constant_channels, crop_notes, guess_notes, intensity_note, kept_scale_notes, range_notes
from icone.data.prepare import Preparation
from icone.data.source_cache import SourceCache
from icone.data.sources.base import Array, Source
from icone.data.sources.folder import FolderFiles
from icone.data.sources.registry import check_splits, open_source
from icone.data.splits import Integers
from icone.data.summary import Summary, summarise
from icone.data.threads import in_chunks, read_ahead
from icone.errors import InputError
from icone.terminal import counted, either
from icone.wording import in_user_terms

Report = Callable[[str], None]

INSPECTED = 512
"""Tiles of huge files that are looked at for all, for intensity ranges among others."""
LARGE = 8
"""With `--crop`, files above this part of the memory of a thread are read region by region."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data of a run, ready to train on."""

    source: Source
    preparation: Preparation
    train: Dataset
    test: Dataset | None
    """The held-out part, where `test_fraction` asks for one."""
    skipped: list[Problem]
    """Samples that were left out, (id, reason) each."""
    notes: list[str]
    """What the user should know about the data, a sentence each."""
    summary: Summary
    minority_classes: tuple[str, ...] = ()
    """The classes that `imbalance` has subsampled."""


def load_data(
    config: PretrainConfig,
    report: Report | None = None,
    progress: Progress | None = None,
    source: Source | None = None,
    earlier: EarlierSplit | None = None,
    kept: Preparation | None = None,
) -> Data:
    """Open the source of a configuration, draw the samples that take part, check, prepare and read them.

    `source` is given where it is open already, `earlier` where a run goes on, and `kept` where it keeps the scale of
    intensities that it began with. `report` is told what the disk refuses; `progress` gets (what is done, samples done,
    total) while the samples are looked at, prepared and read.
    """
    found = _examine(config, report, progress, source, earlier=earlier, kept=kept)
    preparation, drawn = found.preparation, found.drawn
    train, test = found.reader.prepare(preparation, drawn.train, drawn.test)
    notes = [*found.notes, *_storage_notes(found, train)]
    return Data(
        source=found.source,
        preparation=preparation,
        train=train,
        test=test if len(test) else None,
        skipped=found.skipped,
        notes=notes,
        summary=found.summary(notes),
        minority_classes=drawn.minority,
    )


def inspect_data(
    config: PretrainConfig, progress: Progress | None = None, source: Source | None = None
) -> tuple[Summary, Preparation]:
    """What `load_data` would understand of the data of a configuration, without preparing it.

    Samples that cannot be used are listed, whether or not they may be skipped.
    """
    tolerant = dataclasses.replace(config, skip_unreadable=True)
    found = _examine(tolerant, None, progress, source, fewest=1, looks_at_all=config.skip_unreadable)
    notes = list(found.notes)
    if found.skipped and not config.skip_unreadable:
        notes.append("samples that cannot be used are an error of `icone pretrain`, unless --skip-unreadable is given")
    return found.summary(notes), found.preparation


class _Examined(NamedTuple):
    """The data of a configuration before it is prepared."""

    source: Source
    reader: _Reader
    drawn: Drawn
    facts: list[Facts]
    skipped: list[Problem]
    preparation: Preparation
    notes: list[str]

    def summary(self, notes: Sequence[str]) -> Summary:
        splits = {"train": len(self.drawn.train), "val": self.drawn.left_alone, "test": len(self.drawn.test)}
        return summarise(self.source, self.facts, self.skipped, self.preparation, splits, notes)


def _examine(
    config: PretrainConfig,
    report: Report | None,
    progress: Progress | None,
    source: Source | None,
    fewest: int = 2,
    earlier: EarlierSplit | None = None,
    looks_at_all: bool = True,
    kept: Preparation | None = None,
) -> _Examined:
    """Open the source, draw the samples that take part, look at them and choose how they are prepared.

    Of very many parts of files that may be skipped, those beyond the ones inspected are read too if it `looks_at_all`.
    """
    source = open_source(config.source, config) if source is None else source
    if config.split != DataConfig.split:
        check_splits(source, config.source, f"--split={config.split}")
    reader = _Reader(source, config, report, progress)
    if config.skip_unreadable and not source.is_sampled:  # what cannot be read must not take a place in the draw
        facts, skipped = reader.inspect(range(len(source)))
        if not facts:
            raise InputError(
                f"none of the {counted(len(source), 'sample')} of {source.name} can be used: {skipped[0].reason}"
            )
        candidates = np.array([fact.position for fact in facts], dtype=np.int64)
        drawn = draw_samples(source, candidates, config, fewest, earlier)
        facts = _only(facts, drawn.everything)
    else:
        lost = reader.unusable(range(len(source))) if looks_at_all else []
        drawn = draw_samples(source, _without(source, np.arange(len(source)), lost), config, fewest, earlier)
        facts, skipped = reader.inspect(drawn.everything.tolist())
        if not facts:
            raise InputError(f"none of the samples of {source.name} can be used: {skipped[0].reason}")
        train, test = (_without(source, part, skipped) for part in (drawn.train, drawn.test))
        drawn, skipped = drawn._replace(train=train, test=test), [*lost, *skipped]
    check_alike(source, facts, config)
    inferred = Preparation.infer(_only(facts, drawn.train), config, source.size)
    preparation = inferred if kept is None else inferred.with_scale_of(kept)
    check_window(source, facts, config)
    known = frozenset[str]() if earlier is None else earlier.train | earlier.test
    new = [fact for fact in facts if source.ids[fact.position] not in known]
    scale = kept_scale_notes(preparation, inferred, config, new)
    notes = [*drawn.notes, *_notes(source, facts, skipped, drawn, preparation, config), *scale]
    return _Examined(source, reader, drawn, facts, skipped, preparation, notes)


def load_for_inference(
    data: Any,
    preparation: Preparation,
    config: PretrainConfig,
    report: Report | None = None,
    progress: Progress | None = None,
    only: Collection[str] | None = None,
) -> Dataset:
    """The samples of a source (of these ids, or all), prepared like those of a run; `skipped` lists the others."""
    source = data if isinstance(data, Source) else open_source(data, config)
    chosen = range(len(source)) if only is None else [i for i, name in enumerate(source.ids) if name in only]
    if not chosen:
        raise InputError(
            f"{source.name} holds none of the samples that are asked for, which have ids such as "
            f"{sorted(only or ())[0]}; here they are called {source.ids[0]} and so on: give data with the same ids"
        )
    reader = _Reader(source, config, report, progress)
    lost = reader.unusable(chosen)
    facts, skipped = reader.inspect(_without(source, np.array(chosen), lost).tolist())
    skipped = [*lost, *skipped]
    if not facts:
        raise InputError(
            f"none of the {counted(len(source), 'sample')} of {source.name} can be used: {skipped[0].reason}"
        )
    _check_matches(source, facts, preparation)
    silent = sum(fact.spacing is None for fact in facts)
    if report is not None and preparation.needs_spacing and silent:
        say = either(silent, "does not say its spacing: its", "do not say their spacing: their")
        report(f"{silent} of {counted(len(facts), 'sample')} {say} voxels are taken for cubes")
    if report is not None:
        for note in range_notes(source, facts, preparation):
            report(note)
    (dataset,) = reader.prepare(preparation, _without(source, np.array(chosen), skipped), skipped=skipped)
    return dataset


class _Reader:
    """Inspects the samples of a source, then prepares them.

    Decoded samples stay in memory in between, as far as a quarter of what is free goes, and the outcome of both
    stays on disk, where later starts find it. `report` is told what the disk refuses, now or during training.
    """

    def __init__(
        self, source: Source, config: PretrainConfig, report: Report | None, progress: Progress | None
    ) -> None:
        self._source, self._config, self._progress = source, config, progress
        self._facts: dict[int, Facts] = {}
        if config.crop is not None and config.spacing is None:
            source.regions_above = self._memory_limit() / (LARGE * config.workers)
        if config.crop is not None and config.memory_gb is not None:  # without --crop, threads decode while it trains
            source.decoding_limit = self._memory_limit()
        folder = cache_folder(config.cache) if source.is_cacheable else None
        if folder and isinstance(source, FolderFiles):
            check_outside("the cache", folder, source.folder, "--cache=DIR")
        self._cache = SourceCache(source, folder, report or _warn) if folder else None

    def inspect(self, positions: Sequence[int]) -> Inspection:
        """What the samples at these positions hold, and which cannot be used; of very many parts, what some hold."""
        if self._source.is_sampled and len(positions) > INSPECTED:
            positions = [positions[i * len(positions) // INSPECTED] for i in range(INSPECTED)]
        self._source.recall(limit=self._memory_limit() / 2)
        known = self._cache.facts(positions) if self._cache else {}
        inspection = inspect_source(self._source, self._config, self._config.workers, self._progress, positions, known)
        self._facts |= {fact.position: fact for fact in inspection.facts}
        if self._cache and len(inspection.facts) > len(known):
            self._cache.keep_facts(positions, inspection.facts)
        return inspection

    def unusable(self, positions: Sequence[int]) -> list[Problem]:
        """Those of these samples that are to be left out, where `inspect` may look at some for all."""
        if not (self._source.is_sampled and self._config.skip_unreadable):
            return []
        problems = find_unusable(self._source, self._config.workers, self._progress, positions)
        if len(problems) == len(positions):
            raise InputError(
                f"none of the {counted(len(positions), 'sample')} of {self._source.name} can be used: "
                f"{problems[0].reason}"
            )
        return problems

    def prepare(
        self, preparation: Preparation, *parts: Integers, skipped: Sequence[Problem] = ()
    ) -> tuple[Dataset, ...]:
        """A data set for every part of the samples, all of them in memory or none."""
        positions = np.unique(np.concatenate(parts))
        if preparation.crops:
            return self._prepare_crops(preparation, positions, parts, skipped)
        resident = len(positions) * preparation.nbytes <= self._memory_limit()
        prepared = self._prepared(positions, preparation)
        kept = self._cache.samples(positions, preparation, prepared) if self._cache else None
        make = partial(Dataset, self._source, preparation=preparation, resident=resident, prepared=kept)
        workers, progress = self._config.workers, self._progress
        datasets = tuple(make(part, workers=workers, progress=progress, skipped=skipped) for part in parts)
        self._source.recall(limit=0)
        if resident or kept:
            self._source.close()
        return datasets

    def _prepare_crops(
        self, preparation: Preparation, positions: Integers, parts: Sequence[Integers], skipped: Sequence[Problem]
    ) -> tuple[Dataset, ...]:
        """A data set of crops for every part of the samples, which keep their resolution."""
        facts = [self._facts[position] for position in positions.tolist()]
        shapes = [preparation.resized(fact.shape[1:], fact.spacing) for fact in facts]
        limit, workers = self._memory_limit(), self._config.workers
        chunked = keep_chunks(self._source, preparation, positions, shapes, self._cache, limit, workers, self._progress)
        make = partial(CropDataset, self._source, preparation=preparation, chunked=chunked, skipped=skipped)
        datasets = (make(part, np.searchsorted(positions, part), self._config.crop_overlap) for part in parts)
        self._source.recall(limit=0)
        self._source.close()
        return tuple(datasets)

    def _prepared(self, positions: Integers, preparation: Preparation) -> Iterator[Array]:
        prepare, workers = partial(prepare_samples, self._source, preparation), self._config.workers
        chunks = in_chunks(positions.tolist(), workers, chunk_size(self._source, preparation))
        done = 0
        with quiet_readers():
            for samples in read_ahead(prepare, chunks, workers, ahead=4 * workers):
                yield from samples.numpy()
                done += len(samples)
                if self._progress is not None:
                    self._progress("preparing the samples", done, len(positions))

    def _memory_limit(self) -> float:
        """Bytes that prepared samples may take; those that are recalled make room for them."""
        if self._config.memory_gb is not None:
            return self._config.memory_gb * GB
        return (free_bytes() + self._source.recalled.nbytes) / 2


def check_outside(what: str, folder: Path, data: Path, flag: str) -> None:
    """Refuse a folder among the data, where its arrays would be taken for samples; hidden folders are passed over."""
    inner, outer = (Path(os.path.realpath(path)) for path in (folder, data))
    if inner.is_relative_to(outer) and not any(part.startswith(".") for part in inner.relative_to(outer).parts):
        raise InputError(f"{what} {folder} lies inside the data {data}: choose another folder with {flag}")


def _check_matches(source: Source, facts: Sequence[Facts], preparation: Preparation) -> None:
    """Refuse samples that a trained encoder cannot take: other dimensions or channels, or no spacing."""
    accepted = {preparation.channels} if preparation.colour == "auto" else {1, 3}
    for fact in facts:
        dims, channels, where = len(fact.shape) - 1, fact.shape[0], source.where(fact.position)
        if dims != preparation.spatial_dims:
            raise InputError(
                f"{where} has {dims} spatial axes, but the encoder was trained on {preparation.spatial_dims}"
                f"{source.one_alone}{source.one_slice if dims < preparation.spatial_dims else ''}"
            )
        if channels not in accepted:
            counts = " or ".join(str(count) for count in sorted(accepted))
            either_way = (
                "; a run that `icone pretrain --channels=rgb` has trained takes gray and colour samples"
                if {channels, *accepted} == {1, 3}
                else ""
            )
            raise InputError(
                f"{where} has {counted(channels, 'channel')}, but the encoder takes {counts}: give samples with the "
                f"channels of the training data, in their order{either_way}{source.one_alone}"
            )
    if preparation.spacing is not None:
        check_spacing(source, facts)


def _notes(
    source: Source,
    facts: Sequence[Facts],
    skipped: Sequence[Problem],
    drawn: Drawn,
    preparation: Preparation,
    config: PretrainConfig,
) -> list[str]:
    guessed = guess_notes(source, facts, preparation, is_size_given=config.size is not None)
    notes = [*source.notes, *source.label_notes, *guessed, *window_notes(facts, config)]
    if isinstance(source, FolderFiles) and source.labels is None and (tables := sorted(source.folder.glob("*.csv"))):
        notes.append(f"labels may be in {tables[0].name}: --labels={shlex.quote(str(tables[0]))} reads them")
    if isinstance(source, FolderFiles) and source.labels is not None and config.labels is None:
        classes = len(source_classes(source))
        notes.append(f"the {counted(classes, 'subfolder')} {either(classes, 'is', 'are')} taken as classes")
    if (
        preparation.spatial_dims == 2
        and preparation.channels == 3
        and not preparation.is_rgb
        and config.colour == "auto"
    ):
        notes.append(
            "the three channels are no colours, as the files declare: views change each by itself, without hue and "
            "saturation; --colour=yes takes them for red, green and blue"
        )
    if preparation.crops:
        notes += crop_notes(facts, preparation, config.crop_overlap)
    if preparation.spatial_dims:
        names = {fact.names for fact in facts}
        notes.append(intensity_note(preparation, config, names.pop() if len(names) == 1 else ()))
        notes += [
            f"channel {channel} is constant over all training samples: nothing is learned from it"
            for channel in constant_channels(_only(facts, drawn.train))
        ]
    return notes


def _storage_notes(found: _Examined, train: Dataset) -> list[str]:
    """Where the prepared samples are, if not in memory."""
    if train.images is not None:
        return []
    if isinstance(train, CropDataset):
        place = "on disk (--cache)" if train.is_on_disk else "in memory"
        return [f"the samples are kept in chunks {place}, {train.nbytes / GB:.2g} GB, and only crops of them are read"]
    needed = found.preparation.nbytes * len(found.drawn.everything) / GB
    where = "from their files" if train.prepared is None else "from the cache"
    return [f"the prepared samples take {needed:.1f} GB and are read {where} every epoch (--memory-gb)"]


def _without(source: Source, positions: Integers, problems: Sequence[Problem]) -> Integers:
    """The positions but for those of samples that cannot be used."""
    lost = {problem.id for problem in problems}
    return positions[[source.ids[position] not in lost for position in positions]] if lost else positions


def _only(facts: Sequence[Facts], positions: Integers) -> list[Facts]:
    chosen = set(positions.tolist())
    return [fact for fact in facts if fact.position in chosen]


def _warn(note: str) -> None:
    """Tell what nobody asked to be told about in another way."""
    warnings.warn(in_user_terms(note), stacklevel=2)
