"""`icone fetch`: data sets with known checksums, by name."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from icone.data.download import Progress, download
from icone.data.sources.medmnist import fetch_medmnist
from icone.errors import InputError, one_line

IMAGENETTE = {
    "160": ("imagenette2-160", "e793b78cc4c9e9a4ccc0c1155377a412"),
    "320": ("imagenette2-320", "3df6f0d01a2c9592104656642f5e78a3"),
    "full": ("imagenette2", "fe2fc210e6bb7c5664d602c3cd71e612"),
}
"""Archive and MD5 sum by the length of the shorter edge: ten classes of ImageNet, 9,469 images to train on and 3,925
others (Howard, 2019, github.com/fastai/imagenette, Apache 2.0)."""
IMAGENETTE_URL = "https://s3.amazonaws.com/fast-ai-imageclas/{}.tgz"
IMAGENETTE_CLASSES = {
    "n01440764": "tench", "n02102040": "english_springer", "n02979186": "cassette_player", "n03000684": "chain_saw",
    "n03028079": "church", "n03394916": "french_horn", "n03417042": "garbage_truck", "n03425413": "gas_pump",
    "n03445777": "golf_ball", "n03888257": "parachute",
}  # fmt: skip
"""Names of the folders in the archive, and of ours."""


def fetch(name: str, root: Path | None = None, progress: Progress = lambda done, total: None) -> tuple[Path, str]:
    """Download a data set, unless it is there and whole; where it lies, and what to give `icone pretrain` as a source.

    `name` is `medmnist:NAME@SIZE` or `imagenette@160` (320, full). MedMNIST lies in the folder of its package and
    Imagenette in the user's data folder, unless `root` is given.
    """
    if name.startswith("medmnist:"):
        return fetch_medmnist(name, root, progress), name
    kind, _, size = name.partition("@")
    if kind == "imagenette" and (size or "160") in IMAGENETTE:
        path = _fetch_imagenette(*IMAGENETTE[size or "160"], root or data_folder(), progress)
        return path, str(path)
    raise InputError(
        f"cannot fetch {name!r}: known are medmnist:NAME@SIZE, paper (the 13 sets of the paper) and "
        f"{', '.join(f'imagenette@{one}' for one in IMAGENETTE)}"
    )


def data_folder() -> Path:
    """Where fetched data sets are kept: `icone` in the user's data folder, $XDG_DATA_HOME or ~/.local/share."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "icone"


def _fetch_imagenette(name: str, md5: str, root: Path, progress: Progress) -> Path:
    folder = root / name
    if folder.is_dir():
        return folder
    archive = root / f"{name}.tgz"
    try:
        download(IMAGENETTE_URL.format(name), archive, md5, progress)
    except InputError as error:
        raise InputError(
            f"{error} You can also fetch it elsewhere, put it to {archive}, and give the same command again"
        ) from error
    _unpack(archive, name, folder, lambda wnid: IMAGENETTE_CLASSES.get(wnid, wnid))
    archive.unlink()
    return folder


def _unpack(archive: Path, inner: str, folder: Path, rename: Callable[[str], str]) -> None:
    """Unpack the folder `inner` of an archive under another name first, and call its class folders by their names."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter="data")
        for split in (part / inner).iterdir():
            for one in list(split.iterdir()) if split.is_dir() else []:
                one.rename(split / rename(one.name))
        (part / inner).rename(folder)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise InputError(f"cannot unpack {archive}: {one_line(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
