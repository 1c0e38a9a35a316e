"""The samples below a folder: which files, series of files and stores there are, without reading what they hold."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from icone.data.formats.base import Format, Header
from icone.data.formats.registry import FORMATS, find_format, sample_suffixes, suffix_of
from icone.data.sources.base import Sample
from icone.errors import InputError, one_line, printable
from icone.terminal import counted
from icone.validation import meant_path, user_path


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


class MissingFile(InputError):
    """A file that a list or a table names is not there."""


def find_sample(path: Path) -> FoundSample:
    """The sample that a path is: a file, a folder with one series of DICOM slices, or a Zarr store with one image.

    A single DICOM file is the image that it holds, or the volume of its frames.
    """
    if path.is_dir():
        found = list(find_samples(path).samples.values())
        if len(found) != 1 or not (found[0].format.is_series or found[0].format.is_folder):
            raise InputError(f"{path} is a folder, but not one DICOM series; give files, or the folder as a source")
        return found[0]
    if not path.exists():
        raise MissingFile(f"there is no file {path}{meant_path(path) or '; check the path'}")
    known = format_of(path)
    if known is None:
        suffixes = ", ".join(sample_suffixes())
        raise InputError(f"cannot read {path} as one sample; files that can be read end with {suffixes}")
    return file_sample(known, path)


class Found(NamedTuple):
    """The samples below a folder by id, what is none with the reason, and what else should be said."""

    samples: dict[str, FoundSample]
    left_out: list[tuple[str, str]]
    notes: list[str]


def find_samples(folder: Path, patterns: Patterns | None = None, labels: Path | None = None) -> Found:
    """The samples below a folder; a Zarr store is such a folder too. No note is about their own table of `labels`."""
    table = None if labels is None else os.path.realpath(user_path(labels))
    found: dict[str, FoundSample] = {}
    others: Counter[str] = Counter()
    unchosen = 0
    itself = FORMATS.get(suffix_of(folder.name))
    entries = [("", folder)] if itself is not None and itself.is_folder else walk(folder)
    for name, file in entries:
        known = format_of(file)
        if known is None:
            if table is None or os.path.realpath(file) != table:
                others[suffix_of(file.name) or "no suffix"] += 1
            continue
        if patterns is not None and not patterns.accept(name):
            unchosen += 1
            continue
        if not known.is_series:
            parts = _store_samples(known, name, file) if known.is_folder else {name: file_sample(known, file)}
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


def file_sample(known: Format, path: Path) -> FoundSample:
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


def format_of(path: Path) -> Format | None:
    try:
        return find_format(path)
    except PermissionError as error:
        raise InputError(f"no permission to read the file {path}; change its rights or move it away") from error
    except OSError:  # it has vanished, or is a link that leads nowhere
        return None


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
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
