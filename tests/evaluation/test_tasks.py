"""Probes of numbers and of several labels, AUROC, intervals and paired comparisons, against loops and scikit-learn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import average_precision_score, balanced_accuracy_score, r2_score, roc_auc_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icone.errors import InputError
from icone.evaluation.assessment import Partition, run_probes
from icone.evaluation.bootstrap import group_codes, grouped_recall_interval, recall_interval
from icone.evaluation.comparison import compare, compare_multilabel, compare_probes, compare_regressions
from icone.evaluation.multilabel import MultilabelResult, multilabel_probe
from icone.evaluation.probes import linear_probe
from icone.evaluation.regression import (
    KEPT_POINTS,
    PENALTIES,
    RegressionResult,
    knn_regressor,
    regression_result,
    ridge_probe,
)
from icone.evaluation.verdict import judge

Floats = npt.NDArray[np.float64]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 6))
Y = X @ RNG.normal(size=6) + 0.5 * RNG.normal(size=160)
PARTS = X[:100], Y[:100], X[100:], Y[100:]


def test_ridge_and_neighbours_are_those_of_scikit_learn() -> None:
    for ours, model in (
        (ridge_probe(*PARTS), RidgeCV(alphas=PENALTIES)),
        (knn_regressor(*PARTS, k=5), KNeighborsRegressor(5)),
    ):
        predicted = make_pipeline(StandardScaler(), model).fit(*PARTS[:2]).predict(PARTS[2])
        np.testing.assert_allclose(ours.predicted, predicted)
        assert ours.r2 == pytest.approx(r2_score(PARTS[3], predicted))
        assert ours.spearman == pytest.approx(spearmanr(PARTS[3], predicted).statistic)
        assert ours.interval is not None
        assert ours.interval[0] < ours.r2 < ours.interval[1]


def test_the_penalty_is_chosen_without_parting_groups() -> None:
    """Features that name the group and nothing else: leaving out a sample praises them, leaving out a group not."""
    groups = np.repeat(np.arange(20), 5)
    of_group = RNG.normal(size=20)[groups]
    x = np.eye(20)[groups] + 0.01 * RNG.normal(size=(100, 20))
    alone, grouped = (
        ridge_probe(x, of_group, x, of_group, groups=names) for names in (None, [str(group) for group in groups])
    )
    assert np.std(grouped.predicted) < 0.2 * np.std(alone.predicted)


def test_labels_that_are_no_numbers_or_all_the_same() -> None:
    with pytest.raises(InputError, match="must be numbers"):
        ridge_probe(X[:2], ["a", "b"], X[:2], [1, 2])
    with pytest.raises(InputError, match="all test labels are 1"):
        ridge_probe(X[:2], [1, 2], X[:2], [1, 1])


def test_the_kept_points_are_spread_over_all_test_samples() -> None:
    true = np.arange(3 * KEPT_POINTS, dtype=np.float64)
    kept = regression_result(true + 0.25, true, 10).to_json()
    assert len(kept["true"]) == len(set(kept["true"])) == KEPT_POINTS
    assert np.quantile(kept["true"], [0.25, 0.5, 0.75]) / len(true) == pytest.approx([0.25, 0.5, 0.75], abs=0.03)
    assert np.subtract(kept["predicted"], kept["true"]) == pytest.approx(0.25, abs=0.01)  # of the same samples
    assert regression_result(true[::-1] + 0.25, true, 10).to_json()["true"] == kept["true"]  # for every encoder
    assert regression_result(true[:5] + 0.25, true[:5], 10).to_json()["true"] == [0, 1, 2, 3, 4]


def test_multilabel_is_one_regression_per_label() -> None:
    truth = np.stack([X[:, 0] + RNG.normal(size=160) > 0, X[:, 1] > 1, np.ones(160, bool)], axis=1)
    names = ["big", "rare", "all"]
    sets = [{name for name, has in zip(names, row, strict=True) if has} for row in truth]
    ours = multilabel_probe(X[:100], sets[:100], X[100:], sets[100:])
    assert list(ours.per_label) == ["big", "rare"]
    assert "all or none" in str(ours.note)
    for column, name in enumerate(("big", "rare")):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X[:100], truth[:100, column])
        scores = model.decision_function(X[100:])
        assert ours.per_label[name].auroc == pytest.approx(roc_auc_score(truth[100:, column], scores))
        expected = average_precision_score(truth[100:, column], scores)
        assert ours.per_label[name].average_precision == pytest.approx(expected)
        assert ours.per_label[name].positives == truth[100:, column].sum()


@pytest.mark.parametrize("classes", [2, 3])
def test_auroc_counts_and_interval_of_classes(classes: int) -> None:
    names = np.digitize(Y, np.quantile(Y, np.arange(1, classes) / classes)).astype(str)
    ours = linear_probe(X[:100], names[:100], X[100:], names[100:])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X[:100], names[:100])
    shares = model.predict_proba(X[100:])
    expected = roc_auc_score(names[100:], shares[:, 1] if classes == 2 else shares, multi_class="ovr")
    assert ours.auroc == pytest.approx(expected)
    counts = ours.to_json()["samples_per_class"]
    assert {name: c["test"] for name, c in counts.items()} == {n: (names[100:] == n).sum() for n in sorted(set(names))}
    assert sum(c["train"] for c in counts.values()) == 100
    predicted = model.predict(X[100:])
    draws = [RNG.integers(60, size=60) for _ in range(1000)]
    scores = [balanced_accuracy_score(names[100:][rows], predicted[rows]) for rows in draws]
    assert ours.interval == pytest.approx(np.quantile(scores, [0.025, 0.975]), abs=0.03)


def test_intervals_are_seeded_and_exact_where_nothing_varies() -> None:
    right, support = np.array([5, 3]), np.array([8, 9])
    assert recall_interval(right, support) == recall_interval(right, support)
    assert recall_interval(support, support) == (1.0, 1.0)


def test_a_rare_class_that_is_always_wrong_lifts_no_interval() -> None:
    """Draws from all samples missed the one sample of the first class, and the mean over the others was 1."""
    assert recall_interval(np.array([0, 11]), np.array([1, 11])) == (0.5, 0.5)
    low, high = recall_interval(np.array([0, 8]), np.array([1, 11]))
    assert 0.2 < low < 8 / 22 < high <= 0.5


@pytest.mark.slow
def test_the_error_of_a_regression_covers_its_difference() -> None:
    """Two encoders that are equally good: the difference lies within two errors in most of 200 test sets."""
    inside = []
    for _ in range(200):
        y, noise = RNG.normal(size=40), RNG.normal(size=(2, 40))
        one, other = (ridge_like(y, y + e) for e in noise)
        found = compare_regressions(one, other)
        inside.append(abs(one.r2 - other.r2) <= 2 * found.error)
    assert np.mean(inside) > 0.9


GEOMETRY = {"rankme": 80.0, "rank_limit": 384, "mean_cosine": 0.2, "first_component": 0.1}


def ridge_like(true: Floats, predicted: Floats) -> RegressionResult:
    return regression_result(predicted, true, 10)


def test_an_r2_below_zero_is_no_better_than_none() -> None:
    y = RNG.normal(size=60)
    bad, worse = (ridge_like(y, factor * RNG.normal(size=60)) for factor in (1.0, 3.0))
    found = compare_regressions(worse, bad)
    assert not found.better
    assert (found.before, found.after, found.value) == (worse.r2, bad.r2, 0.0)  # the real numbers, as in the table
    verdict = judge(GEOMETRY, GEOMETRY, {"ridge_probe": found})
    assert f"{bad.r2:.3f} after: neither is better than the mean" in verdict.evidence[0]


def test_the_error_of_multilabel_is_delongs() -> None:
    """The jackknife in a loop, which DeLong's error is the limit of, for encoders that are about as good."""
    rng = np.random.default_rng(0)
    present = rng.random((160, 2)) < 0.4
    before, after = (scored(present, present + s * rng.normal(size=(160, 2))) for s in (1.05, 1.0))
    found = compare_multilabel(before, after)
    assert found.value == pytest.approx(after.auroc - before.auroc)
    left_out = []
    for row in range(160):
        kept = np.arange(160) != row
        parts = [scored(present[kept], result.scores[kept]).auroc for result in (before, after)]
        left_out.append(parts[1] - parts[0])
    jackknife = np.sqrt(159 / 160 * np.square(np.array(left_out) - np.mean(left_out)).sum())
    assert found.error == pytest.approx(jackknife, rel=0.05)


@pytest.mark.parametrize(("count", "is_sure"), [(1, False), (4, False), (8, True)])
def test_a_label_of_a_few_test_samples_makes_no_difference_sure(count: int, is_sure: bool) -> None:
    """Where one sample has a label, its AUROC may go from 0 to 1 by chance; DeLong's error has no term for it."""
    present = (np.arange(80) < count)[:, None]
    noise = 1e-3 * np.random.default_rng(0).normal(size=(2, 80, 1))
    last, first = scored(present, noise[0] - present), scored(present, noise[1] + present)
    found = compare_multilabel(last, first)
    assert found.value == 1
    assert found.better == is_sure


def scored(present: npt.NDArray[np.bool_], scores: Floats) -> MultilabelResult:
    area = np.mean([roc_auc_score(p, s) for p, s in zip(present.T, scores.T, strict=True)])
    return MultilabelResult(
        auroc=float(area), average_precision=0.5, per_label={}, scores=scores, present=present, train_samples=1
    )


def test_probes_by_task() -> None:
    rows = np.arange(100), np.arange(100, 160)
    numbers = Partition(*rows, Y.astype(str), task="regression")
    found = run_probes(X.astype(np.float32), numbers)
    assert found.keys() == {"ridge_probe", "knn_regressor"}
    sets = np.where(Y > 1, "big|any", np.where(Y > 0, "any", "|"))
    several = run_probes(X.astype(np.float32), Partition(*rows, sets, task="multilabel"))
    assert float(several["multilabel_probe"]) > 0.8
    compared = compare_probes(found | several, found | several, [], list(found | several))
    assert all(difference.value == 0 for difference in compared.values())


def cluster_scores(right: Any, labels: Any, groups: Any) -> Any:
    """The cluster bootstrap in a loop: groups with replacement, the mean recall of all classes that are there."""
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    scores = []
    for _ in range(2000):
        rows = np.concatenate([members[i] for i in RNG.integers(len(members), size=len(members))])
        scores.append(np.mean([right[rows][labels[rows] == c].mean() for c in np.unique(labels[rows])]))
    return np.quantile(scores, [0.025, 0.975])


def test_groups_widen_the_interval_as_a_bootstrap_of_groups_does() -> None:
    """40 patients with 10 samples of both classes each, all of a patient right or wrong together."""
    groups, labels = np.repeat(np.arange(40), 10), np.tile([0, 1], 200)
    right = (np.random.default_rng(3).random(40) < 0.7)[groups]
    found = grouped_recall_interval(right, labels, groups)
    assert found == pytest.approx(cluster_scores(right, labels, groups), abs=0.02)
    by_sample = recall_interval(*(np.bincount(labels, weights).astype(int) for weights in (right, np.ones(400))))
    assert found is not None
    assert found[1] - found[0] > 2.5 * (by_sample[1] - by_sample[0])


def test_groups_of_one_sample_are_samples() -> None:
    """Then the draws are those of the stratified bootstrap, by other random numbers; and the probe draws samples."""
    labels = np.repeat([0, 1], [60, 20])
    right = np.random.default_rng(1).random(80) < 0.6
    alone = grouped_recall_interval(right, labels, np.arange(80))
    support = np.bincount(labels)
    assert alone == pytest.approx(recall_interval(np.bincount(labels, right).astype(int), support), abs=0.03)
    patients = [str(i) for i in range(60)]
    names = np.where(Y > 0, "big", "small")
    found, given = (linear_probe(X[:100], names[:100], X[100:], names[100:], test_groups=g) for g in (None, patients))
    assert (found.interval, found.groups) == (given.interval, given.groups)


def test_a_class_of_one_group_stays_in_every_draw_and_is_named() -> None:
    x = RNG.normal(size=(60, 3))
    y = ["rare" if i < 4 else "a" if i % 2 else "b" for i in range(60)]
    patients = ["p" if i < 4 else f"p{i // 4}" for i in range(60)]
    result = linear_probe(x, y, x, y, test_groups=patients)
    assert result.groups == 15
    assert result.note is not None
    few, alone = result.note.split("; ")
    assert few == "with fewer than 5 test samples, so that the interval is too narrow for them: rare (4)"
    assert alone == "in one group of the test part only, so that the interval is too narrow for them: rare"
    wrong = np.array([name != "rare" for name in y])
    codes = np.unique(y, return_inverse=True)[1]
    found = group_codes(patients)
    assert found is not None
    assert grouped_recall_interval(wrong, codes, found) == pytest.approx((2 / 3, 2 / 3))  # never the mean of two


def test_of_one_group_there_is_no_interval() -> None:
    x, y = RNG.normal(size=(20, 3)), ["a", "b"] * 10
    assert linear_probe(x, y, x, y, test_groups=["p"] * 20).interval is None
    ridge = ridge_probe(x, x[:, 0], x, x[:, 0], test_groups=["p"] * 20)
    assert (ridge.interval, ridge.groups) == (None, 1)


@pytest.mark.parametrize("probe", [ridge_probe, knn_regressor])
def test_the_interval_of_a_regression_draws_groups(probe: Any) -> None:
    """A patient's error is shared by all its samples, so that 20 patients are what was seen."""
    rng = np.random.default_rng(5)
    patients = np.repeat(np.arange(20), 15)
    x = rng.normal(size=(300, 2))
    y = x[:, 0] + rng.normal(size=20)[patients]
    names = [str(patient) for patient in patients]
    alone, grouped = (probe(x, y, x + 0.1, y, test_groups=given) for given in (None, names))
    assert (alone.r2, alone.groups, grouped.groups) == (grouped.r2, None, 20)
    widths = [float(np.ptp(result.interval)) for result in (alone, grouped)]
    assert widths[1] > 1.3 * widths[0]


def test_the_verdict_counts_groups_and_not_samples() -> None:
    """30 samples that changed are sure; where they are three patients, they may be chance."""
    labels = ["a", "b"] * 60
    rights = [np.ones(120, bool), np.ones(120, bool)]
    rights[0][:30] = False
    old, new = (SimpleNamespace(right=right, balanced_accuracy=right.mean()) for right in rights)
    patients = group_codes([f"p{i // 10}" for i in range(120)])
    alone, grouped = (compare(old, new, labels, groups) for groups in (None, patients))  # type: ignore[arg-type]
    assert (alone.better, grouped.better) == (True, False)
    assert (alone.groups, grouped.groups, grouped.to_json()["groups"]) == (None, 12, 12)
    assert grouped.error == pytest.approx(np.sqrt(3 * (10 / 120) ** 2 + 2 * (10 / 120) ** 2))
    assert "with 120 test samples of 12 groups, what" in judge(GEOMETRY, GEOMETRY, {"knn_5": grouped}).headline


@pytest.mark.slow
@pytest.mark.parametrize(("patients", "each"), [(10, 10), (20, 10), (57, 5)])
def test_intervals_over_groups_cover_the_truth(patients: int, each: int) -> None:
    """Patients of one class each, whose samples are right with a probability of their own, 0.7 on average."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(patients), each)
    covered: list[list[bool]] = []
    widths: list[list[float]] = []
    while len(covered) < 400:
        labels = rng.integers(0, 2, patients)[groups]
        right = rng.random(len(groups)) < rng.beta(1.4, 0.6, patients)[groups]
        if len(set(labels.tolist())) == 2:
            alone = recall_interval(np.bincount(labels, right).astype(int), np.bincount(labels))
            drawn = grouped_recall_interval(right, labels, groups)
            assert drawn is not None
            covered.append([low <= 0.7 <= high for low, high in (alone, drawn)])
            widths.append([high - low for low, high in (alone, drawn)])
    shares, means = 100 * np.mean(covered, axis=0), 100 * np.mean(widths, axis=0)
    print(f"\n{patients} groups of {each}: covered {shares.round(1)} %, widths {means.round(1)} points")
    assert shares[1] > 80
    assert shares[0] + 10 < shares[1]
