"""How good a probe is with few labels, and how many of them pretraining saves."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from icone.data import grouped_share, stratified_share
from icone.data.targets import label_set
from icone.errors import InputError
from icone.evaluation.assessment import Partition, Result, run_probes
from icone.evaluation.metrics import METRICS, Array
from icone.evaluation.multilabel import MultilabelResult, mean_auroc, usable_labels

DRAWS = 10
"""Draws of labels for every share below one. Only one share has no chance in it: all labels."""
FEWEST = 10
"""Labels that a regression, or a classifier of several labels, is given at least."""
SHOWN_PROBES = ("linear_probe", "knn_5", "ridge_probe", "knn_regressor", "multilabel_probe")
"""One linear probe and one of neighbours for every task; the first that is there counts the labels that are saved."""


def draw_labels(partition: Partition, fraction: float, seed: int) -> npt.NDArray[np.int64]:
    """The rows of the training part whose labels count, about this share of them.

    Classes are in proportion, with at least one sample of each. Where there are groups, whole groups are drawn.
    """
    rows = partition.train
    if fraction == 1:
        return rows
    wanted = max(1, round(fraction * len(rows)))
    if partition.task != "classification":
        wanted = min(len(rows), max(FEWEST, wanted))
    codes, groups = partition.codes(rows), partition.groups_of(rows)
    if groups is None:
        return rows[stratified_share(codes, wanted, seed)]
    return rows[grouped_share(codes, groups, wanted, seed)]


def label_efficiency(
    features: Mapping[str, Array], partition: Partition, fractions: Sequence[float], draws: int = DRAWS
) -> dict[str, Any]:
    """The scores of probes that get a share of the labels, for every encoder, and what pretraining saves.

    `features` are those of every encoder, (N, d) each. All labels are always among the shares: that is the usual probe.
    Encoders get the same labels in every draw, and the test part is always the whole one. Of several labels per sample
    all draws are scored on those that all samples can teach, AUROC 0.5 where a draw cannot. The result holds for every
    probe and share the mean score, its 95 % interval over draws (Student's t; of one draw: none) and all scores.
    """
    shares = sorted({*fractions, 1.0})
    points: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in features}
    taught = taught_labels(partition)
    for share in shares:
        chosen = [draw_labels(partition, share, seed) for seed in range(draws if share < 1 else 1)]
        for encoder, of_encoder in features.items():
            found = [_scores(of_encoder, dataclasses.replace(partition, train=rows), taught) for rows in chosen]
            for probe in SHOWN_PROBES:
                scored = [(len(rows), one[probe]) for rows, one in zip(chosen, found, strict=True) if probe in one]
                if scored:
                    points[encoder].setdefault(probe, []).append(point_of(share, scored))
    return {"labels": len(partition.train), "draws": draws, "points": points, "saved": _saved(points, partition)}


def taught_labels(partition: Partition) -> list[str]:
    """Of several labels per sample those that this part of the samples can teach and test; none of other tasks."""
    if partition.task != "multilabel":
        return []
    return usable_labels(
        *([label_set(text) for text in partition.labels[part]] for part in (partition.train, partition.test))
    )


def score_of(result: Result | None, taught: Sequence[str]) -> float:
    """The score of a draw of labels, over all that are `taught` where a sample has several.

    None is what nothing could be learned of.
    """
    if result is None or isinstance(result, MultilabelResult):
        return mean_auroc(result, taught)
    return float(result)


def _scores(features: Array, partition: Partition, taught: Sequence[str]) -> dict[str, float]:
    """Scores by probe; of classes and numbers none where those of a draw are too much alike to train on."""
    try:
        return {name: score_of(result, taught) for name, result in run_probes(features, partition).items()}
    except InputError:
        return {"multilabel_probe": score_of(None, taught)} if taught else {}


def point_of(share: float, scored: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Mean and 95 % interval (Student's t) over draws of (labels, score), from three on, with all scores."""
    counts, scores = zip(*scored, strict=True)
    mean, half = float(np.mean(scores)), None
    if len(scores) > 2:
        from scipy.stats import t

        half = float(t.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1) / math.sqrt(len(scores)))
    return {
        "fraction": share,
        "labels": round(float(np.mean(counts))),
        "mean": mean,
        "interval": None if half is None else [mean - half, mean + half],
        "scores": list(scores),
    }


def _saved(points: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], partition: Partition) -> dict[str, Any]:
    """At which share of the labels the trained encoder is as good as the untrained one with all of them."""
    trained, untrained = (points.get(name, {}) for name in ("trained", "untrained"))
    probe = next((name for name in SHOWN_PROBES if name in trained and name in untrained), None)
    if probe is None:
        return {}
    target, all_labels = untrained[probe][-1]["mean"], len(partition.train)
    curve = trained[probe]
    share, at_most = equal_share([(point["fraction"], point["mean"]) for point in curve], target)
    title, score = METRICS[probe].short, METRICS[probe].text(target)
    unit = " %" if METRICS[probe].percent else ""
    goal = f"the {title} of the untrained encoder with all {all_labels} labels ({score}{unit})"
    how = "at most " if at_most else "about "
    count = curve[0]["labels"] if at_most else max(1, round((share or 1) * all_labels))
    if target <= _guessing(partition):
        text = f"How many labels training saves cannot be told: {goal} is no better than guessing."
    elif share is None:
        text = f"No saving of labels shows: with all of them the trained encoder does not reach {goal}."
    elif count >= all_labels:
        text = f"No saving of labels shows: the trained encoder needs all of them to reach {goal}."
    else:
        text = f"The trained encoder reaches {goal} with {how}{count} of the labels ({count / all_labels:.0%})."
    return {"probe": probe, "fraction": share, "at_most": at_most, "target": target, "text": text}


def _guessing(partition: Partition) -> float:
    """The score of the first probe without any reading: R² of the mean, balanced accuracy of one class, mean AUROC."""
    classes = len(set(partition.labels[partition.test].tolist()))
    return {"regression": 0.0, "multilabel": 0.5, "classification": 1 / classes}[partition.task]


def equal_share(curve: Sequence[tuple[float, float]], target: float) -> tuple[float | None, bool]:
    """The first share at which a curve of (share, score) reaches a score, and whether it does so from the start.

    Between two points the score is taken to be linear in the logarithm of the share.

    >>> share, _ = equal_share([(0.01, 0.2), (0.1, 0.4), (1.0, 0.8)], 0.3)
    >>> round(share, 4)
    0.0316
    >>> equal_share([(0.5, 0.2), (1.0, 0.4)], 0.1), equal_share([(0.5, 0.2), (1.0, 0.4)], 0.5)
    ((0.5, True), (None, False))
    """
    if curve[0][1] >= target:
        return curve[0][0], True
    for (low, worse), (high, better) in itertools.pairwise(curve):
        if better >= target:
            part = (target - worse) / (better - worse)
            return math.exp(math.log(low) + part * (math.log(high) - math.log(low))), False
    return None, False
