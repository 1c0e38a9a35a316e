"""Data sets copied once per machine, so that the runs of a cluster do not read one shared disk over and over."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path

from filelock import FileLock

from icone.config import PretrainConfig


def on_this_node(config: PretrainConfig, cache: Path | None) -> PretrainConfig:
    """The configuration with its data in `cache`, copied there by the first run that needs it."""
    if cache is None or config.source.startswith("synthetic:"):
        return config
    cache.mkdir(parents=True, exist_ok=True)
    if config.source.startswith("medmnist:"):
        return _medmnist(config, cache)
    original = Path(config.source)
    labels = None if config.labels is None else _copied(config.labels, cache)
    return dataclasses.replace(config, source=str(_copied(original, cache)), labels=labels)


def _medmnist(config: PretrainConfig, cache: Path) -> PretrainConfig:
    """Point the data root at the cache; without a root the official file is downloaded there, once per machine."""
    name, _, size = config.source.removeprefix("medmnist:").partition("@")
    file = f"{name}{'' if size == '28' else '_' + size}.npz"
    if config.data_root is not None and (config.data_root / file).exists():
        _copied(config.data_root / file, cache, cache / file)
    return dataclasses.replace(config, data_root=cache)


def _copied(original: Path, cache: Path, target: Path | None = None) -> Path:
    """A copy of a file or folder under a name of its own; complete or absent."""
    target = target or cache / f"{_digest(original)}-{original.name}"
    with FileLock(cache / f".{target.name}.lock"):
        if not target.exists():
            part = target.with_name(f".{target.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.unlink(missing_ok=True)
            if original.is_dir():
                shutil.copytree(original, part)
            else:
                shutil.copyfile(original, part)
            part.rename(target)
    return target


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
