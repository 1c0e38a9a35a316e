"""The verdict on features whose state is known by construction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from icone.evaluation.assessment import geometry_figures
from icone.evaluation.verdict import judge

Array = npt.NDArray[np.float32]
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
    "one direction": spread(300, 128, 1, noise=1e-4),
    "two points": np.where(RNG.random((200, 1)) < 0.5, 1.0, -1.0).astype(np.float32)
    * np.ones((1, 64), dtype=np.float32),
    "a line in a cone": 50 + spread(200, 64, 1, noise=0.002),
    "four directions of 400": spread(500, 400, 4, noise=1e-3),
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
