"""MedMNIST by name and size: `medmnist:NAME@SIZE`, through the registry of the medmnist package."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from icone.data.download import Progress, download, file_md5
from icone.data.sources.array_file import ArraySource
from icone.errors import InputError, one_line, optional, unknown_name


def open_medmnist(spec: str, root: Path | None, split: str) -> ArraySource:
    """The given split of a MedMNIST set, for example `medmnist:adrenalmnist3d@64`.

    Without a size it is the largest: 224 for images, 64 for volumes. The file is looked for in `root`
    (default: the medmnist package's own folder) and downloaded there if it is missing; its checksum is
    verified.
    """
    path = fetch_medmnist(spec, root)
    registry, _ = _registry()
    return ArraySource(path, split, names=registry[_parse(spec, registry)[0]]["label"])


def fetch_medmnist(spec: str, root: Path | None, progress: Progress = lambda done, total: None) -> Path:
    """The file of a MedMNIST set, downloaded where it is missing, its checksum verified."""
    registry, default_root = _registry()
    name, size = _parse(spec, registry)
    entry = registry[name]
    suffix = "" if size == 28 else f"_{size}"
    path = (root or default_root) / _file_name(name, size)
    url, checksum = entry[f"url{suffix}"], entry[f"MD5{suffix}"]
    if path.exists():
        _verify(path, checksum)
        return path
    try:
        download(url, path, checksum, progress)
    except InputError as error:
        there = [str(one) for one in _sizes(entry) if (path.parent / _file_name(name, one)).exists()]
        other = f" Of {name} these sizes are there: {', '.join(there)} (medmnist:{name}@{there[0]})." if there else ""
        raise InputError(
            f"{path} is missing: {error}{other} You can also fetch it elsewhere and name its folder with --data-root"
        ) from error
    return path


def _registry() -> tuple[dict[str, dict[str, Any]], Path]:
    with optional("medmnist", "a source medmnist:NAME"):
        from medmnist.info import DEFAULT_ROOT, INFO

    return INFO, Path(DEFAULT_ROOT)


def _file_name(name: str, size: int) -> str:
    return f"{name}.npz" if size == 28 else f"{name}_{size}.npz"


def _sizes(entry: dict[str, Any]) -> list[int]:
    return [28, *sorted(int(m[1]) for key in entry if (m := re.fullmatch(r"url_(\d+)", key)))]


def _parse(spec: str, registry: dict[str, dict[str, Any]]) -> tuple[str, int]:
    name, _, wanted = spec.removeprefix("medmnist:").lower().partition("@")
    if name not in registry:
        raise unknown_name("MedMNIST set", name, registry)
    sizes = _sizes(registry[name])
    if not wanted:
        return name, sizes[-1]
    if wanted not in map(str, sizes):
        raise InputError(f"{name} has no size {wanted!r}; it has {', '.join(map(str, sizes))}")
    return name, int(wanted)


@functools.lru_cache
def _md5(path: Path, times: tuple[int, ...]) -> str:
    """The checksum of a file, computed once in a process while its size and times stay the same."""
    return file_md5(path)


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
