"""What data holds, as a digest: runs on other contents are other runs, wherever the files lie; and copies on a node."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

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


def on_this_node(config: PretrainConfig, cache: Path | None, contents: Contents) -> PretrainConfig:
    """The configuration with its data in `cache`, copied there by the first run that needs it.

    A copy is named by its contents. They are part of the key of a run, and checked without a cache too: no figure of
    other data is ever stored under that key.
    """
    if config.source.startswith("synthetic:"):
        return config
    if cache is None:
        if contents_of(config) != contents:
            raise _changed(config.source)
        return config
    cache.mkdir(parents=True, exist_ok=True)
    if config.source.startswith("medmnist:"):
        return _medmnist(config, cache)
    source = _kept(user_path(config.source), cache, contents.source)
    labels = None
    if config.labels is not None:
        assert contents.labels is not None
        labels = _kept(config.labels, cache, contents.labels)
    return dataclasses.replace(config, source=str(source), labels=labels)


def _medmnist(config: PretrainConfig, cache: Path) -> PretrainConfig:
    """Point the data root at the cache; without a root the official file is downloaded there, once per machine."""
    name, _, size = config.source.removeprefix("medmnist:").partition("@")
    file = f"{name}{'' if size == '28' else '_' + size}.npz"
    if config.data_root is not None and (config.data_root / file).exists():
        _copied(config.data_root / file, cache / file)  # its checksum is verified when it is opened
    return dataclasses.replace(config, data_root=cache)


def _kept(original: Path, cache: Path, digest: str) -> Path:
    return _copied(original, cache / f"{digest}-{original.name}", digest)


def _copied(original: Path, target: Path, digest: str | None = None) -> Path:
    """A copy of a file or folder; complete, with the contents that its name promises, or absent."""
    with FileLock(target.with_name(f".{target.name}.lock")):
        if target.exists():
            return target
        part = target.with_name(f".{target.name}.part")
        try:
            _remove(part)
            if original.is_dir():
                shutil.copytree(original, part)
            else:
                shutil.copyfile(original, part)
            if digest is not None and content_digest(part) != digest:
                raise _changed(original)
            part.rename(target)
        except BaseException:
            _remove(part)
            raise
    return target


def _changed(source: str | Path) -> InputError:
    return InputError(
        f"{source} is not what it was when the sweep began: wait until the data is complete, and run the command again"
    )


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
