"""How much of the labels a simple classifier reads from frozen features.

scikit-learn is imported where it is used, because training imports this module and does not use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from icone.errors import InputError, unknown_name
from icone.evaluation.bootstrap import Codes, Interval, group_codes, grouped_recall_interval, recall_interval
from icone.evaluation.inputs import Features, FloatArray, finite_array

MAX_ITERATIONS = 1000
MOST_THREADS = 4
"""Threads of the regression's matrix products. They are small: with the 16 threads of a large machine an evaluation
took 11.7 s instead of 7.8, and several runs at a time wait for each other."""
FEW_TESTED = 5
"""Test samples of a class: of fewer, draws with replacement tell too little about its recall, and of one nothing."""

Labels = npt.ArrayLike | Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeResult:
    """Scores of one probe on the test part, all between 0 and 1; `float(result)` is the balanced accuracy."""

    balanced_accuracy: float
    """Mean recall over the classes that occur in the test part."""
    accuracy: float
    """Share of test samples that are right."""
    per_class: dict[str, float]
    """Recall of every class that occurs in the test part."""
    minority_accuracy: float | None
    """Mean recall over the minority classes; None where the test part holds none of them."""
    classes: tuple[str, ...]
    """Classes of either part, in the order of the confusion matrix."""
    confusion: npt.NDArray[np.int64]
    """Test samples by true class (rows) and predicted class (columns)."""
    right: npt.NDArray[np.bool_]
    """Whether the prediction of each test sample is right, (test samples,): what two encoders are compared by."""
    note: str | None
    """What the reader of the scores should know, in a sentence or two."""
    interval: Interval | None = None
    """95 % bootstrap interval of the balanced accuracy, over test samples or their groups; None of one group alone."""
    groups: int | None = None
    """Groups of the test samples, where some have the same: they are drawn as a whole."""
    auroc: float | None = None
    """Area under the ROC curve; of more than two classes the mean over classes, each against the rest."""
    train_counts: dict[str, int] = field(default_factory=dict)
    """Training samples of every class; the rows of `confusion` add up to the test samples."""
    predicted: npt.NDArray[np.str_] = field(default_factory=lambda: np.array([], dtype=str))
    """The class that each test sample is given, (test samples,)."""

    def __float__(self) -> float:
        return self.balanced_accuracy

    def to_json(self) -> dict[str, Any]:
        support = dict(zip(self.classes, self.confusion.sum(axis=1).tolist(), strict=True))
        return {
            "balanced_accuracy": self.balanced_accuracy,
            "interval": None if self.interval is None else list(self.interval),
            "groups": self.groups,
            "accuracy": self.accuracy,
            "auroc": self.auroc,
            "minority_accuracy": self.minority_accuracy,
            "per_class": self.per_class,
            "samples_per_class": {
                name: {"train": self.train_counts.get(name, 0), "test": support[name]} for name in self.classes
            },
            "classes": list(self.classes),
            "confusion": self.confusion.tolist(),
            "note": self.note,
        }


def linear_probe(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    *,
    minority: Sequence[Any] | None = None,
    test_groups: Sequence[str] | None = None,
) -> ProbeResult:
    """Logistic regression on standardised features, as the paper evaluates.

    scikit-learn's LogisticRegression with L-BFGS, at most 1000 iterations, the default L2 penalty (C=1);
    features are standardised with mean and variance of the training part.

    train_x, test_x: features (samples, d); train_y, test_y: one class per sample, told apart by name.
    minority: classes that count for `minority_accuracy`; by default those with fewer training samples than
      the average class.
    test_groups: the group of every test sample (a patient, a well), where there are groups: the interval draws them as
      a whole.

    >>> x, y = [[0.0], [0.1], [0.9], [1.0]], ["a", "a", "b", "b"]
    >>> float(linear_probe(x, y, [[0.2], [0.8]], ["a", "b"]))
    1.0
    """
    task = _prepare(train_x, train_y, test_x, test_y, test_groups)
    classifier, notes = fit_logistic(task.train_x, task.train_y)
    return task.score(classifier, minority, notes)


def classification_result(
    train_y: Labels,
    test_y: Labels,
    classes: Sequence[str],
    probabilities: FloatArray,
    *,
    minority: Sequence[Any] | None = None,
    test_groups: Sequence[str] | None = None,
) -> ProbeResult:
    """The scores of any classifier that gives probabilities (test samples, classes), as those of a probe.

    >>> float(classification_result(["a", "b"], ["a", "b"], ["a", "b"], np.array([[0.9, 0.1], [0.2, 0.8]])))
    1.0
    """
    names = [_names(y, len(np.asarray(y)), part) for y, part in ((train_y, "training"), (test_y, "test"))]
    known, train, test = _codes(*names)
    if len(test) != len(probabilities):
        raise InputError(f"there are {len(test)} test samples, but probabilities of {len(probabilities)}")
    columns = np.array([known.index(name) for name in classes])
    task = _Task(
        classes=known, train_x=np.empty((0, 0)), train_y=train, test_x=probabilities, test_y=test,
        groups=group_codes(test_groups),
    )  # fmt: skip
    return task.score(_Predictions(columns), minority, notes=[])


def fit_logistic(x: FloatArray, y: Codes) -> tuple[Any, list[str]]:
    """A logistic regression of classes on features, and a sentence where it has not converged."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_info, threadpool_limits

    classifier = LogisticRegression(solver="lbfgs", C=1.0, max_iter=MAX_ITERATIONS)
    limits = {pool["prefix"]: min(pool["num_threads"], MOST_THREADS) for pool in threadpool_info()}
    with threadpool_limits(limits), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        classifier.fit(x, y)
    notes = []
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            notes.append(f"the regression stopped after {classifier.n_iter_.max()} iterations, not yet converged")
        else:
            warnings.warn(warning.message, stacklevel=2)
    return classifier, notes


def knn_probe(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    k: int = 5,
    *,
    minority: Sequence[Any] | None = None,
    test_groups: Sequence[str] | None = None,
) -> ProbeResult:
    """Majority vote of the k nearest training samples, by Euclidean distance between standardised features.

    Features are standardised with mean and variance of the training part, as for `linear_probe`, so that both
    probes see the same input. Votes count equally; a tie goes to the class that comes first in sorted order.

    >>> x, y = [[0.0], [0.1], [0.9], [1.0]], ["a", "a", "b", "b"]
    >>> float(knn_probe(x, y, [[0.2], [0.8]], ["a", "b"], k=1))
    1.0
    """
    task = _prepare(train_x, train_y, test_x, test_y, test_groups)
    if not 1 <= k <= len(task.train_x):
        raise InputError(f"k must lie between 1 and the number of training samples, {len(task.train_x)}, got {k}")
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(n_neighbors=k).fit(task.train_x, task.train_y)
    return task.score(classifier, minority, notes=[])


class _Predictions:
    """Stands for a classifier of scikit-learn where the "features" are its probabilities already."""

    def __init__(self, classes: Codes) -> None:
        self.classes_ = classes

    def predict(self, x: FloatArray) -> Codes:
        codes: Codes = self.classes_[x.argmax(axis=1)]
        return codes

    def predict_proba(self, x: FloatArray) -> FloatArray:
        return x


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Checked and standardised features, with classes as positions in `classes`."""

    classes: tuple[str, ...]
    train_x: FloatArray
    train_y: Codes
    test_x: FloatArray
    test_y: Codes
    groups: Codes | None

    def score(self, classifier: Any, minority: Sequence[Any] | None, notes: list[str]) -> ProbeResult:
        from sklearn.metrics import confusion_matrix

        predicted = classifier.predict(self.test_x)
        confusion = confusion_matrix(self.test_y, predicted, labels=range(len(self.classes)))
        support = confusion.sum(axis=1)
        per_class = {name: float(confusion[i, i] / support[i]) for i, name in enumerate(self.classes) if support[i] > 0}
        of_minority = [per_class[name] for name in self._minority(minority) if name in per_class]
        right = predicted == self.test_y
        notes = notes + self._absences() + self._rare_classes() + self._lone_classes()
        return ProbeResult(
            balanced_accuracy=float(np.mean(list(per_class.values()))),
            accuracy=float(confusion.trace() / support.sum()),
            per_class=per_class,
            minority_accuracy=float(np.mean(of_minority)) if of_minority else None,
            classes=self.classes,
            confusion=confusion,
            right=right,
            note="; ".join(notes) or None,
            interval=recall_interval(confusion.diagonal(), support)
            if self.groups is None
            else grouped_recall_interval(right, self.test_y, self.groups),
            groups=None if self.groups is None else len(set(self.groups.tolist())),
            auroc=self._auroc(classifier),
            predicted=np.array(self.classes)[predicted],
            train_counts={name: int((self.train_y == i).sum()) for i, name in enumerate(self.classes)},
        )

    def _auroc(self, classifier: Any) -> float | None:
        """Mean over the classes that both parts have, each against the rest; of two classes both have the same."""
        from sklearn.metrics import roc_auc_score

        probabilities = classifier.predict_proba(self.test_x)
        areas = [
            roc_auc_score(self.test_y == code, probabilities[:, column])
            for column, code in enumerate(classifier.classes_)
            if 0 < (self.test_y == code).sum() < len(self.test_y)
        ]
        return float(np.mean(areas)) if areas else None

    def _minority(self, given: Sequence[Any] | None) -> list[str]:
        if given is None:
            counts = np.bincount(self.train_y, minlength=len(self.classes))
            return [name for name, count in zip(self.classes, counts, strict=True) if count < counts.mean()]
        names = [str(name) for name in given]
        for name in names:
            if name not in self.classes:
                raise unknown_name("minority class", name, self.classes)
        return names

    def _absences(self) -> list[str]:
        trained, tested = ({self.classes[i] for i in codes} for codes in (self.train_y, self.test_y))
        notes = []
        if unseen := sorted(tested - trained):
            notes.append(f"without training samples, so never right: {', '.join(unseen)}")
        if untested := sorted(trained - tested):
            notes.append(f"without test samples, so left out: {', '.join(untested)}")
        return notes

    def _rare_classes(self) -> list[str]:
        """Which classes have so few test samples that draws of them hardly tell how uncertain their recall is."""
        counts = np.bincount(self.test_y, minlength=len(self.classes))
        rare = [f"{name} ({n})" for name, n in zip(self.classes, counts, strict=True) if 0 < n < FEW_TESTED]
        why = f"with fewer than {FEW_TESTED} test samples, so that the interval is too narrow for them"
        return [f"{why}: {', '.join(rare)}"] if rare else []

    def _lone_classes(self) -> list[str]:
        """Which classes are in one group of several, so that other groups with them cannot be drawn in its place."""
        if self.groups is None or self.groups.max() == 0:
            return []
        of_class = {self.classes[i]: set(self.groups[self.test_y == i].tolist()) for i in np.unique(self.test_y)}
        lone = [name for name, groups in of_class.items() if len(groups) == 1]
        why = "in one group of the test part only, so that the interval is too narrow for them"
        return [f"{why}: {', '.join(lone)}"] if lone else []


def _prepare(
    train_x: Features, train_y: Labels, test_x: Features, test_y: Labels, test_groups: Sequence[str] | None
) -> _Task:
    train, test = standardized_parts(train_x, test_x)
    train_names, test_names = _names(train_y, len(train), "training"), _names(test_y, len(test), "test")
    if len(set(train_names)) < 2:
        raise InputError(f"a probe needs at least 2 classes, but all training samples are {train_names[0]!r}")
    classes, train_codes, test_codes = _codes(train_names, test_names)
    groups = group_codes(test_groups)
    return _Task(classes=classes, train_x=train, train_y=train_codes, test_x=test, test_y=test_codes, groups=groups)


def _codes(train_names: list[str], test_names: list[str]) -> tuple[tuple[str, ...], Codes, Codes]:
    """The classes of both parts in order, and the class of every sample as a position among them."""
    classes = sorted_classes({*train_names, *test_names})
    code = {name: i for i, name in enumerate(classes)}
    return classes, np.array([code[name] for name in train_names]), np.array([code[name] for name in test_names])


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """The order of classes in tables: numbers by value, then names by alphabet."""
    return tuple(sorted(set(names), key=_numbers_by_value))


def standardized_parts(train_x: Features, test_x: Features) -> tuple[FloatArray, FloatArray]:
    """Training and test features, both standardised with mean and variance of the training part."""
    train, test = _features(train_x, "training"), _features(test_x, "test")
    if train.shape[1] != test.shape[1]:
        raise InputError(f"training features have {train.shape[1]} dimensions, test features {test.shape[1]}")
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test)


def _features(x: Features, part: str) -> FloatArray:
    array = finite_array(x, f"{part} features")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{part} features must have shape (samples, d), at least 1 sample, got {array.shape}")
    return array


def _names(y: Labels, samples: int, part: str) -> list[str]:
    labels = np.asarray(y.detach().cpu().numpy() if isinstance(y, Tensor) else y)
    if labels.shape != (samples,):
        raise InputError(f"{part} labels must be one per sample, shape ({samples},), got {labels.shape}")
    for row, label in enumerate(labels):
        if label is None or label != label:  # NaN, what pandas reads from an empty cell, differs from itself
            raise InputError(f"the {part} label of row {row} is missing; leave samples without a label out")
    return [str(label) for label in labels]


def _numbers_by_value(name: str) -> tuple[bool, int, str, str]:
    """Sort key: numbers by value, however many digits they have, then names by alphabet."""
    digits = name.lstrip("0") if name.isascii() and name.isdecimal() else None
    return (True, 0, name, name) if digits is None else (False, len(digits), digits, name)
