"""How often two encoders of the same worth are told apart: draws of signs, and draws of samples within their class.

Both probes are right with probability 0.6 about every test sample. In the share `--shared` of the samples they are
right or wrong together, as two encoders of the same data are. An interval of 95 % should leave 0 out in 5 % of the
trials.

    python benchmarks/paired_intervals.py
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt
import pandas as pd

from icone.evaluation.paired_bootstrap import Predictions, score_difference
from icone.paper.paired import paired_difference

PARTS = {
    "blood cells": (41, 17, 7, 4, 1),
    "one rare class": (60, 20, 6),
    "two rare classes": (60, 20, 3, 3),
    "two classes": (300, 100),
    "one class": (30,),
}
"""Test samples by class."""
RIGHT = 0.6
Marks = npt.NDArray[np.bool_]


def is_told_apart_by_signs(one: Marks, other: Marks, labels: npt.NDArray[np.str_]) -> bool:
    """Whether the interval of `icone.compare` leaves 0 out."""
    ids, groups = [str(i) for i in range(len(labels))], np.full(len(labels), "")
    sides = (
        Predictions(
            task="classification", ids=ids, labels=labels, groups=groups, predicted=np.where(marks, labels, "wrong")
        )
        for marks in (one, other)
    )
    first, second = sides
    return score_difference([first], [second]).is_sure


def is_told_apart_by_samples(one: Marks, other: Marks, labels: npt.NDArray[np.str_]) -> bool:
    """Whether the interval of draws within classes does."""
    codes = " ".join(map(str, np.unique(labels, return_inverse=True)[1]))
    texts = ("".join("01"[int(mark)] for mark in marks) for marks in (one, other))
    first, second = (pd.DataFrame({"seed": [0], "test_labels": codes, "right_linear_probe": [t]}) for t in texts)
    return paired_difference(first, second, "linear_probe").sure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--shared", type=float, nargs="+", default=[0.0, 0.7])
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| test samples by class | shared | draws of samples | draws of signs |\n| --- | --- | --- | --- |")
    for name, sizes in PARTS.items():
        labels = np.repeat([f"class {i}" for i in range(len(sizes))], sizes)
        for shared in given.shared:
            counts = np.zeros(2)
            for _ in range(given.trials):
                both = rng.random(len(labels)) < RIGHT
                one, other = (
                    np.where(rng.random(len(labels)) < shared, both, rng.random(len(labels)) < RIGHT) for _ in range(2)
                )
                counts += is_told_apart_by_samples(one, other, labels), is_told_apart_by_signs(one, other, labels)
            shares = " | ".join(f"{100 * share:.0f}" for share in counts / given.trials)
            print(f"| {name}: {', '.join(map(str, sizes))} | {shared:g} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
