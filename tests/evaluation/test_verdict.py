"""The verdict on features whose state is known by construction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from icone.evaluation.assessment import geometry_figures
from icone.evaluation.verdict import judge

Array = npt.NDArray[np.float32]
Pair = tuple[float, float]
RNG = np.random.default_rng(0)


def spread(n: int, d: int, directions: int, noise: float = 0.0) -> Array:
    """Features that vary along this many random directions of d, and by noise along all."""
    x = RNG.normal(size=(n, directions)) @ RNG.normal(size=(directions, d)) + noise * RNG.normal(size=(n, d))
    return x.astype(np.float32)


HEALTHY = {
    "isotropic": RNG.normal(size=(300, 64)).astype(np.float32),
    "fewer samples than dimensions": RNG.normal(size=(20, 512)).astype(np.float32),
    "decaying spectrum": (RNG.normal(size=(400, 128)) / np.arange(1, 129)).astype(np.float32) @ np.eye(128, dtype="f4"),
    "a narrow cone, spread inside": (100 + RNG.normal(size=(300, 64))).astype(np.float32),
    "points on a circle": np.stack([np.cos(t := np.arange(50.0)), np.sin(t)], axis=1).astype(np.float32),
    "one feature only": RNG.normal(size=(50, 1)).astype(np.float32),
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


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_features_are_called_healthy(name: str) -> None:
    assert judge(geometry_figures(HEALTHY[name], None)).state == "healthy"


@pytest.mark.parametrize("name", COLLAPSED)
def test_collapsed_features_are_called_collapsed(name: str) -> None:
    verdict = judge(geometry_figures(COLLAPSED[name], None))
    assert verdict.collapsed
    assert "--lr" in str(verdict)


def test_between_the_two_is_narrow() -> None:
    verdict = judge(geometry_figures(spread(500, 400, 16), None))
    assert verdict.state == "narrow"
    assert "few of their dimensions" in verdict.headline


def test_the_figures_are_in_the_words() -> None:
    text = str(judge({"rankme": 41.26, "rank_limit": 149.0, "mean_cosine": 0.987, "first_component": 0.92}))
    for part in ("41.3 of at most 149 (28 %)", "mean cosine 0.987", "92 %", "same direction", "One direction"):
        assert part in text
    plain = judge({"rankme": 41.26, "rank_limit": 149.0, "mean_cosine": 0.1, "first_component": 0.2})
    assert plain.remarks == ()


# Runs whose probes are known, with the figures that were measured on them (docs/decisions.md):
# RankMe, limit, variance rank, 1 − cosine, recognition and its error, and both before training.
MEASURED = {
    "points, IConE": ("healthy", 11.9, 64, 4.8, 1.0, (0.994, 0.001), (0.994, 0.001)),
    "points, SimCLR": ("healthy", 13.5, 64, 5.9, 0.34, (0.994, 0.001), (0.994, 0.001)),
    "points, views alone": ("collapsed", 7.3, 64, 1.5, 5.8e-4, (0.966, 0.003), (0.994, 0.001)),
    "points, views alone, fast": ("collapsed", 2.3, 64, 1.1, 2.0e-5, (0.901, 0.005), (0.994, 0.001)),
    "points, shrunk to rounding": ("collapsed", 10.9, 64, 4.5, 9.8e-12, (0.991, 0.001), (0.994, 0.001)),
    "shapes, SimCLR": ("healthy", 45.5, 99, 8.9, 0.23, (0.862, 0.008), (0.698, 0.010)),
    "shapes, IConE": ("healthy", 49.2, 99, 6.5, 2.7e-4, (0.740, 0.011), (0.698, 0.010)),
    "shapes, views alone, fast": ("collapsed", 20.9, 99, 1.6, 1.7e-5, (0.635, 0.012), (0.698, 0.010)),
    "cells, SimCLR": ("healthy", 54.2, 99, 14.4, 0.51, (0.609, 0.011), (0.553, 0.011)),
    "cells, IConE, no gain": ("unclear", 66.9, 99, 22.2, 7.7e-4, (0.553, 0.011), (0.553, 0.011)),
    "cells, views alone, fast": ("unclear", 40.7, 99, 5.3, 2.1e-5, (0.530, 0.011), (0.553, 0.011)),
}


def measured(rank: float, limit: float, variance: float, angle: float, now: Pair, before: Pair) -> dict[str, float]:
    return {
        "rankme": rank, "rank_limit": limit, "variance_rank": variance, "mean_cosine": 1 - angle,
        "first_component": 0.5, "recognition": now[0], "recognition_error": now[1],
        "untrained_recognition": before[0], "untrained_recognition_error": before[1],
    }  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_runs_with_known_probes(name: str) -> None:
    state, *figures = MEASURED[name]
    assert judge(measured(*figures)).state == state  # type: ignore[arg-type]


def test_one_direction_that_recognises_samples_better_is_a_summary() -> None:
    better = measured(20, 99, 1.4, 0.1, (0.80, 0.01), (0.60, 0.01))
    assert judge(better).state == "narrow"
    assert judge(better | {"recognition": 0.61}).collapsed


def test_without_the_untrained_encoder_chance_is_what_counts() -> None:
    figures = {k: v for k, v in measured(50, 99, 9, 0.1, (0.56, 0.01), (0.5, 0.0)).items() if "untrained" not in k}
    assert judge(figures).state == "healthy"
    chance = judge(figures | {"recognition": 0.51})
    assert chance.state == "unclear"
    assert "chance recognises samples as well" in chance.headline
    assert "51 % of the cases (chance 50 %)" in chance.figures


def test_views_of_noise_do_not_hide_a_line() -> None:
    """What one direction and noise look like to the probe: RankMe is high, and nothing but the line is recognised."""
    line = spread(200, 64, 1)[:, None] + 0.05 * RNG.normal(size=(200, 2, 64)).astype(np.float32)
    figures = geometry_figures(line[:, 0], line)
    assert figures["rankme"] > 10
    assert judge(figures).collapsed


def test_features_of_noise_alone_have_lost_what_the_untrained_encoder_told_apart() -> None:
    noise = RNG.normal(size=(150, 2, 64)).astype(np.float32)
    figures = geometry_figures(noise[:, 0], noise)
    assert figures["rankme"] > 0.5 * figures["rank_limit"]
    assert figures["variance_rank"] > 10
    verdict = judge(figures | {"untrained_recognition": 0.70, "untrained_recognition_error": 0.01})
    assert verdict.headline == "The features have collapsed: training has lost what told samples apart."
    assert judge(figures | {"untrained_recognition": 0.51, "untrained_recognition_error": 0.01}).state == "unclear"
