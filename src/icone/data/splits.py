"""Which samples take part: stratified subsets and partitions, and the paper's class imbalance.

All functions take an integer class per sample (-1 for unlabelled, a group of its own) and return sorted
positions that depend on the seed alone. scikit-learn's `StratifiedShuffleSplit` draws other members for the same seed:
the drawing below stays, because a configuration must name the same samples in every version, or the test samples of a
stored run would be trained on by the next.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from icone.errors import InputError

Integers = npt.NDArray[np.int64]


def stratified_subset(labels: Integers, n: int, seed: int) -> Integers:
    """Draw n samples with every class in proportion (largest remainder); all samples where there are fewer.

    >>> stratified_subset(np.array([0, 0, 0, 0, 1, 1]), 3, seed=0).tolist()
    [0, 2, 5]
    """
    if n < 1:
        raise InputError(f"a subset needs at least one sample, got {n} (--subset)")
    return _draw_in_proportion(labels, n, seed, least=0)


def stratified_share(labels: Integers, n: int, seed: int) -> Integers:
    """Draw n samples with every class in proportion and at least one of each; all where there are fewer.

    With the same seed a smaller share lies within a larger one, as nearly as whole numbers allow.

    >>> stratified_share(np.array([0, 0, 0, 0, 0, 1]), 1, seed=0).tolist()
    [2, 5]
    """
    classes, sizes = np.unique(labels, return_counts=True)
    return _draw(labels, classes, _apportion(sizes, n, 1, sizes), seed)


def grouped_share(labels: Integers, groups: Sequence[str], n: int, seed: int) -> Integers:
    """Draw whole groups, about n samples together, with at least one sample of every class."""
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(codes.max() + 1)
    members = [np.flatnonzero(codes == code) for code in order]
    drawn: list[int] = []
    for wanted in np.unique(labels):  # the first group that has a class that is still missing
        if wanted not in labels[drawn]:
            drawn += next(rows for rows in members if wanted in labels[rows]).tolist()
    for rows in members:
        if rows[0] not in drawn and len(drawn) + len(rows) / 2 <= n:
            drawn += rows.tolist()
    return np.sort(np.array(drawn, dtype=np.int64))


def stratified_split(
    labels: Integers, test_fraction: float, seed: int, names: tuple[str, ...] = ()
) -> tuple[Integers, Integers]:
    """Part the samples in two (train, test) with every class in proportion and on both sides.

    The test part has round(test_fraction · N) samples, or one per class if that is more. A single unlabelled sample is
    trained on. `names` of the classes are for messages.
    """
    if not 0 < test_fraction < 1:
        raise InputError(f"the test fraction must lie between 0 and 1, got {test_fraction} (--test-fraction)")
    classes, sizes = np.unique(labels, return_counts=True)
    if len(labels) < 2:
        raise InputError("one sample cannot be parted in two: give more samples, or leave --test-fraction out")
    if alone := [int(label) for label in classes[sizes == 1] if label >= 0]:
        name = names[alone[0]] if alone[0] < len(names) else alone[0]
        raise InputError(
            f"class {name} has one member, so it cannot be on both sides of a stratified split; "
            "remove it, give it more members, or set the test fraction to 0"
        )
    parted = np.flatnonzero(labels >= 0) if 1 in sizes else np.arange(len(labels))
    test = parted[_draw_in_proportion(labels[parted], round(test_fraction * len(labels)), seed, least=1)]
    return np.setdiff1d(np.arange(len(labels)), test), test


def grouped_split(
    labels: Integers, groups: Sequence[str | None], test_fraction: float, seed: int
) -> tuple[Integers, Integers]:
    """Part the samples in two (train, test) so that no group is on both sides, with classes in proportion if possible.

    A sample without a group is a group of its own. The test part has about test_fraction · N samples: it is one fold of
    scikit-learn's StratifiedGroupKFold, and whole groups decide its size.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if not 0 < test_fraction < 1:
        raise InputError(f"the test fraction must lie between 0 and 1, got {test_fraction} (--test-fraction)")
    names = [f"group {name}" if name is not None else str(position) for position, name in enumerate(groups)]
    codes = np.unique(names, return_inverse=True)[1]
    folds = min(max(2, round(1 / test_fraction)), int(codes.max()) + 1)
    if folds < 2:
        raise InputError(
            "all samples are of one group, so no part can be held out: give samples of more groups (of tiles, "
            "more files), or leave --test-fraction out"
        )
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with fewer members than folds
        train, test = next(splitter.split(codes, labels, codes))
    return train.astype(np.int64), test.astype(np.int64)


def minority_classes(classes: Integers, seed: int) -> Integers:
    """The half of the classes that `imbalanced_subset` thins out: the same for every ratio."""
    return np.sort(np.random.default_rng(seed).permutation(classes)[: len(classes) // 2])


def imbalanced_subset(labels: Integers, ratio: float, seed: int) -> tuple[Integers, tuple[int, ...]]:
    """Keep one in `ratio` samples of half of the classes, and all samples of the others.

    Which half (rounded down) is drawn from the seed. Every class keeps a member. Returns the positions
    and the minority classes.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    named = classes[classes >= 0]
    if len(named) < 2:
        raise InputError("--imbalance needs labels of two classes or more: give --labels or class folders")
    if ratio < 1:
        raise InputError(f"the imbalance ratio must be at least 1, got {ratio} (--imbalance)")
    minority = minority_classes(named, seed)
    reduced = np.maximum(1, np.rint(sizes / ratio)).astype(np.int64)
    counts = np.where(np.isin(classes, minority), reduced, sizes)
    return _draw(labels, classes, counts, seed), tuple(int(c) for c in minority)


def _draw_in_proportion(labels: Integers, total: int, seed: int, least: int) -> Integers:
    """Draw about `total` samples, every class in proportion, with `least` members or more drawn and left of each."""
    classes, sizes = np.unique(labels, return_counts=True)
    return _draw(labels, classes, _apportion(sizes, total, least, sizes - least), seed)


def _apportion(sizes: Integers, total: int, least: int, most: Integers) -> Integers:
    """Whole numbers from `least` to `most` that add up to `total` and follow `sizes` by the largest remainder."""
    total = int(np.clip(total, least * len(sizes), most.sum()))
    exact = total * sizes / sizes.sum()
    counts: Integers = np.clip(np.floor(exact + 1e-9).astype(np.int64), least, most)
    while (missing := total - counts.sum()) != 0:
        step = np.sign(missing)
        movable = counts < most if step > 0 else counts > least
        owed = np.where(movable, step * (exact - counts), -np.inf)
        counts[np.argmax(owed)] += step
    return counts


def _draw(labels: Integers, classes: Integers, counts: Integers, seed: int) -> Integers:
    rng = np.random.default_rng(seed)
    members = (rng.permutation(np.flatnonzero(labels == c))[:n] for c, n in zip(classes, counts, strict=True))
    return np.sort(np.concatenate(list(members)))
