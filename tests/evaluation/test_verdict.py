"""The verdict on features whose state is known by construction, and on runs whose probes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from icone.evaluation.assessment import geometry_metrics, with_untrained
from icone.evaluation.comparison import Difference
from icone.evaluation.metrics import Embedding
from icone.evaluation.verdict import HEADLINES, NOT_MEASURED, TAUGHT, State, Verdict, judge, judge_live, lasting

Array = npt.NDArray[np.float32]
Pair = tuple[float, float]
RNG = np.random.default_rng(0)


def spread(n: int, d: int, directions: int, noise: float = 0.0) -> Array:
    """Features that vary along this many random directions of d, and by noise along all."""
    x = RNG.normal(size=(n, directions)) @ RNG.normal(size=(directions, d)) + noise * RNG.normal(size=(n, d))
    return x.astype(np.float32)


SPREAD = {
    "isotropic": RNG.normal(size=(300, 64)).astype(np.float32),
    "fewer samples than dimensions": RNG.normal(size=(20, 512)).astype(np.float32),
    "decaying spectrum": (RNG.normal(size=(400, 128)) / np.arange(1, 129)).astype(np.float32) @ np.eye(128, dtype="f4"),
    "a narrow cone, spread inside": (100 + RNG.normal(size=(300, 64))).astype(np.float32),
    "points on a circle": np.stack([np.cos(t := np.arange(50.0)), np.sin(t)], axis=1).astype(np.float32),
    "one feature only": RNG.normal(size=(50, 1)).astype(np.float32),
    "16 directions of 400": spread(500, 400, 16),
}
COLLAPSED = {
    "constant": np.full((100, 32), 0.3, dtype=np.float32),
    "zero": np.zeros((100, 32), dtype=np.float32),
    "constant up to rounding": (1 + 1e-6 * RNG.normal(size=(100, 32))).astype(np.float32),
    "one direction": spread(300, 128, 1, noise=0.05),
    "two points": np.where(RNG.random((200, 1)) < 0.5, 1.0, -1.0).astype(np.float32)
    * np.ones((1, 64), dtype=np.float32),
    "a line in a cone": 50 + spread(200, 64, 1, noise=0.05),
    "four directions of 400": spread(500, 400, 4, noise=0.01),
}


@pytest.mark.parametrize("name", SPREAD)
def test_features_that_spread_are_not_called_collapsed_and_not_praised(name: str) -> None:
    verdict = judge(geometry_metrics(Embedding(SPREAD[name])))
    assert verdict.state == "unclear"
    assert NOT_MEASURED in verdict.headline
    assert "--no-untrained" in verdict.advice


@pytest.mark.parametrize("name", COLLAPSED)
def test_collapsed_features_are_called_collapsed(name: str) -> None:
    figures = geometry_metrics(Embedding(COLLAPSED[name]))
    for verdict in (judge(figures), judge(figures, obstacle=TAUGHT)):
        assert verdict.collapsed
        assert "lr=" in str(verdict)


def test_few_directions_are_remarked() -> None:
    assert "few of their dimensions" in judge(geometry_metrics(Embedding(SPREAD["16 directions of 400"]))).advice


def test_the_metrics_are_in_the_words() -> None:
    figures = {"rankme": 41.26, "rank_limit": 149.0, "mean_cosine": 0.987, "first_component": 0.92}
    text = str(judge(figures, figures | {"rankme": 30.0}))
    parts = ("41.3 of at most 149 (28 %), 30.0 before", "cosine of 0.987", "92 %", "same direction", "One direction")
    for part in parts:
        assert part in text
    plain = judge(figures | {"mean_cosine": 0.1, "first_component": 0.2}, figures)
    assert "direction" not in plain.advice


# Metrics of runs whose probes are known, as they were measured, and made-up ones where the name begins with "if":
# RankMe, limit, variance rank, 1 − cosine, recognition and its error; before training RankMe and recognition.
MEASURED: dict[str, tuple[Any, ...]] = {
    "points, IConE": ("no better than untrained", 11.9, 64, 4.8, 1.0, (0.994, 0.001), 12.0, (0.994, 0.001)),
    "points, SimCLR": ("no better than untrained", 13.5, 64, 5.9, 0.34, (0.994, 0.001), 12.0, (0.994, 0.001)),
    "points, views alone": ("collapsed", 7.3, 64, 1.5, 5.8e-4, (0.966, 0.003), 12.0, (0.994, 0.001)),
    "points, views alone, fast": ("collapsed", 2.3, 64, 1.1, 2.0e-5, (0.901, 0.005), 12.0, (0.994, 0.001)),
    "points, shrunk to rounding": ("collapsed", 10.9, 64, 4.5, 9.8e-12, (0.991, 0.001), 12.0, (0.994, 0.001)),
    "shapes, SimCLR": ("learned", 45.5, 99, 8.9, 0.23, (0.862, 0.008), 51.0, (0.698, 0.010)),
    "shapes, views alone, fast": ("collapsed", 20.9, 99, 1.6, 1.7e-5, (0.635, 0.012), 51.0, (0.698, 0.010)),
    "cells, SimCLR": ("learned", 54.2, 99, 14.4, 0.51, (0.609, 0.011), 45.4, (0.553, 0.011)),
    "cells, IConE, no gain": ("unclear", 66.9, 99, 22.2, 7.7e-4, (0.553, 0.011), 45.4, (0.553, 0.011)),
    "cells, views alone, fast": ("unclear", 40.7, 99, 5.3, 2.1e-5, (0.530, 0.011), 45.4, (0.553, 0.011)),
    "if better, with a third of RankMe": ("unclear", 12.0, 64, 3.6, 0.1, (0.77, 0.01), 40.0, (0.58, 0.01)),
    "if as before, a quarter of RankMe": ("worse than untrained", 7.0, 64, 3.0, 0.01, (0.75, 0.01), 27.0, (0.75, 0.01)),
    "caltech, ViT, one epoch": ("unclear", 35.7, 192, 4.7, 0.87, (0.771, 0.008), 83.8, (0.742, 0.008)),
    "caltech, ViT, 12 epochs": ("learned", 47.0, 192, 8.7, 0.005, (0.857, 0.006), 83.8, (0.742, 0.008)),
    "if as before, half of RankMe": ("unclear", 40.0, 192, 8.7, 0.005, (0.80, 0.01), 90.0, (0.80, 0.01)),
    "recognised less": ("worse than untrained", 60.0, 99, 20.0, 0.3, (0.80, 0.01), 45.0, (0.86, 0.01)),
}


def measured(
    rank: float, limit: float, variance: float, angle: float, now: Pair, rank_before: float, then: Pair
) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics after and before training."""
    after = {
        "rankme": rank, "rank_limit": limit, "variance_rank": variance, "mean_cosine": 1 - angle,
        "first_component": 0.5, "recognition": now[0], "recognition_error": now[1],
    }  # fmt: skip
    return after, after | {"rankme": rank_before, "recognition": then[0], "recognition_error": then[1]}


@pytest.mark.parametrize("name", MEASURED)
def test_runs_with_known_probes_without_labels(name: str) -> None:
    state, *figures = MEASURED[name]
    after, before = measured(*figures)
    assert judge(after, before).state == state
    assert judge_live({"geometry": with_untrained(after, before)}).state == state  # the alarm's way to the same judge


# What the live probe finds of runs whose probes are known, at the number of samples it has: RankMe before, the share of
# it that is left, recognition now and before training. Shares of so few samples follow from those of all samples, for
# features whose spectrum is a power law; docs/decisions/verdict.md says which numbers are assumed. Variance rank is
# set to 5, so that the rule for one direction takes no part. Recognition of single samples
# spreads by 0.2 around its mean.
LIVE: dict[str, tuple[bool, int, float, float, float, float]] = {
    "blood cells, ViT at 3e-4": (True, 46, 27.0, 0.28, 0.53, 0.525),
    "adrenal, as printed, B = 1": (True, 237, 127.0, 0.02, 0.564, 0.538),
    "adrenal, frozen anchors, B = 1, 50 epochs": (True, 237, 127.0, 0.09, 0.566, 0.538),
    "caltech, DIET, B = 2": (True, 240, 91.0, 0.14, 0.71, 0.75),
    "recognised less than before, RankMe kept": (True, 240, 91.0, 0.9, 0.65, 0.75),
    "adrenal, as printed, B = 16": (False, 237, 127.0, 0.33, 0.569, 0.538),
    "adrenal, as printed, B = 4": (False, 237, 127.0, 0.16, 0.582, 0.538),
    "adrenal, B = 1 at 1e-4": (False, 118, 92.0, 0.75, 0.74, 0.538),
    "adrenal, B = 1 at 3e-4": (False, 118, 92.0, 0.34, 0.81, 0.538),
    "adrenal, B = 1 at 1e-3": (False, 118, 92.0, 0.20, 0.61, 0.538),
    "adrenal, B = 16 at 1e-3": (False, 118, 92.0, 0.26, 0.87, 0.538),
    "adrenal, SimCLR, B = 4": (False, 237, 127.0, 0.27, 0.84, 0.538),
    "caltech, B = 1 at 3e-4": (False, 240, 91.0, 0.67, 0.88, 0.75),
    "caltech, SimCLR, B = 2": (False, 240, 91.0, 0.31, 0.852, 0.75),
    "blood cells, B = 1 at 1e-4": (False, 46, 26.0, 0.75, 0.539, 0.525),
}


@pytest.mark.parametrize("name", LIVE)
def test_the_alarm_tells_runs_that_end_below_their_untrained_encoder(name: str) -> None:
    alarms, samples, rank, left, now, then = LIVE[name]
    error = 0.2 / np.sqrt(samples)
    after, before = measured(left * rank, samples - 1, 5.0, 0.1, (now, error), rank, (then, error))
    verdict = judge_live({"geometry": with_untrained(after, before)})
    assert (lasting(verdict, verdict) is not None) == alarms
    assert lasting(None, verdict) is None


SURE_GAIN, SURE_LOSS = Difference(0.50, 0.60, 0.03, 300), Difference(0.50, 0.40, 0.03, 300)
NOTHING, FEW = Difference(0.50, 0.51, 0.015, 900), Difference(0.40, 0.50, 0.12, 20)
BY_LABELS: dict[str, tuple[State, Difference, Difference]] = {
    "both better": ("learned", SURE_GAIN, SURE_GAIN),
    "one better": ("learned", SURE_GAIN, NOTHING),
    "both worse": ("worse than untrained", SURE_LOSS, SURE_LOSS),
    "one worse": ("worse than untrained", NOTHING, SURE_LOSS),
    "one up, one down": ("unclear", SURE_GAIN, SURE_LOSS),
    "one up, one down but unsure": ("unclear", SURE_GAIN, Difference(0.5, 0.44, 0.04, 300)),
    "nothing": ("no better than untrained", NOTHING, NOTHING),
    "too few": ("unclear", FEW, FEW),
    "if as before, a quarter of RankMe": (
        "worse than untrained",
        Difference(0.267, 0.229, 0.027, 240),
        Difference(0.267, 0.183, 0.030, 240),
    ),
}


@pytest.mark.parametrize("name", BY_LABELS)
def test_where_there_are_labels_they_decide(name: str) -> None:
    state, linear, knn = BY_LABELS[name]
    probes = {"linear_probe": linear, "knn_5": knn}
    for geometry in ("shapes, SimCLR", "if as before, a quarter of RankMe", "cells, IConE, no gain"):
        verdict = judge(*measured(*MEASURED[geometry][1:]), probes)
        assert verdict.state == state
        assert verdict.headline.startswith(HEADLINES[state])
        assert f"{100 * linear.before:.1f} % before training, {100 * linear.after:.1f} % after" in verdict.evidence[0]
        assert "labels=" not in str(verdict)  # they were given


UNSURE_LOSS = Difference(0.60, 0.515, 0.10, 12)
NO_READING = Difference(-35.2, -12.0, 9.0, 20, floor=0.0)


@pytest.mark.parametrize("difference", [FEW, UNSURE_LOSS, Difference(0.5, 0.5, 0.1, 1), NO_READING])
def test_what_may_be_chance_is_called_so_whether_small_or_large(difference: Difference) -> None:
    verdict = judge(*measured(*MEASURED["shapes, SimCLR"][1:]), {"linear_probe": difference})
    samples = "1 test sample," if difference.samples == 1 else f"{difference.samples} test samples,"
    assert verdict.headline == (
        f"It is unclear whether training helped: with {samples} what the probes gained or lost may be chance."
    )
    assert "small" not in str(verdict)


def test_differences_are_written_with_their_sign_and_interval() -> None:
    def first(name: str, difference: Difference) -> str:
        return judge(*measured(*MEASURED["shapes, SimCLR"][1:]), {name: difference}).evidence[0]

    assert first("linear_probe", UNSURE_LOSS) == (
        "Linear probe: 60.0 % before training, 51.5 % after "
        "(-8.5 points, 95 % interval -28.5 to +11.5; 12 test samples)."
    )
    assert "(0.0 points, 95 % interval -20.0 to +20.0; 1 test sample)" in first("knn_5", Difference(0.5, 0.5, 0.1, 1))
    assert "-0.0" not in first("knn_5", Difference(0.5, 0.49999, 0.00001, 9))
    assert "-100.0 to -98.0; 1,300 test samples" in first("knn_5", Difference(1.0, 0.0, 0.01, 1300))
    assert first("ridge_probe", NO_READING) == (
        "Ridge probe, R²: -35.200 before training, -12.000 after: neither is better than the mean of the training "
        "labels (20 test samples)."
    )
    assert "(below 0 counted as 0: +0.200, 95 %" in first("ridge_probe", Difference(-0.1, 0.2, 0.01, 20, floor=0.0))


@pytest.mark.parametrize(
    ("name", "difference", "gain"),
    [
        ("linear_probe", Difference(0.5, 0.46, 0.03, 300), "5 points"),
        ("ridge_probe", Difference(-0.2, -0.3, 0.01, 200, floor=0.0), "0.05"),
    ],
)
def test_no_better_says_what_is_ruled_out(name: str, difference: Difference, gain: str) -> None:
    verdict = judge(*measured(*MEASURED["shapes, SimCLR"][1:]), {name: difference})
    assert verdict.headline == f"{HEADLINES['no better than untrained']}: a gain of {gain} or more is ruled out."


WITHOUT_LABELS = {
    "shapes, SimCLR": "views of a sample are recognised more often than before training",
    "recognised less": "views of a sample are recognised less often",
    "if as before, a quarter of RankMe": "only 26 % of their RankMe is left",
    "points, IConE": "views of a sample are recognised as often as before",
    "shapes, views alone, fast": "they vary along one direction only",
}


@pytest.mark.parametrize("name", WITHOUT_LABELS)
def test_without_labels_the_headline_says_what_was_seen(name: str) -> None:
    state, *figures = MEASURED[name]
    assert judge(*measured(*figures)).headline == f"{HEADLINES[state]}: {WITHOUT_LABELS[name]}."


def test_a_collapse_to_few_directions_counts_them() -> None:
    after, before = measured(5.2, 399, 4.0, 0.5, (0.7, 0.01), 200, (0.7, 0.01))
    assert judge(after, before).headline == "The features have collapsed: they use 5.2 of 399 directions."


def test_labels_that_are_read_better_excuse_few_directions_but_not_identical_features() -> None:
    after, before = measured(20, 99, 1.4, 0.1, (0.60, 0.01), 40, (0.60, 0.01))
    assert judge(after, before).collapsed
    assert judge(after, before, {"linear_probe": SURE_GAIN}).state == "learned"
    assert judge(after | {"rankme": 1.5}, before, {"linear_probe": SURE_GAIN}).state == "learned"
    assert judge(after | {"mean_cosine": 1.0}, before, {"linear_probe": SURE_GAIN}).collapsed


def test_one_direction_that_recognises_samples_better_is_a_summary() -> None:
    after, before = measured(30, 99, 1.4, 0.1, (0.80, 0.01), 40, (0.60, 0.01))
    assert judge(after, before).state == "learned"
    assert judge(after | {"recognition": 0.61}, before).collapsed


def test_labels_that_were_taught_are_no_evidence() -> None:
    after, before = measured(45, 99, 9, 0.2, (0.99, 0.01), 51, (0.60, 0.01))
    verdict = judge(after, before, obstacle=TAUGHT)
    assert verdict.state == "unclear"
    assert "--test-fraction" in verdict.advice


def test_lost_rank_is_remarked_but_of_encoders_that_learned_or_were_taught() -> None:
    after, before = ({"rankme": r, "rank_limit": 96, "mean_cosine": 0.7, "first_component": 0.5} for r in (20.0, 74.0))
    by_chance, gain = (Difference(before=0.5, after=a, error=0.05, samples=70) for a in (0.45, 0.7))
    unclear = judge(after, before, {"linear_probe": by_chance})
    assert unclear.state == "unclear"
    assert "Less than 30 % of the RankMe before training is left" in unclear.advice
    for other in (judge(after, before, {"linear_probe": gain}), judge(after, before, obstacle=TAUGHT)):
        assert "RankMe before training" not in other.advice


def test_few_labels_while_training_are_no_reason_to_ask_for_labels() -> None:
    geometry = {"rankme": 20.0, "rank_limit": 96, "mean_cosine": 0.7, "first_component": 0.5, "untrained_rankme": 30.0}
    seen = {"recognition": 0.6, "recognition_error": 0.02, "untrained_recognition": 0.6}
    row = {"geometry": {**geometry, **seen, "untrained_recognition_error": 0.02}}
    assert "--labels" in judge_live(row).advice
    probed = {"live_linear": 0.5, "untrained_live_linear": 0.5, "live_linear_error": 0.1, "instances": 60}
    told = judge_live({**row, "probe": probed})
    assert "--labels" not in told.advice
    assert "icone evaluate" in told.advice


def test_without_views_and_labels_nothing_can_be_said() -> None:
    figures = geometry_metrics(Embedding(SPREAD["isotropic"]))
    assert judge(figures, figures).state == "unclear"


def test_views_of_noise_do_not_hide_a_line() -> None:
    """What one direction and noise look like to the probe: RankMe is high, and nothing but the line is recognised."""
    line = spread(200, 64, 1)[:, None] + 0.05 * RNG.normal(size=(200, 2, 64)).astype(np.float32)
    figures = geometry_metrics(Embedding(line[:, 0], line))
    assert figures["rankme"] > 10
    assert judge(figures).collapsed


def test_features_of_noise_alone_have_lost_what_the_untrained_encoder_told_apart() -> None:
    noise = RNG.normal(size=(150, 2, 64)).astype(np.float32)
    figures = geometry_metrics(Embedding(noise[:, 0], noise))
    assert figures["rankme"] > 0.5 * figures["rank_limit"]
    assert figures["variance_rank"] > 10
    verdict = judge(figures, figures | {"recognition": 0.70, "recognition_error": 0.01})
    assert verdict.headline == "The features have collapsed: training has lost what told samples apart."
    unclear = judge(figures, figures | {"recognition": 0.51, "recognition_error": 0.01})
    assert unclear.state == "unclear"
    assert "% of the cases, 51 % before training, which may be chance" in unclear.headline


def test_json_gives_the_verdict_back_and_takes_the_text_of_version_0_1() -> None:
    verdict = judge(*measured(*MEASURED["shapes, SimCLR"][1:]))
    assert verdict.to_json().keys() == {"state", "headline", "evidence", "advice"}
    assert Verdict.from_json(verdict.to_json()) == verdict
    old = Verdict.from_json("The features are healthy: …")
    assert old.state == "unclear"
    assert old.evidence == ("The features are healthy: …",)
    assert "icone evaluate" in old.advice
