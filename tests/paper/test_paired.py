"""Settings compared seed by seed and sample by sample: differences, intervals, and what cannot be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score

import icone
from icone.errors import InputError
from icone.paper.measure import _tested
from icone.paper.paired import paired_difference
from icone.paper.results_page import fill

SAMPLES = 400


def runs_of(accuracy: float, seeds: int = 3, *, samples: int = SAMPLES, seed: int = 0) -> pd.DataFrame:
    """Runs whose probe is right with this probability, on samples of two classes, one three times as frequent."""
    rng = np.random.default_rng(seed)
    labels = " ".join(map(str, (np.arange(samples) % 4 == 0).astype(int)))
    right = ["".join(map(str, (rng.random(samples) < accuracy).astype(int))) for _ in range(seeds)]
    return pd.DataFrame({"seed": range(seeds), "test_labels": labels, "right_linear_probe": right})


def balanced(runs: pd.DataFrame) -> float:
    scores = []
    for labels, marks in zip(runs["test_labels"], runs["right_linear_probe"], strict=True):
        truth = np.array(labels.split(), dtype=int)
        scores.append(balanced_accuracy_score(truth, np.where(np.array(list(marks)) == "1", truth, 2)))
    return float(np.mean(scores))


@pytest.mark.filterwarnings("ignore:y_pred contains classes")
def test_the_difference_is_that_of_balanced_accuracies() -> None:
    first, second = runs_of(0.8), runs_of(0.7, seed=1)
    found = paired_difference(first, second, "linear_probe")
    assert found.value == pytest.approx(balanced(first) - balanced(second))
    assert found.low < found.value < found.high
    assert (found.seeds, found.samples) == (3, SAMPLES)
    assert found.sure


def test_an_interval_holds_the_truth_in_most_draws() -> None:
    """Samples that are right by chance, with the same chance in both: 0 is in a 95 % interval nearly always."""
    found = [
        paired_difference(runs_of(0.7, 5, seed=2 * i), runs_of(0.7, 5, seed=2 * i + 1), "linear_probe")
        for i in range(40)
    ]
    assert sum(one.low <= 0 <= one.high for one in found) >= 34


def test_more_test_samples_make_it_narrower() -> None:
    widths = []
    for samples in (100, 1600):
        one = paired_difference(runs_of(0.8, samples=samples), runs_of(0.7, samples=samples, seed=1), "linear_probe")
        widths.append(one.high - one.low)
    assert widths[1] < 0.5 * widths[0]


def test_seeds_that_are_needed() -> None:
    same = runs_of(0.8)
    assert paired_difference(same, same, "linear_probe").needed is None
    assert paired_difference(same.iloc[:1], runs_of(0.5).iloc[:1], "linear_probe").needed is None
    assert paired_difference(runs_of(0.9), runs_of(0.5, seed=1), "linear_probe").needed == 1


@pytest.mark.parametrize(
    ("others", "match"),
    [
        (runs_of(0.5).assign(seed=[7, 8, 9]), "no seed in common"),
        (runs_of(0.5).assign(test_labels="0 1"), "different samples"),
        (runs_of(0.5).assign(seed=0), "several runs of one seed"),
        (runs_of(0.5).assign(test_labels=None), "older than that column"),
    ],
)
def test_what_cannot_be_paired_is_refused(others: pd.DataFrame, match: str) -> None:
    with pytest.raises(InputError, match=match):
        paired_difference(runs_of(0.8), others, "linear_probe")


def test_a_page_compares_settings(tmp_path: Path) -> None:
    ours, theirs = runs_of(0.9).assign(method="IConE"), runs_of(0.6, seed=1).assign(method="SimCLR")
    table = pd.concat([ours, theirs]).assign(batch_size=1, status="done")
    table.to_csv(tmp_path / "runs.csv", index=False)
    page = fill("<!-- compare runs.csv rows=method,batch_size to=IConE,1 metrics=linear_probe -->", tmp_path)
    expected = paired_difference(ours, theirs, "linear_probe")
    assert page.splitlines()[-1].startswith(f"| SimCLR | 1 | **{100 * expected.value:+.1f} (")


def test_memory_that_did_not_suffice_is_told(tmp_path: Path) -> None:
    rows = {"method": ["a", "b"], "seed": 0, "status": "done", "gb": [2.5, None], "out_of_memory": [None, 1.0]}
    pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
    assert "| b | out of memory |" in fill("<!-- table runs.csv rows=method metrics=gb -->", tmp_path)


def test_samples_of_a_group_are_drawn_together() -> None:
    """Ten copies of every sample say no more than one; without their groups the interval is far too narrow."""
    copies, samples = 10, 60
    few = [runs_of(accuracy, samples=samples, seed=seed) for accuracy, seed in ((0.8, 0), (0.7, 1))]
    many = []
    for runs in few:
        labels = " ".join(code for code in runs["test_labels"][0].split() for _ in range(copies))
        right = ["".join(mark * copies for mark in marks) for marks in runs["right_linear_probe"]]
        many.append(runs.assign(test_labels=labels, right_linear_probe=right))
    groups = " ".join(str(i) for i in range(samples) for _ in range(copies))
    grouped = [runs.assign(test_groups=groups) for runs in many]
    without = [runs.assign(test_groups=None) for runs in many]
    pairs = (few, many, grouped, without)
    alone, apart, together, none = (paired_difference(one, other, "linear_probe") for one, other in pairs)
    assert alone.value == pytest.approx(apart.value) == pytest.approx(together.value)
    assert apart.high - apart.low < 0.8 * (alone.high - alone.low) < together.high - together.low
    assert none == apart
    with pytest.raises(InputError, match="different samples"):
        paired_difference(grouped[0], many[1], "linear_probe")


def test_a_run_keeps_the_groups_of_its_test_samples(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"epochs": 1, "probe_every": 0, "features": 8, "device": "cpu"}
    run = icone.pretrain("synthetic:gaussians@x60", out=tmp_path / "run", **quick)
    groups = {f"{row:06d}": f"patient {row // 2}" for row in range(60)}
    plain, grouped = (icone.evaluate(run, groups=given, device="cpu", untrained=False) for given in (None, groups))
    assert "test_groups" not in _tested(plain)
    codes = _tested(grouped)["test_groups"].split()
    assert len(codes) == len(_tested(grouped)["test_labels"].split()) == 2 * len(set(codes))
