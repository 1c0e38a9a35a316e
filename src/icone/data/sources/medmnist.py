"""MedMNIST by name and size: `medmnist:NAME@SIZE`, through the registry of the medmnist package."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path
from typing import Any

from icone.data.sources.array_file import ArraySource
from icone.errors import InputError, one_line, optional, unknown_name


def open_medmnist(spec: str, root: Path | None, split: str) -> ArraySource:
    """The given split of a MedMNIST set, for example `medmnist:adrenalmnist3d@64`.

    Without a size it is the largest: 224 for images, 64 for volumes. The file is looked for in `root`
    (default: the medmnist package's own folder) and downloaded there if it is missing; its checksum is
    verified.
    """
    registry, default_root = _registry()
    name, size = _parse(spec, registry)
    entry = registry[name]
    suffix = "" if size == 28 else f"_{size}"
    path = (root or default_root) / f"{name}{suffix}.npz"
    url, checksum = entry[f"url{suffix}"], entry[f"MD5{suffix}"]
    if not path.exists():
        _download(url, path)
    _verify(path, checksum)
    return ArraySource(path, split, names=entry["label"])


def _registry() -> tuple[dict[str, dict[str, Any]], Path]:
    with optional("medmnist", "a source medmnist:NAME"):
        from medmnist.info import DEFAULT_ROOT, INFO

    return INFO, Path(DEFAULT_ROOT)


def _parse(spec: str, registry: dict[str, dict[str, Any]]) -> tuple[str, int]:
    name, _, wanted = spec.removeprefix("medmnist:").lower().partition("@")
    if name not in registry:
        raise unknown_name("MedMNIST set", name, registry)
    sizes = [28, *sorted(int(m[1]) for key in registry[name] if (m := re.fullmatch(r"url_(\d+)", key)))]
    if not wanted:
        return name, sizes[-1]
    if wanted not in map(str, sizes):
        raise InputError(f"{name} has no size {wanted!r}; it has {', '.join(map(str, sizes))}")
    return name, int(wanted)


def _download(url: str, path: Path) -> None:
    """Fetch a file under another name first, so that an interrupted download is never taken for the file."""
    from torch.hub import download_url_to_file

    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        download_url_to_file(url, str(part))
        part.replace(path)
    except OSError as error:  # no network, no such file on the server, no permission, disk full
        raise InputError(
            f"{path} is missing and cannot be downloaded ({one_line(error)}); "
            f"fetch {url} elsewhere and name its folder with --data-root"
        ) from error


@functools.lru_cache
def _md5(path: Path, times: tuple[int, ...]) -> str:
    """The checksum of a file, computed once in a process while its size and times stay the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _verify(path: Path, checksum: str) -> None:
    try:
        stat = path.stat()
        actual = _md5(path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    except OSError as error:
        raise InputError(f"cannot read {path}: {one_line(error)}") from error
    if actual != checksum:
        raise InputError(
            f"{path} is not the official file (its checksum differs): delete it to download it again, "
            "or give its path as the source if it is data of your own"
        )
