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
    verified. The package is needed for the download alone: without it, a file that is there is read as it is, and a
    note says what is not known.
    """
    try:
        registry, _ = _registry()
    except InputError as error:
        return _open_as_it_is(spec, root, split, error)
    path = fetch_medmnist(spec, root)
    return ArraySource(path, split, names=registry[_parse(spec, registry)[0]]["label"])


def _open_as_it_is(spec: str, root: Path | None, split: str, no_package: InputError) -> ArraySource:
    """A file that is there, without the package that knows checksums and the names of classes."""
    name, _, size = _name_and_size(spec)
    size = size or ("64" if name.endswith("3d") else "224")  # as the package's registry would say
    folder = root or _default_root()
    path = folder / _file_name(name, size)
    if not path.exists():
        files = sorted(one.name for one in folder.glob(f"{name}*.npz")) if folder.is_dir() else []
        others = f" Of {name} that folder holds {', '.join(files)}." if files else ""
        raise InputError(
            f"there is no {path}.{others} Its download needs the package medmnist: pip install 'icone[medmnist]'. A "
            "file from elsewhere is put there, or its folder is given with --data-root"
        ) from no_package
    source = ArraySource(path, split)
    source.notes += (
        f"the package medmnist is not installed, so that the checksum of {path.name} was not verified, and classes "
        "have numbers instead of names (pip install 'icone[medmnist]')",
    )
    return source


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

    return INFO, Path(DEFAULT_ROOT or _default_root())


def _default_root() -> Path:
    """The package's own folder, also where it could not make it."""
    return Path.home() / ".medmnist"


def _file_name(name: str, size: int | str) -> str:
    return f"{name}.npz" if str(size) == "28" else f"{name}_{size}.npz"


def _sizes(entry: dict[str, Any]) -> list[int]:
    return [28, *sorted(int(m[1]) for key in entry if (m := re.fullmatch(r"url_(\d+)", key)))]


def _name_and_size(spec: str) -> tuple[str, str, str]:
    return spec.removeprefix("medmnist:").lower().partition("@")


def _parse(spec: str, registry: dict[str, dict[str, Any]]) -> tuple[str, int]:
    name, _, wanted = _name_and_size(spec)
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
