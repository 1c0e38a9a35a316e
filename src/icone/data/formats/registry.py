"""All file formats, by suffix. A new one is a file in this folder and an entry in `BUILT_IN`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any

from icone.data.formats.base import Format
from icone.data.formats.dicom import DICOM
from icone.data.formats.hdf5 import HDF5
from icone.data.formats.itk import ITK
from icone.data.formats.nifti import NIFTI
from icone.data.formats.npy import NPY, NPZ
from icone.data.formats.pillow import IMAGE
from icone.data.formats.tiff import TIFF
from icone.data.formats.zarr import ZARR
from icone.errors import InputError
from icone.validation import user_path

BUILT_IN = (IMAGE, TIFF, NPY, NPZ, NIFTI, DICOM, ZARR, ITK, HDF5)

FORMATS: dict[str, Format] = {}
"""Every format under each of its suffixes."""
ARRAY_FORMATS: dict[str, Format] = {}
"""Those of them whose files can hold an array of many samples."""


def register_format(new: Format) -> None:
    """Make a file format known to this process: `pretrain`, `embed` and `read_sample` then read its files.

    A format of the same name is replaced. A suffix that another format has is refused.
    """
    if new.read is None and new.open_arrays is None:
        raise InputError(f"the format {new.name} can neither read one sample nor open an array of them: give it read=…")
    for suffix in new.suffixes:
        if not suffix.startswith(".") or suffix != suffix.lower():
            raise InputError(f"the suffix {suffix!r} of the format {new.name} must be in lower case, with its dot")
        if suffix in FORMATS and FORMATS[suffix].name != new.name:
            raise InputError(f"{suffix} files are read as {FORMATS[suffix].name} already; choose another suffix")
    for table in (FORMATS, ARRAY_FORMATS):
        for suffix in [suffix for suffix, known in table.items() if known.name == new.name]:
            del table[suffix]
    FORMATS.update(dict.fromkeys(new.suffixes, new))
    if new.open_arrays is not None:
        ARRAY_FORMATS.update(dict.fromkeys(new.suffixes, new))


for _format in BUILT_IN:
    register_format(_format)


def suffix_of(name: str) -> str:
    """The suffix of a file name in lower case, with two dots where a format has such a one.

    >>> suffix_of("scan.01.NII.GZ"), suffix_of("a.b.png"), suffix_of("IM0001")
    ('.nii.gz', '.png', '')
    """
    root, suffix = os.path.splitext(name.lower())
    double = os.path.splitext(root)[1] + suffix
    return double if double in FORMATS else suffix


def sample_suffixes() -> list[str]:
    """The suffixes of files that can be one sample, or a part of one."""
    return [suffix for suffix, known in FORMATS.items() if known.read is not None]


def find_format(path: Path) -> Format | None:
    """The format of a file that is a sample or a part of one: by its suffix; by its first bytes if it has none."""
    suffix = suffix_of(path.name)
    if suffix:
        known = FORMATS.get(suffix)
        return known if known is not None and known.read is not None else None
    return next((known for known in dict.fromkeys(FORMATS.values()) if known.has_mark and known.has_mark(path)), None)


def software_of(files: Iterable[Path]) -> list[Any]:
    """What decides, besides their content, which samples these files give: versions and code of their formats.

    Where a file has none of the suffixes (a DICOM slice without one, a part of a Zarr store), all formats count.
    """
    suffixes = {suffix_of(path.name) for path in files}
    chosen = suffixes if suffixes <= FORMATS.keys() else FORMATS
    return [known.software() for known in dict.fromkeys(FORMATS[suffix] for suffix in sorted(chosen))]


@contextmanager
def quiet_readers() -> Iterator[None]:
    """Keep the decoders' warnings and log lines from the user; what matters becomes an error."""
    loggers = [getLogger(name) for known in dict.fromkeys(FORMATS.values()) for name in known.loggers]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def path_and_key(spec: str) -> tuple[Path, str]:
    """A path, and the place within a file of arrays where one is named.

    >>> path, key = path_and_key("scans.h5:/day/images")
    >>> path.as_posix(), key
    ('scans.h5', 'day/images')
    """
    file, _, key = spec.partition(":/")
    key = key if suffix_of(file) in ARRAY_FORMATS else ""
    return user_path(file if key else spec), key
