"""What a file format is: how its files are recognised, checked before they are decoded, and read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from icone.errors import InputError

if TYPE_CHECKING:
    from icone.data.formats.lazy import LazyImage

Array = npt.NDArray[Any]

PREPARING = 16
"""Bytes for every value of a sample while it is prepared: as float32, scaled, and sorted for its percentiles."""


class Sample(NamedTuple):
    """One image, volume or point as its file holds it."""

    array: Array
    """Shape (C, *spatial), in the dtype of the file."""
    spacing: tuple[float, ...] | None = None
    """Millimetres per voxel along each spatial axis, where the file says so."""
    is_colour: bool | None = None
    """True where the file declares its three channels as red, green and blue, which share one intensity range; False
    where it declares them as channels of another kind, such as fluorescence; None where it does not say."""
    names: tuple[str, ...] = ()
    """The names of the channels, where the file says them."""
    notes: tuple[str, ...] = ()
    """What was guessed or left out when it was read, a sentence each."""
    missing: tuple[int, ...] = ()
    """Channels that the sample lacks: they count nowhere and are 0 once it is prepared."""


def colour_by_names(names: tuple[str, ...]) -> bool | None:
    """`Sample.is_colour` of channels with these names: False, unless there are none or they are those of colours.

    >>> colour_by_names(("DAPI", "GFP", "RFP")), colour_by_names(("Red", "Green", "Blue")), colour_by_names(())
    (False, None, None)
    """
    return None if {name.lower() for name in names} <= {"red", "green", "blue", "r", "g", "b"} else False


class Header(NamedTuple):
    """Shape and type of a stored array, known without decoding it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array; exact, however large a shape the file declares."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def working_bytes(self) -> int:
        """Memory that one sample takes at most while it is decoded and prepared."""
        return self.nbytes + PREPARING * math.prod(self.shape)

    def check_size(self, most: int) -> None:
        """Refuse a header that declares more than the `most` bytes that its file can hold.

        What Python objects take in a file is not known from their number: `check_plain` refuses them where they are
        asked for.
        """
        if self.nbytes > most and not self.dtype.hasobject:
            shape = "×".join(map(str, self.shape))
            raise InputError(
                f"its header declares {shape} values of type {self.dtype}, which are more than the file can hold: "
                "it is truncated or damaged"
            )

    def check_plain(self, name: str = "") -> None:
        """Refuse an array of Python objects, which only pickle can read; `name` is that of an array among others."""
        if self.dtype.hasobject:
            what, array = (f"its array {name}", name) if name else ("it", "array")
            raise InputError(
                f"{what} holds Python objects, which need pickle, and pickles are never opened: save "
                f"{array}.astype(str) where they are texts, such as labels, and else an array of plain numbers"
            )


class ArrayFile(Protocol):
    """An opened file of named arrays, each with many samples along its first axis."""

    headers: dict[str, Header]

    def load(self, key: str) -> Any:
        """An array that is indexed by a row, or by a range of rows."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A file format. After `icone.data.register_format(camera)`, folders of such files can be read.

    >>> def read_raw(path):
    ...     return Sample(np.fromfile(path, np.uint8).reshape(1, 64, 64))
    >>> camera = Format(name="raw camera image", suffixes=(".raw",), read=read_raw, spatial_dims=2)
    """

    name: str
    suffixes: tuple[str, ...]
    """How the names of its files end, in lower case, each with its dot."""
    read: Callable[..., Sample] | None = None
    """Reads one file as one sample; gets its path. None where a file of this format is never one sample."""
    header: Callable[[Any], Header | None] | None = None
    """Shape and type that a file declares, so that memory for it is found before it is decoded. An `InputError` says
    where the file is too short for what it declares."""
    open_arrays: Callable[[Path], ArrayFile] | None = None
    """Opens a file as an array of many samples; None where the format has no such files."""
    open_lazy: Callable[..., LazyImage] | None = None
    """Opens a file as one image or volume of which regions are read, for `--tiles`; gets its path, `axes` as `read`
    does, and the name of the array inside, or "". None where only whole samples can be read."""
    spatial_dims: int | None = None
    """2 or 3, where the suffix tells it; else a file is read to find out."""
    is_series: bool = False
    """Whether all its files in one folder are one sample, as DICOM slices are. Then `read` and `header` get the list
    of these files."""
    takes_axes: bool = False
    """Whether `read` also takes `axes`, the names that the user gives the axes of one sample (`--axes`), or None."""
    is_folder: bool = False
    """Whether what has its suffix is a folder, as a Zarr store is."""
    samples: Callable[[Any], Any] | None = None
    """Where one path may hold several samples or none. Of a series: gets the files of one folder and returns the list
    of files of every sample, or a text that says what the folder holds instead. Of a folder: gets its path and returns
    the paths of the samples inside."""
    more_files: Callable[[Path], list[Path]] | None = None
    """Other files that a file refers to, as the header in an .mhd does: they are part of the sample's content."""
    has_mark: Callable[[Path], bool] | None = None
    """Whether a file without a suffix is of this format, by its first bytes."""
    packages: tuple[str, ...] = ()
    """The packages that decode it, as pip names them. What the cache keeps is made anew for other versions of them."""
    extra: str | None = None
    """The extra of icone that installs these packages."""
    version: int = 1
    """To be raised where the same file gives another sample than before, so that the cache makes it anew. A change of
    the Python file that defines `read` does so too."""
    loggers: tuple[str, ...] = ()
    """Loggers of its packages, which stay silent while samples are read: what matters becomes an error."""

    def check_installed(self) -> None:
        """Refuse to go on without the packages that this format needs."""
        missing = [package for package in self.packages if package_version(package) is None]
        if missing:
            install = f"'icone[{self.extra}]'" if self.extra else " ".join(missing)
            raise InputError(f"reading {self.name} files needs {' and '.join(missing)}; run pip install {install}")

    def software(self) -> list[Any]:
        """What decides, besides the content of a file, which sample it gives."""
        functions = [f for f in (self.read, self.open_arrays) if f is not None]
        return [self.name, self.version, *map(package_version, self.packages), *map(_code, functions)]


def package_version(package: str) -> str | None:
    """The installed version of a package; None where it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _code(function: Callable[..., Any]) -> str:
    """The Python file that defines a function; its name where there is no such file, as in a notebook."""
    try:
        return Path(inspect.getsourcefile(function) or "").read_text(encoding="utf-8")
    except (TypeError, OSError):
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
