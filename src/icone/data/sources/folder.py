"""A folder of images, of volumes, or of DICOM series as a data set."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from icone.data.formats import dicom
from icone.data.formats.headers import file_header
from icone.data.formats.readers import READERS, SPATIAL_DIMS, quiet_readers, suffix_of
from icone.data.identity import DigestMemory, content_digest
from icone.data.labels import labels_from_folders
from icone.data.memory import DECODING
from icone.data.sources.base import Sample, Source, checked
from icone.errors import InputError, one_line, printable
from icone.validation import user_path

_KNOWN = ", ".join([*READERS, *dicom.SUFFIXES])


class FilesSource(Source):
    """Files by id, each one sample; a folder among them is a DICOM series."""

    def __init__(
        self,
        name: str,
        files: dict[str, Path],
        series: dict[str, list[Path]] | None = None,
        labels: Sequence[str | None] | None = None,
    ) -> None:
        """`files` in the order of the samples; `series` are the slices of those that are folders, where known."""
        if series is None:
            series = {key: _slices(path) for key, path in files.items() if path.is_dir()}
        for key, path in files.items():
            if key not in series and suffix_of(path.name) not in READERS:
                raise InputError(f"cannot read {path} as one sample; files that can be read end with {_KNOWN}")
        alone = {key: path for key, path in files.items() if key not in series}
        super().__init__(
            name=name,
            spatial_dims=_spatial_dims(alone, series),
            ids=list(files),
            paths=list(files.values()),
            labels=labels,
        )
        self._series = series

    def _bytes_needed(self, position: int) -> int:
        name, path = self.ids[position], self.paths[position]
        assert path is not None
        header = dicom.series_header(self._series[name]) if name in self._series else file_header(path)
        return header.working_bytes

    def _read(self, position: int) -> Sample:
        name, path = self.ids[position], self.paths[position]
        assert path is not None
        return dicom.read_series(self._series[name]) if name in self._series else _read_file(path)

    def files(self) -> list[Path]:
        return [file for position in range(len(self)) for file in self._files_of(position)]

    def _files_of(self, position: int) -> list[Path]:
        path = self.paths[position]
        assert path is not None
        return self._series.get(self.ids[position], [path])

    def _digest(self, position: int, memory: DigestMemory) -> str:
        found = [memory.of_file(file) for file in self._files_of(position)]
        return found[0] if len(found) == 1 else content_digest("".join(sorted(found)).encode())

    def _identity(self) -> str:
        sizes = [sum(map(_size, self._files_of(position))) for position in range(len(self))]
        return f"files of {sizes} bytes"


class FolderSource(FilesSource):
    """Every image or volume below a folder; the id is the path relative to it, in a `printable` form.

    Hidden files and files of other types are passed over. A folder that directly holds DICOM files is one
    volume; its id is the folder. Subfolders become classes where `labels_from_folders` accepts them, which
    is never so for DICOM: there, folders are patients and studies.
    """

    def __init__(self, folder: Path) -> None:
        files, series = _find_samples(folder)
        if not files and not series:
            raise InputError(_nothing_found(folder))
        paths = {name: files[name] if name in files else series[name][0].parent for name in sorted([*files, *series])}
        super().__init__(folder.resolve().name, paths, series, None if series else labels_from_folders(list(paths)))
        self.folder = folder


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it has vanished: reading it says so
        return -1


def _slices(folder: Path) -> list[Path]:
    """The files of the one DICOM series in a folder."""
    files, series = _find_samples(folder)
    if files or len(series) != 1:
        raise InputError(f"{folder} is a folder, but not one DICOM series; give files, or the folder as a source")
    return next(iter(series.values()))


def open_paths(paths: Sequence[str | os.PathLike[str]]) -> FilesSource:
    """A list of files (or folders of one DICOM series each) as a data set; the ids are the paths as written."""
    files = {printable(os.fspath(path)): user_path(Path(path)) for path in paths}
    if len(files) < len(paths):
        raise InputError(f"the list of {len(paths)} paths names a path twice")
    missing = next((path for path in files.values() if not path.exists()), None)
    if missing is not None:
        raise InputError(f"there is no file {missing}; check the list of paths")
    return FilesSource(f"the list of {len(files)} files", files)


def _find_samples(folder: Path) -> tuple[dict[str, Path], dict[str, list[Path]]]:
    """Files that are one sample each, and DICOM series, both by id."""
    files: dict[str, Path] = {}
    series: dict[str, list[Path]] = defaultdict(list)
    for name, path in _walk(folder):
        suffix = suffix_of(name)
        if suffix in READERS:
            known = files.setdefault(printable(name), path)
            _check_unique(printable(name), path, known)
        elif suffix in dicom.SUFFIXES or (not suffix and path.name != "DICOMDIR" and _is_dicom(path)):
            series_id = printable(os.path.dirname(name) or folder.resolve().name)
            series[series_id].append(path)
            _check_unique(series_id, path.parent, series[series_id][0].parent)
    return files, {name: sorted(paths) for name, paths in series.items()}


def _check_unique(name: str, path: Path, known: Path) -> None:
    if path != known:
        raise InputError(f"{path} and {known} would share the id {name}: rename one of the two")


def _is_dicom(path: Path) -> bool:
    try:
        return dicom.is_dicom(path)
    except PermissionError as error:
        raise InputError(f"no permission to read the file {path}; change its rights or move it away") from error
    except OSError:  # it has vanished, or is a link that leads nowhere
        return False


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """All visible files below a folder, by relative path; links are followed, each real folder once.

    A link that leads nowhere is listed as a file, so that reading it says so. What vanishes meanwhile is passed over.
    """
    seen: set[str] = set()
    waiting = [("", folder)]
    while waiting:
        prefix, current = waiting.pop()
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.name.startswith((".", "__MACOSX")):
                        continue
                    if _is_folder(entry):
                        waiting.append((f"{prefix}{entry.name}/", current / entry.name))
                    elif _is_file(entry):
                        yield prefix + entry.name, current / entry.name
        except FileNotFoundError as error:
            if current == folder:
                raise InputError(f"there is no folder {current}; check the path") from error
        except PermissionError as error:
            raise InputError(f"no permission to read the folder {current}; change its rights") from error
        except OSError as error:
            raise InputError(f"cannot list the folder {current}: {one_line(error)}") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, or into a folder without permission
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink() and not os.path.exists(entry.path):
        return True
    return entry.is_file()


def _nothing_found(folder: Path) -> str:
    others = sorted({suffix_of(name) or "(none)" for name, _ in _walk(folder)})
    seen = f"it holds files with the suffixes {', '.join(others[:5])}" if others else "it is empty"
    return f"no images or volumes in {folder}: {seen}; files that can be read end with {_KNOWN}"


def _spatial_dims(files: dict[str, Path], series: dict[str, list[Path]]) -> int:
    """2 or 3, from the suffixes; of the types that can be either, from the first that can be read."""
    examples: dict[int, Path] = {3: next(iter(series.values()))[0].parent} if series else {}
    by_suffix: dict[str, list[Path]] = defaultdict(list)
    for name, path in files.items():
        by_suffix[suffix_of(name)].append(path)
    problems = []
    for suffix, paths in by_suffix.items():
        dims = SPATIAL_DIMS.get(READERS[suffix]) or _look(paths)
        if isinstance(dims, int):
            examples.setdefault(dims, paths[0])
        else:
            problems.append(dims)
    if not examples:
        raise InputError(f"none of the {len(files)} files can be read, for example {problems[0]}")
    if len(examples) > 1:
        raise mixed_dimensions(str(examples[2]), str(examples[3]))
    return next(iter(examples))


def _look(paths: list[Path]) -> int | str:
    """The spatial axes of the first file that can be read; where none can, what is wrong with one of them."""
    problem = ""
    with quiet_readers():
        for path in paths:
            try:
                with DECODING.hold(file_header(path).working_bytes, "it"):
                    return _read_file(path).array.ndim - 1
            except MemoryError:
                raise
            except Exception as error:  # a damaged file is reported when the samples are inspected
                problem = problem or f"{path}: {one_line(error)}"
    return problem


def _read_file(path: Path) -> Sample:
    return READERS[suffix_of(path.name)](path)


def read_sample(path: str | Path) -> Sample:
    """One image or volume, read as training reads it: `Sample(array, spacing, is_colour)`.

    `path` is a file, or a folder with the slices of one DICOM series. `array` is (C, *spatial) in the file's own
    units: NIfTI is turned to the closest right-anterior-superior axes, (C, X, Y, Z); a DICOM series is
    (1, slices, rows, columns). `spacing` is in millimetres along these axes, or None where the file does not say it.
    """
    path = user_path(path)
    if path.is_dir():
        source = FolderSource(path)
        if len(source) != 1:
            raise InputError(f"{path} holds {len(source)} samples; give one file, or the folder of one DICOM series")
        with quiet_readers():
            return source.read(0)
    if suffix_of(path.name) not in READERS:
        way_out = "give the folder of its series" if path.suffix.lower() in dicom.SUFFIXES else f"known: {_KNOWN}"
        raise InputError(f"cannot read {path} as one sample; {way_out}")
    with quiet_readers():
        return checked(lambda: _read_file(path), str(path))


def mixed_dimensions(image: str, volume: str) -> InputError:
    """Say that a data set mixes images and volumes."""
    return InputError(
        f"the data mixes 2D images and 3D volumes: {image} is 2D and {volume} is 3D; "
        "put them into separate folders and pretrain on each"
    )
