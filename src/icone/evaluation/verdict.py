"""Whether features have collapsed, in words: one rule for the live alarm, `icone evaluate` and the report.

RankMe of the standardised features decides, relative to the most it could be, min(N − 1, d). On real volumes
(AdrenalMNIST3D, 512 features) it was 245 untrained, 115 to 141 after healthy training, 20 with a narrow but useful
spectrum, and 4 where the anchors had clustered: below 2 % is collapse, below 10 % deserves a look. Mean cosine
decides only where samples coincide up to rounding. It cannot decide more, because useful encoders too may map
everything into a narrow cone (and untrained ones do): probes read the differences after standardisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

COLLAPSED_SHARE = 0.02
NARROW_SHARE = 0.10
COLLAPSED_RANK = 2.0
"""Of few samples or dimensions, where 2 % would be less than one direction."""
NARROW_RANK = 3.0
IDENTICAL = 1e-6
"""1 − mean cosine: angles of a thousandth, the noise of float32 arithmetic in a deep network."""
CONE_COSINE = 0.95
ONE_DIRECTION = 0.9

ADVICE = (
    "Try a smaller --lr, weaker views (a crop may lose the object), and for IConE its own defaults "
    "(diversity_weight=1, normalisation=anchor); other methods need a larger --batch-size, --method icone does not."
)


@dataclass(frozen=True)
class Verdict:
    """What the figures say: a state, a headline, the figures behind it, and what to do or to know."""

    state: Literal["healthy", "narrow", "collapsed"]
    headline: str
    figures: str
    remarks: tuple[str, ...]

    @property
    def collapsed(self) -> bool:
        return self.state == "collapsed"

    def __str__(self) -> str:
        return " ".join((self.headline, self.figures, *self.remarks))


def judge(figures: Mapping[str, float]) -> Verdict:
    """The verdict on `rankme`, `rank_limit`, `mean_cosine` and `first_component` of a set of features.

    >>> judge({"rankme": 80.0, "rank_limit": 384, "mean_cosine": 0.2, "first_component": 0.1}).state
    'healthy'
    >>> print(judge({"rankme": 1.3, "rank_limit": 384, "mean_cosine": 1.0, "first_component": 0.99}).headline)
    The features have collapsed: different samples get nearly the same features.
    """
    rank, limit, cosine = figures["rankme"], figures["rank_limit"], figures["mean_cosine"]
    numbers = (
        f"RankMe {rank:.1f} of at most {limit:.0f} ({100 * rank / limit:.0f} %), mean cosine {cosine:.3f}, "
        f"{100 * figures['first_component']:.0f} % of the variance in the first component."
    )
    # Where no more than two or three directions exist, using them all is no collapse.
    if 1 - cosine < IDENTICAL or rank < min(max(COLLAPSED_SHARE * limit, COLLAPSED_RANK), 0.75 * limit):
        headline = "The features have collapsed: different samples get nearly the same features."
        return Verdict("collapsed", headline, numbers, (ADVICE,))
    if rank < min(max(NARROW_SHARE * limit, NARROW_RANK), 0.75 * limit):
        headline = "The features are narrow: they use few of their dimensions."
        return Verdict("narrow", headline, numbers, (_NARROW, *_remarks(figures)))
    headline = "The features are healthy: they spread over many dimensions and have not collapsed."
    return Verdict("healthy", headline, numbers, _remarks(figures))


_NARROW = "They may still serve: look at the map, and compare with a longer run or a smaller --lr."


def _remarks(figures: Mapping[str, float]) -> tuple[str, ...]:
    cone = "All features point in nearly the same direction: standardise them before using distances or cosines."
    direction = (
        "One direction holds most of the variance: standardise the features, so that it does not drown the rest."
    )
    return (
        *([cone] if figures["mean_cosine"] > CONE_COSINE else []),
        *([direction] if figures["first_component"] > ONE_DIRECTION else []),
    )
