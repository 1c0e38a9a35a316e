"""What a data set is to the rest of the package: ids, perhaps labels, samples read when asked for."""

from __future__ import annotations

import hashlib
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from icone.data.formats.base import Array as Array
from icone.data.formats.base import Sample as Sample
from icone.data.formats.lazy import LazyImage
from icone.data.identity import DigestMemory, content_digest
from icone.data.memory import DECODING
from icone.data.targets import Task
from icone.data.threads import in_chunks, read_ahead
from icone.errors import InputError, one_line, printable

Counted = Callable[[int, int], None]
"""Called with how many samples are done, and how many there are."""


def uncounted(done: int, total: int) -> None:
    """Nobody wants to know."""


class Recall:
    """Samples that were read once and will be read once more, up to a number of bytes; threads share it."""

    def __init__(self, limit: float) -> None:
        self.nbytes = 0
        self._limit = limit
        self._samples: dict[int, Sample] = {}
        self._lock = threading.Lock()

    def put(self, position: int, sample: Sample) -> None:
        with self._lock:
            if self.nbytes + sample.array.nbytes <= self._limit:
                self._samples[position] = sample
                self.nbytes += sample.array.nbytes

    def pop(self, position: int) -> Sample | None:
        with self._lock:
            sample = self._samples.pop(position, None)
            if sample is not None:
                self.nbytes -= sample.array.nbytes
            return sample


class Source(ABC):
    """A data set that reads lazily. Subclasses say how one sample is read (`_read`) and what identifies them.

    `ids` are unique and stable; `labels` holds a class name or None per sample, or is None as a whole;
    `spatial_dims` is 0 (points), 2 or 3; `size` is the edge length that the user asked of a generated set.
    """

    splits: tuple[str, ...] = ()
    """The official splits that the source has, of which one is open."""
    groups: tuple[str | None, ...] | None = None
    """The group of every sample (a patient, a plate), where it is known: no split parts a group."""
    assigned: tuple[str, ...] | None = None
    """The part that the user has assigned every sample to: train, val or test."""
    notes: tuple[str, ...] = ()
    """What was guessed or left out when the source was opened, a sentence each."""
    task: Task = "classification"
    """What the labels are: names of classes, numbers, or several names (`a|b`)."""
    label_notes: tuple[str, ...] = ()
    """What should be known about the labels and groups, a sentence each."""
    left_out: tuple[tuple[str, str], ...] = ()
    """What was found and is no sample, as (id, reason): a folder of localizers, files of another set of channels."""
    regions_above: float = math.inf
    """Bytes of a decoded sample above which `regions` opens it, so that it is never decoded whole."""
    decoding_limit: float = math.inf
    """Bytes that decoding may take, above which one sample is decoded at a time."""
    reading: str = ""
    """What decides, besides the files, which samples they give: `--axes`, `--channels-from`. The cache knows both."""
    is_cacheable: ClassVar[bool] = False
    """Whether `fingerprint`, `files` and `reading` tell all that decides what is read, without reading it, so that
    prepared samples may be kept on disk. Other samples under the same three would be answered with those kept."""
    is_decoded: ClassVar[bool] = True
    """Whether reading costs more than a copy, so that a sample is better kept than read twice."""
    one_alone: ClassVar[str] = ""
    """What errors about the shape of the samples say of sources whose whole may be one sample; begins with "; "."""
    one_slice: str = ""
    """What errors about images in the place of volumes say of sources whose samples may be slices; begins with "; "."""
    chunk: int = 16
    """Samples that a thread reads in one go, where there are many of them."""
    is_sampled: ClassVar[bool] = False
    """Whether inspection looks at some of the samples for all, because they are parts of the same few files."""

    def __init__(
        self,
        *,
        name: str,
        spatial_dims: int,
        ids: Sequence[str],
        labels: Sequence[str | None] | None = None,
        paths: Sequence[Path] | None = None,
        size: int | None = None,
    ) -> None:
        assert spatial_dims in (0, 2, 3)
        assert labels is None or len(labels) == len(ids)
        assert paths is None or len(paths) == len(ids)
        self.name = printable(name)
        self.spatial_dims = spatial_dims
        self.ids = tuple(ids)
        self.labels: tuple[str | None, ...] | None = None if labels is None else tuple(labels)
        self.paths: tuple[Path | None, ...] = (None,) * len(self.ids) if paths is None else tuple(paths)
        self.size = size
        self.recalled = Recall(limit=0)
        self._needed: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, position: int) -> Sample:
        """The sample at a position; whatever goes wrong becomes an `InputError` that names the sample."""
        recalled = self.recalled.pop(position)
        if recalled is not None:
            return recalled
        sample = checked(lambda: self._read(position), self.where(position))
        self.recalled.put(position, sample)
        return sample

    def regions(self, position: int) -> LazyImage | None:
        """A sample of which only regions are read, where it is above `regions_above` and its format can do so."""
        return None

    @contextmanager
    def room(self, position: int) -> Iterator[None]:
        """Memory to read and prepare the sample at a position: waited for while other threads use it.

        How much that is follows from what the file declares, before it is decoded; an `InputError` names the sample
        where it cannot be had, or where the file is too short for what it declares.
        """
        if position not in self._needed:
            try:
                self._needed[position] = self._bytes_needed(position)
            except InputError as error:
                raise InputError(f"cannot read {self.where(position)}: {error}") from error
            except Exception:  # decoders raise anything; reading the sample says what is wrong
                self._needed[position] = 0
        with DECODING.hold(self._needed[position], self.where(position), self.decoding_limit):
            yield

    def each(self, positions: Sequence[int]) -> Iterator[Sample | InputError]:
        """The samples at these positions, one after another, or what is wrong with them.

        The memory for a sample is held until the next is asked for.
        """
        for position in positions:
            try:
                with self.room(position):
                    yield self.read(position)
            except InputError as error:
                yield error

    def recall(self, limit: float) -> None:
        """From now on keep up to `limit` bytes of what is read until it is read again; 0 forgets all."""
        self.recalled = Recall(limit if self.is_decoded else 0)

    def where(self, position: int) -> str:
        """How a message names a sample: its path, or its id inside the data set."""
        path = self.paths[position]
        return printable(str(path)) if path is not None else f"sample {self.ids[position]} of {self.name}"

    def fingerprint(self) -> str:
        """A digest of what identifies the data, wherever it lies: 64 hexadecimal digits."""
        digest = hashlib.sha256(self._identity().encode())
        for name in self.ids:
            digest.update(b"\0" + name.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def digests(
        self, positions: Sequence[int], memory: DigestMemory, workers: int = 2, progress: Counted = uncounted
    ) -> list[str]:
        """A digest of the whole content of each sample; `memory` knows those of files that have not changed."""
        found: list[str] = []
        chunks = in_chunks(positions, workers, self.chunk)
        for digests in read_ahead(partial(self._checked_digests, memory), chunks, workers, ahead=4 * workers):
            found += digests
            progress(len(found), len(positions))
        return found

    def _checked_digests(self, memory: DigestMemory, positions: Sequence[int]) -> list[str]:
        digests = []
        for position in positions:
            try:
                digests.append(self._digest(position, memory))
            except OSError as error:
                raise InputError(f"cannot read {self.where(position)}: {one_line(error)}") from error
        return digests

    def files(self) -> Sequence[Path]:
        """The files that hold the samples; none where they are generated."""
        return ()

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Free what reading keeps in memory; a later `read` loads it again."""

    @abstractmethod
    def _read(self, position: int) -> Sample: ...

    def _digest(self, position: int, memory: DigestMemory) -> str:
        array, spacing, *_ = self.read(position)
        return content_digest(f"{array.shape} {array.dtype.str} {spacing}".encode(), np.ascontiguousarray(array).data)

    def _bytes_needed(self, position: int) -> int:
        """Memory that decoding and preparing a sample takes, by its header; 0 where that is unknown or little."""
        return 0

    @abstractmethod
    def _identity(self) -> str:
        """What tells this data from another with the same ids: file sizes, or shape and dtype."""


def checked(read: Callable[[], Sample], where: str) -> Sample:
    """The sample that `read` returns, black and white as 0 and 255; any failure is an `InputError` that says where."""
    try:
        sample = read()
        _check_dtype(sample.array.dtype)
    except MemoryError:
        raise
    except Exception as error:  # decoders raise anything: OSError, EOFError, struct.error, SyntaxError, …
        raise InputError(f"cannot read {where}: {one_line(error)}") from error
    if sample.array.dtype == np.bool_:
        sample = sample._replace(array=sample.array.astype(np.uint8) * np.uint8(255))
    return sample


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "buif":
        way_out = "; save such fields as channels of their own" if dtype.names else ""
        raise InputError(f"its values are of type {dtype}, but only integers and real numbers can be images{way_out}")
