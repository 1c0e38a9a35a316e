"""What the names of folders and files say: classes, splits, segmentations, the sequences of a patient."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from icone.data.formats.registry import suffix_of
from icone.data.labels import SPLITS
from icone.terminal import either

Found = TypeVar("Found")
FOLDER_SPLITS = SPLITS | {"imagestr": "train", "imagests": "test"}
"""The folders of splits, those of the Medical Segmentation Decathlon and of nnU-Net too."""
LABEL_FOLDERS = frozenset(("labelstr", "labelsts"))
"""The folders of segmentations beside `imagesTr` and `imagesTs`."""
MASK_NAMES = re.compile(r"(?:.*[/_\-. ])?(?:seg|mask|masks|segmentation|labelmap|groundtruth|gt)", re.IGNORECASE)
"""How files with segmentations are called, without their suffix."""
MASK_FOLDERS = frozenset(("mask", "masks", "seg", "segmentation", "segmentations", "groundtruth"))
"""How folders with segmentations are called, in lower case."""


def labels_from_folders(ids: Sequence[str]) -> tuple[str, ...] | None:
    """The first folder of every id as its class, or None where the folders do not look like classes.

    They do if every file is inside a folder, and there are two folders or more, each with at least two
    files. Folders that are named like splits (train, test, …) are no classes, nor are those of `sequence_note`.

    >>> labels_from_folders(["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"])
    ('cat', 'cat', 'dog', 'dog')
    >>> labels_from_folders(["patient1/scan.nii", "patient2/scan.nii"]) is None
    True
    """
    if any("/" not in name for name in ids):
        return None
    folders = tuple(name.split("/", 1)[0] for name in ids)
    sizes = Counter(folders)
    if len(sizes) < 2 or min(sizes.values()) < 2 or {name.lower() for name in sizes} <= FOLDER_SPLITS.keys():
        return None
    return None if sequence_note(ids) else folders


def sequence_note(ids: Sequence[str]) -> str:
    """A sentence where every folder holds the same few files of one sample, called like the folder; else nothing.

    So the sequences of an MRI lie: `sub1/sub1_t1.nii.gz`, `sub1/sub1_flair.nii.gz`. What follows the folder's name has
    a letter, because `class1/class1_001.png` is numbered.

    >>> sequence_note(["s1/s1_t1.nii", "s1/s1_t2.nii", "s2/s2_t1.nii", "s2/s2_t2.nii"])[:60]
    'every folder holds one sample in several files (t1, t2), by '
    >>> sequence_note(["c1/c1_001.png", "c1/c1_002.png", "c2/c2_001.png", "c2/c2_002.png"])
    ''
    """
    rests: dict[str, set[str]] = {}
    for name in ids:
        folder, _, file = name.rpartition("/")
        own = PurePosixPath(folder).name
        if not own or not file.startswith(f"{own}_"):
            return ""
        rests.setdefault(folder, set()).add(file.removeprefix(f"{own}_"))
    first = next(iter(rests.values()), set())
    suffixes = {suffix_of(rest) for rest in first}
    kinds = sorted(rest[: len(rest) - len(suffix_of(rest))] for rest in first)
    images = [kind for kind in kinds if not MASK_NAMES.fullmatch(kind)]
    if len(rests) < 2 or len(first) < 2 or len(suffixes) > 1 or any(rest != first for rest in rests.values()):
        return ""
    if not all(any(map(str.isalpha, kind)) for kind in kinds):
        return ""
    return (
        f"every folder holds one sample in several files ({', '.join(kinds)}), by their names, and each file is taken "
        f'for a sample: --channels-from="{{id}}_{{{",".join(images)}}}{suffixes.pop()}" makes them its channels'
    )


def splits_from_folders(ids: Sequence[str]) -> tuple[tuple[str, ...] | None, list[str]]:
    """The split of every id by its first folder, and the ids below these folders.

    Where a folder is not named like a split, or none is the training part, there are no splits, and the ids stay.

    >>> splits_from_folders(["Training/cat/1.png", "Testing/dog/1.png"])
    (('train', 'test'), ['cat/1.png', 'dog/1.png'])
    """
    parts = [name.partition("/") for name in ids]
    found = tuple(FOLDER_SPLITS.get(first.lower(), "") if rest else "" for first, _, rest in parts)
    if "" in found or "train" not in found:
        return None, list(ids)
    return found if len(set(found)) > 1 else None, [rest for _, _, rest in parts]


def without_segmentations(samples: dict[str, Found]) -> tuple[dict[str, Found], list[str]]:
    """What was found, by id, without `labelsTr` and `labelsTs` where `imagesTr` lies beside; and a note about them.

    >>> without_segmentations({"imagesTr/1.nii": 1, "labelsTr/1.nii": 2})[0]
    {'imagesTr/1.nii': 1}
    """
    folders = {name.partition("/")[0].lower() for name in samples}
    if "imagestr" not in folders or not folders & LABEL_FOLDERS:
        return samples, []
    kept = {name: one for name, one in samples.items() if name.partition("/")[0].lower() not in LABEL_FOLDERS}
    return kept, [f"{len(samples) - len(kept)} segmentations in labelsTr and labelsTs are left out"]


def split_note(ids: Sequence[str]) -> str:
    """A sentence where some of the first folders are named like different splits and others are not; else nothing.

    >>> split_note(["train/1.png", "test/1.png", "holdout/1.png"])[:64]
    'the folders test and train are named like splits, but holdout is'
    >>> split_note(["car/1.png", "train/1.png"])
    ''
    """
    folders = sorted({name.partition("/")[0] for name in ids if "/" in name})
    known = [name for name in folders if name.lower() in FOLDER_SPLITS]
    others = [name for name in folders if name.lower() not in FOLDER_SPLITS]
    if not others or len({FOLDER_SPLITS[name.lower()] for name in known}) < 2:
        return ""
    return (
        f"the folders {' and '.join(known)} are named like splits, but {others[0]} is not, so that all are trained on: "
        f"call it train, val or test, or give --exclude={shlex.quote(others[0])}"
    )


def mask_notes(ids: Sequence[str]) -> Iterator[str]:
    """Samples that are segmentations by their names, among others that are not."""
    masks = [name for name in ids if looks_like_mask(name)]
    if not masks or len(masks) == len(ids):
        return
    folder, _, file = masks[0].rpartition("/")
    stem = file[: len(file) - len(suffix_of(file))]
    is_named = MASK_NAMES.fullmatch(stem) is not None
    last = re.search(r"[_\-. ]?[^_\-. ]*$", stem)
    inside = next((part for part in folder.split("/") if part.lower() in MASK_FOLDERS), "")
    pattern = f"*{last[0] if last else ''}{suffix_of(file)}" if is_named else inside
    are = either(len(masks), "is a segmentation by its name", "are segmentations by their names")
    yield (
        f'{len(masks):,} of {len(ids):,} samples {are}, such as {masks[0]}: --exclude="{pattern}" leaves such files out'
    )


def looks_like_mask(name: str) -> bool:
    """Whether a file is a segmentation by its name or by that of a folder around it.

    >>> looks_like_mask("a/b_seg.nii.gz"), looks_like_mask("masks/1.png"), looks_like_mask("masking.png")
    (True, True, False)
    """
    *folders, file = name.split("/")
    stem = file[: len(file) - len(suffix_of(file))]
    return bool(MASK_NAMES.fullmatch(stem)) or any(folder.lower() in MASK_FOLDERS for folder in folders)
