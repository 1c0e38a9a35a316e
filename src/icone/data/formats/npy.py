"""NumPy files, .npy and .npz: one sample each, or an array of many samples, whose rows are read one by one."""

from __future__ import annotations

import io
import math
import os
import struct
import threading
import weakref
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt

from icone.data.formats.axes import by_axes, slices_note, spatial_axes
from icone.data.formats.base import Array, Format, Header, Sample
from icone.data.formats.lazy import LazyImage, RawArray, read_into
from icone.data.memory import check_fits
from icone.errors import InputError

MAX_CHANNELS = 4
"""The longest axis that is taken for channels where a bare array leaves it open."""

WHOLE = 2**28
"""Bytes up to which an array of an .npz is loaded whole, which is the quickest."""
RECENT = 2**26
"""Bytes of passed rows that a pass through a compressed array keeps for threads that ask a little out of order."""
WAY_OUT = "save it as .npy or .zarr, which are read piece by piece"
LOCAL_HEADER = 30
"""Bytes before the name of a member in a ZIP file; the last four are the lengths of name and extra field."""

NUMPY_KEYS = ("image", "volume", "images", "data", "raw", "x", "arr_0")
"""Names under which an .npz with several arrays holds the data."""


def read_npy(path: Path, axes: str | None = None) -> Sample:
    """One image or volume from a .npy file; `channels_first` says how its axes are understood."""
    return bare_sample(load_numpy(path), axes)


def read_npz(path: Path, axes: str | None = None) -> Sample:
    """One image or volume from a .npz file, see `channels_first` and `NUMPY_KEYS`."""
    with load_numpy(path) as arrays:
        return bare_sample(arrays[pick_key(arrays.files)], axes)


def bare_sample(array: Array, axes: str | None) -> Sample:
    """One image or volume from an array that does not say what its axes are."""
    if axes is not None:
        return Sample(by_axes(array, axes))
    return Sample(channels_first(array), notes=bare_notes(array.shape, axes))


def bare_notes(shape: tuple[int, ...], axes: str | None) -> tuple[str, ...]:
    """What was guessed of one image or volume whose file does not say what its axes are."""
    return slices_note(shape) if axes is None and channel_axis(shape) is None else ()


def load_numpy(path: Path) -> Any:
    """`numpy.load`, never unpickling."""
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        if "pickle" in str(error) or "Python objects" in str(error):
            raise InputError(PICKLED) from error
        raise


PICKLED = "it holds Python objects or is no NumPy file; pickles are never opened, save plain numbers instead"


def pick_key(keys: list[str]) -> str:
    """The name of the data among the arrays of a file.

    >>> pick_key(["labels", "images"])
    'images'
    """
    if len(keys) == 1:
        return keys[0]
    for key in NUMPY_KEYS:
        if key in keys:
            return key
    raise InputError(
        f"it holds the arrays {', '.join(keys)}: name one of them, as in FILE:/{keys[0]}; in a folder of such files, "
        "call the one with the data image, images or raw"
    )


def channels_first(array: Array) -> Array:
    """Bring one image or volume to (C, *spatial) by its shape alone; `channel_axis` is the rule.

    >>> channels_first(np.zeros((32, 40, 3))).shape, channels_first(np.zeros((20, 32, 40))).shape
    ((3, 32, 40), (1, 20, 32, 40))
    """
    axis = channel_axis(array.shape)
    return array[None] if axis is None else np.moveaxis(array, axis, 0)


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Which axis of one sample's shape holds channels: 0, -1, or None.

    Two axes: none. Three: the last if it is 1 to 4 long, else the first if it is, else none (a volume).
    Four: the shorter of the last and the first (the last if they are equal).
    """
    if len(shape) == 2:
        return None
    if len(shape) == 3:
        return next((axis for axis in (-1, 0) if shape[axis] <= MAX_CHANNELS), None)
    if len(shape) == 4:
        return -1 if shape[-1] <= shape[0] else 0
    raise InputError(f"one sample has the shape {shape}, but it should have two to four axes")


class NpyHeader(NamedTuple):
    """The header of an .npy, and where its values begin."""

    header: Header
    is_fortran_order: bool
    offset: int


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of an .npy from the beginning of a file."""
    is_first_version = npy_format.read_magic(file) == (1, 0)
    read = npy_format.read_array_header_1_0 if is_first_version else npy_format.read_array_header_2_0
    shape, is_fortran_order, dtype = read(file)
    return NpyHeader(Header(shape, dtype), is_fortran_order, file.tell())


def npy_file_header(path: Path) -> NpyHeader:
    """The header of an .npy, whose file is long enough for what it declares."""
    with path.open("rb") as file:
        found = read_npy_header(file)
    found.header.check_plain()
    found.header.check_size(path.stat().st_size - found.offset)
    return found


def npz_headers(path: Path) -> dict[str, Header]:
    """The headers of all arrays in an .npz by name; each member is long enough for what it declares."""
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    found = read_npy_header(file)
                found.header.check_size(member.file_size - found.offset)
                headers[member.filename.removesuffix(".npy")] = found.header
    return headers


def npy_header(path: Path) -> Header:
    """What an .npy declares."""
    return npy_file_header(path).header


def npz_header(path: Path) -> Header:
    """What the array with the data in an .npz declares."""
    headers = npz_headers(path)
    key = pick_key(list(headers))
    headers[key].check_plain(key)
    return headers[key]


def axis_letters(shape: tuple[int, ...], axes: str | None) -> str:
    """A letter for every axis of one sample: as the user names those that are longer than 1, or by `channel_axis`.

    >>> axis_letters((512, 512, 3), None), axis_letters((20, 512, 512), None), axis_letters((1, 5, 64, 64), "CYX")
    ('YXC', 'ZYX', '_CYX')
    """
    if axes is None:
        channel = channel_axis(shape)
        if channel is None:
            return "ZYX"[-len(shape) :]
        spatial = "ZYX"[-(len(shape) - 1) :]
        return "C" + spatial if channel == 0 else spatial + "C"
    spatial_axes(axes)  # refuses what are no axes
    if len(axes) == len(shape):
        return axes
    if len(axes) != sum(n > 1 for n in shape):
        raise InputError(f"--axes={axes} names {len(axes)} axes, but it has the shape {shape}")
    letters = iter(axes)
    return "".join(next(letters) if n > 1 else "_" for n in shape)


def open_npy(path: Path, axes: str | None = None, key: str = "") -> LazyImage:
    """An .npy file of one image or volume, of which regions are read."""
    header, is_fortran_order, offset = npy_file_header(path)
    letters, guesses = axis_letters(header.shape, axes), bare_notes(header.shape, axes)
    if is_fortran_order:  # the same numbers as an array of the reversed shape in C order
        header, letters = header._replace(shape=header.shape[::-1]), letters[::-1]
    image = LazyImage(RawArray(path, offset, *header), letters)
    image.guesses = guesses
    return image


class NpyFile:
    """An .npy, of which `load` gives the rows one by one where they lie together, in C order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        header, self._is_fortran_order, self._offset = npy_file_header(path)
        self.headers = {"array": header}

    def load(self, key: str) -> Any:
        header = self.headers[key]
        if self._is_fortran_order:
            way_out = "save it in C order, by numpy.ascontiguousarray, which is read piece by piece"
            check_fits(header.nbytes, f"{self._path}, which is in Fortran order,", way_out)
            return load_numpy(self._path)
        return RawArray(self._path, self._offset, *header)


class NpzFile:
    """An .npz. `load` gives a small array whole, and the rows of a large one, read when asked for.

    Rows of a member that is stored without compression are read where they lie. Those of a compressed member come from
    one pass through it, which keeps what was asked for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.headers = npz_headers(path)

    def load(self, key: str) -> Any:
        header = self.headers[key]
        header.check_plain(key)
        if header.nbytes > WHOLE:
            with zipfile.ZipFile(self._path) as archive:
                member = archive.getinfo(f"{key}.npy")
                with archive.open(member) as file:
                    _, is_fortran_order, offset = read_npy_header(file)
            if not is_fortran_order and member.compress_type == zipfile.ZIP_STORED:
                return RawArray(self._path, _content_offset(self._path, member) + offset, *header)
            if not is_fortran_order:
                return StreamedRows(self._path, member.filename, header)
        check_fits(header.nbytes, f"the array {key} of {self._path}", WAY_OUT)
        with load_numpy(self._path) as arrays:
            return arrays[key]


def _content_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin: after its local header, whose names may differ from the directory's."""
    with path.open("rb") as file:
        file.seek(member.header_offset + LOCAL_HEADER - 4)
        name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + LOCAL_HEADER + int(name) + int(extra)


class StreamedRows:
    """The rows of a compressed member of an .npz: one, or a range of them.

    The member is decompressed from its beginning, a row at a time. Rows that were asked for stay in memory; of those
    that were passed, the last `RECENT` bytes do, so that threads may ask a little out of order. A row further back
    begins a new pass.
    """

    def __init__(self, path: Path, member: str, header: Header) -> None:
        self._path, self._member, self._header = path, member, header
        self._kept: dict[int, Array] = {}
        self._lock = threading.Lock()
        self._passing: Iterator[Array] = iter(())
        self._next = header.shape[0]
        row_bytes = header.nbytes // header.shape[0]
        self._recent: deque[tuple[int, Array]] = deque(maxlen=max(1, RECENT // row_bytes))
        self._before_check = self._check_every = max(1, WHOLE // row_bytes)

    def __getitem__(self, at: int | slice) -> Array:
        with self._lock:
            if isinstance(at, slice):
                return np.stack([self._row(row) for row in range(*at.indices(self._header.shape[0]))])
            return self._row(int(at))

    def _row(self, row: int) -> Array:
        if row not in self._kept:
            self._make_room()
            passed = dict(self._recent)
            self._kept[row] = passed[row] if row in passed else self._advance(row)
        return self._kept[row]

    def _advance(self, row: int) -> Array:
        if row < self._next:
            self._passing, self._next = self._stream(), 0
        for values in self._passing:
            self._recent.append((self._next, values))
            self._next += 1
            if self._next > row:
                return values
        raise InputError("the file has become shorter since it was opened")

    def _stream(self) -> Iterator[Array]:
        count, *shape = self._header.shape
        with zipfile.ZipFile(self._path) as archive, archive.open(self._member) as file:
            read_npy_header(file)
            for _ in range(count):
                content = bytearray(file.read(self._header.nbytes // count))  # one that may be written
                yield np.frombuffer(content, self._header.dtype).reshape(shape)

    def _make_room(self) -> None:
        """Look at the free memory now and then, because nobody knows how many rows will be asked for."""
        self._before_check -= 1
        if self._before_check < 0:
            check_fits(WHOLE, f"more rows of {self._member} of {self._path}", WAY_OUT)
            self._before_check = self._check_every


class CheckedRows:
    """An array (N, …) that `write_rows` wrote, in an open file; a row is checked when it is first read.

    `about` has its `shape`, its `dtype` and the `checksums` of its rows. Rows are read, not mapped, as in `RawArray`.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        (count, *shape), self._dtype, self._checksums = about["shape"], np.dtype(about["dtype"]), about["checksums"]
        self.about, self._shape, self._row_bytes = about, shape, math.prod(shape) * self._dtype.itemsize
        header = _header_bytes((count, *shape), self._dtype)
        self._start = len(header)
        self._checked: npt.NDArray[np.bool_] = np.zeros(count, dtype=bool)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        size = os.fstat(self._file).st_size
        if os.pread(self._file, len(header), 0) != header or size != len(header) + count * self._row_bytes:
            raise ValueError(f"{path} holds another array than was written")

    def __len__(self) -> int:
        return len(self._checked)

    def read(self, rows: npt.NDArray[np.int64]) -> tuple[Array, list[int]]:
        """A copy of the given rows, and which of its rows are damaged."""
        copy: Array = np.empty((len(rows), self._row_bytes), np.uint8)
        damaged = []
        for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) != 1) + 1):  # rows that lie together
            are_read = self._read_row(copy[run[0] : run[-1] + 1], rows[run[0]])
            if not (are_read and self._checked[rows[run]].all()):
                damaged += [at for at in run.tolist() if not self._is_sound(copy[at], rows[at], are_read)]
        return copy.view(self._dtype).reshape(len(rows), *self._shape), damaged

    def _read_row(self, content: Array, row: np.int64) -> bool:
        """Fill the bytes of a row, or of several from it on; False where the file does not have them."""
        return read_into(content.reshape(-1).data, self._file, self._start + int(row) * self._row_bytes)

    def _is_sound(self, content: Array, row: np.int64, is_read: bool) -> bool:
        """Check a row, which is read by itself where reading it with others failed."""
        is_read = is_read or self._read_row(content, row)
        self._checked[row] = is_read and (self._checked[row] or zlib.crc32(content.data) == self._checksums[row])
        return bool(self._checked[row])


def _header_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of an .npy with such an array."""
    file, declared = io.BytesIO(), {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(file, declared)
    return file.getvalue()


def write_rows(path: Path, rows: Iterable[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[int]:
    """Write an .npy piece by piece and return a checksum per row.

    Plain writes, because a full disk then is an error; under a mapped file it would kill the process.
    """
    checksums = []
    with path.open("wb") as file:
        file.write(_header_bytes(shape, dtype))
        for row in rows:
            assert row.shape == shape[1:]
            assert row.dtype == dtype
            content = np.ascontiguousarray(row).data
            file.write(content)
            checksums.append(zlib.crc32(content))
    assert len(checksums) == shape[0]
    return checksums


NPY = Format(
    name="npy",
    suffixes=(".npy",),
    read=read_npy,
    header=npy_header,
    open_arrays=NpyFile,
    open_lazy=open_npy,
    takes_axes=True,
    packages=("numpy",),
)
NPZ = Format(
    name="npz",
    suffixes=(".npz",),
    read=read_npz,
    header=npz_header,
    open_arrays=NpzFile,
    takes_axes=True,
    packages=("numpy",),
)
