"""One array of many samples, in an .npy, .npz, .zarr or HDF5 file, as a data set."""

from __future__ import annotations

import os
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from icone.data.formats.base import ArrayFile, Header
from icone.data.formats.npy import pick_key
from icone.data.formats.registry import ARRAY_FORMATS
from icone.data.identity import DigestMemory, content_digest, stamp_files
from icone.data.memory import check_fits
from icone.data.sources.base import Array, Counted, Sample, Source, checked, uncounted
from icone.data.sources.objects import FIRST_AXIS, Arrangement, image_note, label_texts, numbered_ids
from icone.data.targets import join_columns
from icone.data.threads import read_ahead
from icone.errors import InputError, one_line
from icone.terminal import counted
from icone.validation import meant_path

SUFFIXES = ARRAY_FORMATS
LABEL_KEYS = ("labels", "label", "y")
PIECE = 2**24
"""Bytes of an array that are read at once for digests of its rows."""
CHUNK = 2**22
"""Bytes of rows that a thread reads and prepares in one go, and at most `CHUNK_ROWS` of them."""
CHUNK_ROWS = 1024
PER_SAMPLE = 200
"""Bytes that this package keeps about every sample: its id, its place in tables, its label."""


def _whole_note(shape: tuple[int, ...]) -> list[str]:
    """What to say about an array of points or images that may be one image or volume.

    Images may be a volume where there are no more of them than they have rows.
    """
    way_out = "give the folder of such files, or cut it with --tiles"
    if one_image := image_note(shape, way_out):
        return one_image
    if len(shape) != 3 or shape[0] > max(shape[1:]):
        return []
    return [
        f"the first axis counts the samples: {shape[0]} images of {shape[1]} × {shape[2]}. Were it one volume, "
        f"{way_out}"
    ]


class ArraySource(Source):
    """Many samples in one array, the first axis counting them.

    (N, D) are points; (N, H, W) gray images; for more axes `channel_axis` says what the shape of one sample
    means, so (N, H, W, 3) is RGB and (N, 64, 64, 64) are volumes. .npy and .zarr are read piece by piece, of a large
    .npz only the rows that take part are kept in memory.

    An .npz may hold the keys `train_images`, `train_labels`, `val_images`, …, of which `split` chooses,
    or an array of samples and one named `labels`. `key` names the array in a file that holds several.
    """

    is_cacheable: ClassVar[bool] = True
    is_decoded: ClassVar[bool] = False
    one_alone: ClassVar[str] = FIRST_AXIS + "given by its folder, or in Python by a list of its path"

    def __init__(
        self, path: Path, split: str, names: dict[str, str] | None = None, axes: str | None = None, key: str = ""
    ) -> None:
        if not path.exists():
            raise InputError(f"there is no file {path}{meant_path(path) or '; check the path'}")
        try:
            self._store = _open(path)
            self._key, label_key = _keys(sorted(self._store.headers), split, key)
            self._header: Header = self._store.headers[self._key]
            self._header.check_plain(self._key)
            _check_header(self._header)
            count = self._header.shape[0]
            check_fits(count * PER_SAMPLE, f"a list of its {count} samples", "cut it into smaller files")
            labels = None if label_key is None else _class_labels(self._store.load(label_key), names)
            if labels is not None and len(labels) != count:
                raise InputError(f"it has {counted(count, 'sample')} but {counted(len(labels), 'label')}")
            self._arrange = Arrangement(self._header.shape[1:], axes)
        except InputError as error:
            raise InputError(f"cannot read {path}: {error}") from error
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"cannot read {path}: {one_line(error)}") from error
        super().__init__(
            name=path.name,
            spatial_dims=self._arrange.spatial_dims,
            ids=numbered_ids(count),
            labels=labels,
        )
        self.chunk = max(1, min(CHUNK_ROWS, CHUNK // max(1, self._header.nbytes // count)))
        self.splits = () if key else _splits(self._store.headers)
        self.notes = (
            *_split_note(split, {name: self._store.headers[f"{name}_images"].shape[0] for name in self.splits}),
            *self._arrange.notes,
            *(_whole_note(self._header.shape) if axes is None and labels is None else ()),
        )
        self.reading = axes or ""
        self._path = path
        self._array: Any = None
        self._lock = threading.Lock()

    def _bytes_needed(self, position: int) -> int:
        return self._header._replace(shape=self._header.shape[1:]).working_bytes

    def _read(self, position: int) -> Sample:
        return Sample(self._arrange(np.asarray(self._loaded()[position])))

    def each(self, positions: Sequence[int]) -> Iterator[Sample | InputError]:
        """Rows that follow one another are read as one piece, which a chunk of a compressed array wants."""
        first, count = positions[0], len(positions)
        if count == 1 or count > self.chunk or list(positions) != list(range(first, first + count)):
            yield from super().each(positions)
            return
        try:
            rows = checked(lambda: Sample(np.asarray(self._loaded()[first : first + count])), self.where(first)).array
        except InputError:
            yield from super().each(positions)  # which says what is wrong with each of them
            return
        for row in rows:
            yield Sample(self._arrange(row))

    def _loaded(self) -> Any:
        with self._lock:
            if self._array is None:
                self._array = self._store.load(self._key)
            return self._array

    def digests(
        self, positions: Sequence[int], memory: DigestMemory, workers: int = 2, progress: Counted = uncounted
    ) -> list[str]:
        """A digest per row, so that an array may grow; rows are read in pieces, each by one thread."""
        try:
            return self._row_digests(positions, memory, workers, progress)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"cannot read {self._path}: {one_line(error)}") from error

    def _row_digests(
        self, positions: Sequence[int], memory: DigestMemory, workers: int, progress: Counted
    ) -> list[str]:
        stamp = stamp_files(self.files())
        place = f"{os.path.abspath(self._path)} {self._key}"
        found = {p: memory.find(f"{place} {p}", stamp) if stamp else None for p in positions}
        missing = sorted(position for position, digest in found.items() if digest is None)
        (_, *shape), dtype = self._header
        rows = max(1, PIECE // max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize))
        pieces = [list(group) for _, group in groupby(missing, lambda position: position // rows)]
        kind = f"{shape} {dtype.str}".encode()

        def look(piece: list[int]) -> list[str]:
            array, first, last = self._loaded(), piece[0], piece[-1]
            if last - first + 1 <= 2 * len(piece):  # most of a range: read it at once
                together = np.asarray(array[first : last + 1])
                found = [together[position - first] for position in piece]
            else:
                found = [array[position] for position in piece]
            return [content_digest(kind, np.ascontiguousarray(row).data) for row in found]

        done = len(positions) - len(missing)
        for piece, digests in zip(pieces, read_ahead(look, pieces, workers, ahead=workers), strict=True):
            for position, digest in zip(piece, digests, strict=True):
                found[position] = digest
                if stamp:
                    memory.keep(f"{place} {position}", stamp, digest)
            done += len(piece)
            progress(done, len(positions))
        return [cast(str, found[position]) for position in positions]

    def files(self) -> list[Path]:
        return [self._path] if self._path.is_file() else sorted(f for f in self._path.rglob("*") if f.is_file())

    def close(self) -> None:
        with self._lock:
            self._array = None

    def _identity(self) -> str:
        return f"array {self._key} of shape {self._header.shape} and type {self._header.dtype}"


def _open(path: Path) -> ArrayFile:
    known = ARRAY_FORMATS[path.suffix.lower()]
    assert known.open_arrays is not None
    known.check_installed()
    return known.open_arrays(path)


def _keys(keys: list[str], split: str, key: str) -> tuple[str, str | None]:
    """Names of the samples' array and of the labels' array, which lies in the same group."""
    if key:
        if key not in keys:
            raise InputError(f"it holds no array {key}; it holds {', '.join(keys)}")
        group = key.rpartition("/")[0]
        beside = [f"{group}/{name}" if group else name for name in LABEL_KEYS]
        return key, next((name for name in beside if name in keys and name != key), None)
    splits = _splits(keys)
    if splits:
        if split not in splits:
            raise InputError(f"it has no split {split!r}; it has {', '.join(splits)} (--split)")
        labels = f"{split}_labels"
        return f"{split}_images", labels if labels in keys else None
    label_key = next((key for key in LABEL_KEYS if key in keys and len(keys) > 1), None)
    return pick_key([key for key in keys if key != label_key]), label_key


def _splits(keys: Iterable[str]) -> tuple[str, ...]:
    """The official splits of a file with arrays called like `train_images`."""
    return tuple(sorted(key.removesuffix("_images") for key in keys if key.endswith("_images")))


def _split_note(split: str, sizes: Mapping[str, int]) -> Iterator[str]:
    """Which of several splits is read, and what the others are for; `sizes` are their samples."""
    if len(sizes) > 1:
        held = ", ".join(f"{name} ({sizes[name]:,})" for name in sorted(sizes, key="train val test".find))
        tests = "; `icone evaluate --official-test` tests on test" if split != "test" and "test" in sizes else ""
        yield f"the file has the splits {held}, of which {split} is read (--split){tests}"


def _check_header(header: Header) -> None:
    if len(header.shape) < 2:
        raise InputError(f"it has the shape {header.shape}, but samples need at least the axes (N, D)")
    if 0 in header.shape:
        raise InputError(f"it has the shape {header.shape}, which holds nothing")


def _class_labels(array: Any, names: dict[str, str] | None) -> Sequence[str | None] | None:
    """A text per sample: a class, a number, or `a|b` where the array is (N, K) of 0 and 1; NaN and "": not labelled."""
    labels: Array = np.asarray(array)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
        chosen = [names[str(i)] if names else str(i) for i in range(labels.shape[1])]
        return join_columns(chosen, [label_texts(column) for column in labels.T], "its labels")
    if labels.ndim != 1:
        return None
    texts = label_texts(labels)
    return [names[text] if text is not None else None for text in texts] if names else texts
