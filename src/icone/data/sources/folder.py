"""A folder of images, of volumes, or of DICOM series as a data set."""

from __future__ import annotations

import contextlib
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from icone.data.formats.axes import spatial_axes
from icone.data.formats.base import Header
from icone.data.formats.lazy import LazyImage
from icone.data.formats.registry import FORMATS, quiet_readers, sample_suffixes, suffix_of
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
from icone.data.sources.found_files import (
    FoundSample,
    Patterns,
    file_sample,
    find_sample,
    find_samples,
    walk,
)
from icone.errors import InputError, one_line, printable
from icone.terminal import counted, either
from icone.validation import user_path

HUGE = 2**28
"""Bytes of decoding above which a file is not read to see how many axes it has, if its header tells it."""


FIELDS = 2
"""Slashes in the place of a field of a plate: row, column, field."""


class FilesSource(Source):
    """Files by id, each one sample; a folder among them is a DICOM series."""

    is_cacheable: ClassVar[bool] = True

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
        is_as_read = image.dtype.kind in "uif" and not image.notes
        return image if is_large and is_as_read else None

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

    def __init__(
        self,
        folder: Path,
        patterns: Patterns | None = None,
        axes: str | None = None,
        labels: Path | None = None,
    ) -> None:
        """`labels` is the table of them, which may lie among the files."""
        found = find_samples(folder, patterns, labels)
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it has vanished: reading it says so
        return -1


def open_paths(
    paths: Sequence[str | os.PathLike[str]], axes: str | None = None, *, by_name: bool = False
) -> FilesSource:
    """A list of files (or folders of one DICOM series each) as a data set.

    The ids are the paths as written, or if `by_name` the names of the files.

    A DICOM file that is named by itself is one image, or the volume of its frames.
    """
    samples: dict[str, FoundSample] = {}
    for path in paths:
        name = printable(Path(path).name if by_name else os.fspath(path))
        if name in samples:
            raise InputError(f"the list of {len(paths)} paths names {name} twice")
        samples[name] = find_sample(user_path(Path(path)))
    source = FilesSource(f"the list of {counted(len(samples), 'file')}", samples, axes=axes)
    if any(sample.format.is_series and sample.path.is_file() for sample in samples.values()):
        source.one_slice = "; one file of a DICOM series is a slice: give the folder of the series"
    return source


def _nothing_found(folder: Path, patterns: Patterns | None) -> str:
    if patterns is not None and find_samples(folder).samples:
        return f"--include and --exclude leave nothing of {folder}: loosen the patterns"
    others = sorted({suffix_of(name) or "(none)" for name, _ in walk(folder)})
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

    `path` is a file, or a folder with the slices of one DICOM series; a DICOM file by itself is an image, or the volume
    of its frames. `array` is (C, *spatial) in the file's own units: NIfTI is turned to the closest
    right-anterior-superior axes, (C, X, Y, Z); a DICOM series is (1, slices, rows, columns). `spacing` is in
    millimetres along these axes, or None where the file does not say it.
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
    if known is None or known.read is None:
        raise InputError(f"cannot read {path} as one sample; known: {', '.join(sample_suffixes())}")
    known.check_installed()
    with quiet_readers():
        return checked(file_sample(known, path).read, str(path))


def mixed_dimensions(image: str, volume: str) -> InputError:
    """Say that a data set mixes images and volumes."""
    return InputError(
        f"the data mixes 2D images and 3D volumes: {image} is 2D and {volume} is 3D; "
        "put them into separate folders and pretrain on each, or leave one kind out with --exclude"
    )
