"""A folder of images, of volumes, or of DICOM series as a data set."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from icone.data.formats.axes import spatial_axes
from icone.data.formats.base import Format, Header
from icone.data.formats.lazy import LazyImage
from icone.data.formats.registry import FORMATS, find_format, quiet_readers, sample_suffixes, suffix_of
from icone.data.identity import DigestMemory, content_digest
from icone.data.layouts import (
    labels_from_folders,
    sequence_note,
    split_note,
    splits_from_folders,
    without_segmentations,
)
from icone.data.memory import DECODING
from icone.data.sources.base import Sample, Source, checked
from icone.errors import InputError, one_line, printable
from icone.terminal import counted, either
from icone.validation import meant_path, user_path

HUGE = 2**28
"""Bytes of decoding above which a file is not read to see how many axes it has, if its header tells it."""


FIELDS = 2
"""Slashes in the place of a field of a plate: row, column, field."""


class FoundSample(NamedTuple):
    """One sample on disk: a file, the folder of a series and the files of it, or an image in a Zarr store."""

    format: Format
    path: Path
    files: list[Path]
    axes: str | None = None
    """What the user says about its axes."""
    place: str = ""
    """Where it lies in a store of several images, such as `A/1/0`: row, column and field of a plate."""

    def read(self) -> Sample:
        assert self.format.read is not None
        given = self.files if self.format.is_series else self.path
        return self.format.read(given) if self.axes is None else self.format.read(given, axes=self.axes)

    def bytes_needed(self) -> int:
        """Memory that decoding and preparing takes; 0 where the format does not tell before it reads."""
        header = self.header()
        return header.working_bytes if header else 0

    def header(self) -> Header | None:
        """What the file declares; None where the format does not tell before it reads."""
        get = self.format.header
        return get(self.files if self.format.is_series else self.path) if get else None


class FilesSource(Source):
    """Files by id, each one sample; a folder among them is a DICOM series."""

    def __init__(
        self,
        name: str,
        samples: dict[str, FoundSample],
        labels: Sequence[str | None] | None = None,
        axes: str | None = None,
    ) -> None:
        """`samples` by id, in their order."""
        self._samples = [sample._replace(axes=axes) for sample in samples.values()] if axes else [*samples.values()]
        for known in {sample.format for sample in self._samples}:
            known.check_installed()
            if axes and not known.takes_axes:
                raise InputError(f"--axes={axes} is not for {known.name} files, which say it themselves: leave it out")
        super().__init__(
            name=name,
            spatial_dims=_spatial_dims(self._samples),
            ids=list(samples),
            paths=[sample.path for sample in self._samples],
            labels=labels,
        )
        self.reading = axes or ""

    def _bytes_needed(self, position: int) -> int:
        return self._samples[position].bytes_needed()

    def _read(self, position: int) -> Sample:
        return self._samples[position].read()

    def regions(self, position: int) -> LazyImage | None:
        sample = self._samples[position]
        if math.isinf(self.regions_above) or sample.format.open_lazy is None:
            return None
        try:
            image = sample.format.open_lazy(sample.path, sample.axes, "")
        except Exception:  # decoders raise anything; reading the sample whole says what is wrong
            return None
        is_large = Header(image.shape, image.dtype).nbytes > self.regions_above
        return image if is_large and image.dtype.kind in "uif" else None

    def files(self) -> list[Path]:
        return [file for position in range(len(self)) for file in self._files_of(position)]

    def _files_of(self, position: int) -> list[Path]:
        return self._samples[position].files

    def _digest(self, position: int, memory: DigestMemory) -> str:
        found = [memory.of_file(file) for file in self._files_of(position)]
        return found[0] if len(found) == 1 else content_digest("".join(sorted(found)).encode())

    def _identity(self) -> str:
        sizes = [sum(map(_size, self._files_of(position))) for position in range(len(self))]
        return f"files of {sizes} bytes"


class FolderFiles(FilesSource):
    """Files that were found below a folder."""

    folder: Path


class FolderSource(FolderFiles):
    """Every image or volume below a folder; the id is the path relative to it, in a `printable` form.

    Hidden files and files of other types are passed over, and so are those that `include` and `exclude` leave out. A
    folder that directly holds files of a series, as DICOM slices are, is one volume; its id is the folder. Subfolders
    become classes where `labels_from_folders` accepts them, which is never so for series that are volumes: there,
    folders are patients and studies. Subfolders that are named like splits assign their samples to them, and the
    folders below are classes.
    """

    def __init__(self, folder: Path, patterns: Patterns | None = None, axes: str | None = None) -> None:
        found = find_samples(folder, patterns)
        if not found.samples:
            raise InputError(_nothing_found(folder, patterns))
        samples, notes = without_segmentations(dict(sorted(found.samples.items())))
        has_series = any(sample.format.is_series for sample in samples.values())
        assigned, below = splits_from_folders(list(samples))
        super().__init__(folder.resolve().name, samples, None, axes)
        if not has_series or self.spatial_dims == 2:
            outside = [name.removesuffix(one.place) for name, one in zip(below, samples.values(), strict=True)]
            self.labels = labels_from_folders(outside)
        if any(one.place.count("/") == FIELDS for one in samples.values()):
            wells = [
                name.rpartition("/")[0] if one.place.count("/") == FIELDS else None for name, one in samples.items()
            ]
            self.groups = tuple(wells)
            notes.append("the fields of one well of a plate are a group: no split parts them")
        self.folder = folder
        self.assigned = assigned
        self.left_out = tuple(found.left_out)
        self.notes = (*found.notes, *notes, *filter(None, [split_note(list(samples)), sequence_note(below)]))


class Patterns(NamedTuple):
    """Which files of a folder take part: those that one of `include` fits (all, if there are none), but no `exclude`.

    A pattern with a slash is compared with the path below the folder, one without with the names of the file and of
    the folders around it; `*` stands for any characters.

    >>> Patterns(include=("*.png",), exclude=("masks",)).accept("a/masks/1.png")
    False
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def accept(self, name: str) -> bool:
        chosen = not self.include or any(_fits(name, pattern) for pattern in self.include)
        return chosen and not any(_fits(name, pattern) for pattern in self.exclude)


def _fits(name: str, pattern: str) -> bool:
    if "/" in pattern:
        return fnmatchcase(name, pattern.removeprefix("./").removesuffix("/") + ("/*" if pattern.endswith("/") else ""))
    return any(fnmatchcase(part, pattern) for part in name.split("/"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it has vanished: reading it says so
        return -1


class MissingFile(InputError):
    """A file that a list or a table names is not there."""


def find_sample(path: Path) -> FoundSample:
    """The sample that a path is: a file, a folder with one series of DICOM slices, or a Zarr store with one image."""
    if path.is_dir():
        found = list(find_samples(path).samples.values())
        if len(found) != 1 or not (found[0].format.is_series or found[0].format.is_folder):
            raise InputError(f"{path} is a folder, but not one DICOM series; give files, or the folder as a source")
        return found[0]
    if not path.exists():
        raise MissingFile(f"there is no file {path}{meant_path(path) or '; check the path'}")
    known = _format_of(path)
    if known is None or known.is_series:
        way_out = (
            "give the folder of its series"
            if known
            else f"files that can be read end with {', '.join(sample_suffixes())}"
        )
        raise InputError(f"cannot read {path} as one sample; {way_out}")
    return _file_sample(known, path)


def open_paths(paths: Sequence[str | os.PathLike[str]], axes: str | None = None) -> FilesSource:
    """A list of files (or folders of one DICOM series each) as a data set; the ids are the paths as written."""
    samples = {printable(os.fspath(path)): find_sample(user_path(Path(path))) for path in paths}
    if len(samples) < len(paths):
        raise InputError(f"the list of {len(paths)} paths names a path twice")
    return FilesSource(f"the list of {counted(len(samples), 'file')}", samples, axes=axes)


class Found(NamedTuple):
    """The samples below a folder by id, what is none with the reason, and what else should be said."""

    samples: dict[str, FoundSample]
    left_out: list[tuple[str, str]]
    notes: list[str]


def find_samples(folder: Path, patterns: Patterns | None = None) -> Found:
    """The samples below a folder; a Zarr store is such a folder too."""
    found: dict[str, FoundSample] = {}
    others: Counter[str] = Counter()
    unchosen = 0
    itself = FORMATS.get(suffix_of(folder.name))
    entries = [("", folder)] if itself is not None and itself.is_folder else _walk(folder)
    for name, file in entries:
        known = _format_of(file)
        if known is None:
            others[suffix_of(file.name) or "no suffix"] += 1
            continue
        if patterns is not None and not patterns.accept(name):
            unchosen += 1
            continue
        if not known.is_series:
            parts = _store_samples(known, name, file) if known.is_folder else {name: _file_sample(known, file)}
            for part, sample in parts.items():
                _add(found, printable(part), sample)
            continue
        sample_id = printable(os.path.dirname(name) or folder.resolve().name)
        series = found.setdefault(sample_id, FoundSample(known, file.parent, []))
        if (series.path, series.format) != (file.parent, known):
            raise _same_id(series, FoundSample(known, file.parent, []), sample_id)
        series.files.append(file)
    left_out = _divide_series(found)
    for sample in found.values():
        for beside in sample.files[1:] if sample.format.more_files else ():  # it belongs to a sample
            others[suffix_of(beside.name) or "no suffix"] -= 1
    others = +others
    notes = []
    if unchosen:
        notes.append(f"--include and --exclude leave out {counted(unchosen, 'file')}")
    if others:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in sorted(others.items())[:5])
        notes.append(f"files of other types are passed over: {kinds}")
    return Found(found, left_out, notes)


def _add(found: dict[str, FoundSample], sample_id: str, sample: FoundSample) -> None:
    if sample_id in found:
        raise _same_id(found[sample_id], sample, sample_id)
    found[sample_id] = sample


def _same_id(one: FoundSample, other: FoundSample, sample_id: str) -> InputError:
    return InputError(f"{other.path} and {one.path} would share the id {sample_id}: rename one of the two")


def _file_sample(known: Format, path: Path) -> FoundSample:
    return FoundSample(known, path, [path, *(known.more_files(path) if known.more_files else [])])


def _store_samples(known: Format, name: str, path: Path) -> dict[str, FoundSample]:
    """The samples in a folder that is a format's own, by id."""
    known.check_installed()
    try:
        inside = known.samples(path) if known.samples else []
    except Exception:  # decoders raise anything; reading the sample says what is wrong
        inside = []
    places = {one.relative_to(path).as_posix(): one for one in inside or [path]}
    ids = {
        (f"{name}/{place}" if name else place) if place != "." else name or path.name: at
        for place, at in places.items()
    }
    return {
        key: FoundSample(known, at, sorted(f for f in at.rglob("*") if f.is_file()), place=place if inside[1:] else "")
        for (key, at), place in zip(ids.items(), places, strict=True)
    }


def _divide_series(found: dict[str, FoundSample]) -> list[tuple[str, str]]:
    """Put the files of every series in order; where they are several samples, or none, change `found` accordingly."""
    left_out = []
    for sample_id, sample in list(found.items()):
        sample.files.sort()
        if not sample.format.is_series or sample.format.samples is None:
            continue
        sample.format.check_installed()
        parts = sample.format.samples(sample.files)
        if isinstance(parts, str):
            left_out.append((sample_id, f"{printable(str(sample.path))} {parts}"))
            del found[sample_id]
        elif len(parts) > 1:
            del found[sample_id]
            for files in parts:
                _add(found, printable(f"{sample_id}/{files[0].name}"), FoundSample(sample.format, files[0], files))
    return sorted(left_out)


def _format_of(path: Path) -> Format | None:
    try:
        return find_format(path)
    except PermissionError as error:
        raise InputError(f"no permission to read the file {path}; change its rights or move it away") from error
    except OSError:  # it has vanished, or is a link that leads nowhere
        return None


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """All visible files below a folder, by relative path; links are followed, each real folder once, by its own name.

    A link that leads nowhere is listed as a file, so that reading it says so. What vanishes meanwhile is passed over.
    """
    seen: set[str] = set()
    waiting = [("", folder)]
    links: list[tuple[str, Path]] = []
    while waiting or links:
        prefix, current = waiting.pop() if waiting else links.pop(links.index(min(links)))
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.name.startswith((".", "__MACOSX")):
                        continue
                    if _is_folder(entry) and not _is_store(entry.name):
                        (links if entry.is_symlink() else waiting).append(
                            (f"{prefix}{entry.name}/", current / entry.name)
                        )
                    elif _is_store(entry.name) or _is_file(entry):
                        yield prefix + entry.name, current / entry.name
        except FileNotFoundError as error:
            if current == folder:
                raise InputError(f"there is no folder {current}; check the path") from error
        except PermissionError as error:
            raise InputError(f"no permission to read the folder {current}; change its rights") from error
        except OSError as error:
            raise InputError(f"cannot list the folder {current}: {one_line(error)}") from error


def _is_store(name: str) -> bool:
    known = FORMATS.get(suffix_of(name))
    return known is not None and known.is_folder


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, or into a folder without permission
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink() and not os.path.exists(entry.path):
        return True
    return entry.is_file()


def _nothing_found(folder: Path, patterns: Patterns | None) -> str:
    if patterns is not None and find_samples(folder).samples:
        return f"--include and --exclude leave nothing of {folder}: loosen the patterns"
    others = sorted({suffix_of(name) or "(none)" for name, _ in _walk(folder)})
    seen = f"it holds files with the suffixes {', '.join(others[:5])}" if others else "it is empty"
    return f"no images or volumes in {folder}: {seen}; files that can be read end with {', '.join(sample_suffixes())}"


def _spatial_dims(samples: list[FoundSample]) -> int:
    """2 or 3, from the suffixes; of the types that can be either, from the first that can be read."""
    by_suffix: dict[str, list[FoundSample]] = defaultdict(list)
    for sample in samples:
        by_suffix[suffix_of(sample.files[0].name)].append(sample)
    examples: dict[int, Path] = {}
    problems = []
    for alike in by_suffix.values():
        first = alike[0]
        by_axes = len(spatial_axes(first.axes)) if first.axes else None
        dims = by_axes or first.format.spatial_dims or _look(alike)
        if isinstance(dims, int):
            examples.setdefault(dims, alike[0].path)
        else:
            problems.append(dims)
    if not examples:
        none = f"none of the {counted(len(samples), 'file')} can be read, for example"
        raise InputError(f"{either(len(samples), 'the only file cannot be read:', none)} {problems[0]}")
    if len(examples) > 1:
        raise mixed_dimensions(str(examples[2]), str(examples[3]))
    return next(iter(examples))


def _look(samples: list[FoundSample]) -> int | str:
    """The spatial axes of the first sample that can be read; where none can, what is wrong with one of them."""
    problem = ""
    with quiet_readers():
        for sample in samples:
            try:
                if sample.format.is_series and (header := sample.header()) is not None:
                    return len(header.shape) - 1
                needed = sample.bytes_needed()
                if needed > HUGE and sample.format.open_lazy is not None:
                    with contextlib.suppress(Exception):  # decoders raise anything; what is wrong is said below
                        return len(sample.format.open_lazy(sample.path, sample.axes, "").shape) - 1
                with DECODING.hold(needed, "it"):
                    return sample.read().array.ndim - 1
            except MemoryError:
                raise
            except Exception as error:  # a damaged file is reported when the samples are inspected
                problem = problem or f"{sample.path}: {one_line(error)}"
    return problem


def read_sample(path: str | Path) -> Sample:
    """One image or volume, read as training reads it: `Sample(array, spacing, is_colour)`.

    `path` is a file, or a folder with the slices of one DICOM series. `array` is (C, *spatial) in the file's own
    units: NIfTI is turned to the closest right-anterior-superior axes, (C, X, Y, Z); a DICOM series is
    (1, slices, rows, columns). `spacing` is in millimetres along these axes, or None where the file does not say it.
    """
    path = user_path(path)
    if path.is_dir():
        source = FolderSource(path)  # a Zarr store too
        if len(source) != 1:
            raise InputError(
                f"{path} holds {counted(len(source), 'sample')}; give one file, or the folder of one DICOM series"
            )
        with quiet_readers():
            return source.read(0)
    known = FORMATS.get(suffix_of(path.name))
    if known is None or known.read is None or known.is_series:
        is_part = known is not None and known.is_series
        way_out = "give the folder of its series" if is_part else f"known: {', '.join(sample_suffixes())}"
        raise InputError(f"cannot read {path} as one sample; {way_out}")
    known.check_installed()
    with quiet_readers():
        return checked(_file_sample(known, path).read, str(path))


def mixed_dimensions(image: str, volume: str) -> InputError:
    """Say that a data set mixes images and volumes."""
    return InputError(
        f"the data mixes 2D images and 3D volumes: {image} is 2D and {volume} is 3D; "
        "put them into separate folders and pretrain on each, or leave one kind out with --exclude"
    )
