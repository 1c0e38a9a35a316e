"""Data sets copied once per machine, so that the runs of a cluster do not read one shared disk over and over."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from filelock import FileLock

from icone.config import PretrainConfig
from icone.errors import InputError
from icone.paper.contents import Contents, content_digest, contents_of
from icone.validation import user_path


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
