"""What the lines of a run say about its probe while training: which score, now and before training."""

from __future__ import annotations

from typing import Any, NamedTuple

LIVE_SCORES = {
    "live_linear": ("linear probe", "balanced accuracy", 100),
    "live_ridge": ("ridge probe", "R²", 1),
    "live_multilabel": ("one-vs-rest probe", "mean AUROC", 1),
}
"""The probe that the lines of a run show, by the name of its score in the history: probe, score and scale."""


class LiveScore(NamedTuple):
    """What the lines of a run say about its probe while training."""

    probe: str
    score: str
    now: str
    before: str
    """Of the untrained encoder."""
    unit: str


def live_score(row: dict[str, Any]) -> LiveScore | None:
    """The probe of a row of the history; None where it has none.

    >>> live_score({"probe": {"live_ridge": 0.5, "untrained_live_ridge": -0.02}})
    LiveScore(probe='ridge probe', score='R²', now='0.500', before='-0.020', unit='')
    """
    probed = row.get("probe", {})
    for name, (probe, score, scale) in LIVE_SCORES.items():
        if name in probed:
            digits, unit = (1, " %") if scale == 100 else (3, "")
            now, before = (f"{scale * probed[key]:.{digits}f}" for key in (name, f"untrained_{name}"))
            return LiveScore(probe, score, now, before, unit)
    return None
