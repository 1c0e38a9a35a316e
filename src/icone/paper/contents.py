"""What data holds, as a digest: runs on other contents are other runs, wherever the files lie."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from icone.config import PretrainConfig
from icone.data.identity import file_digest
from icone.errors import InputError
from icone.validation import user_path


class Contents(NamedTuple):
    """Digests of the data and the labels of a run; a data set that is known by name is that name."""

    source: str
    labels: str | None


def contents_of(config: PretrainConfig) -> Contents:
    """Look at the data and the labels of a configuration as they are now."""
    return Contents(content_digest(config.source), None if config.labels is None else content_digest(config.labels))


def content_digest(source: str | Path) -> str:
    """A digest of a file's bytes, or of the names below a folder and the bytes of its files.

    `file_digest` reads a file again only where its size or its time has changed.
    """
    path = user_path(source)
    try:
        if path.is_file():
            return file_digest(path)
        if path.is_dir():
            listing = [(file.relative_to(path).as_posix(), file_digest(file)) for file in sorted(_files(path))]
            return hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:32]
    except OSError as error:
        raise InputError(f"cannot read {error.filename or path} ({error.strerror}): check its rights") from error
    return str(source)


def _files(folder: Path) -> Iterator[Path]:
    """All files that a reader would see: links are followed, each real folder once, and hidden files are passed over.

    The hidden files of a Zarr array are part of it.
    """
    seen: set[str] = set()
    for current, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(current)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(current, name) for name in names if not name.startswith(".") or name.startswith(".z"))


def _raise(error: OSError) -> None:
    raise error
