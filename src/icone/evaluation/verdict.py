"""Whether features have collapsed, in words: one rule for the live alarm, `icone evaluate` and the report.

Collapse is the loss of what tells samples apart. Three things show it, all on standardised features, because probes
read features so, and useful encoders too may map everything into a narrow cone (untrained ones do):

- few directions: RankMe below 2 % of the most it could be, min(N − 1, d), or nearly all variance along one
  direction while samples are recognised no better than by the untrained encoder. A few directions that recognise
  samples better are a summary, not a collapse;
- lost evidence: views of one sample are much harder to tell from those of others than before training;
- samples that coincide up to rounding.

Where none of them holds, the features are called healthy only if there is evidence for it: views of a sample are
mostly nearer to each other than to others, or more often than by the untrained encoder. Else the verdict is unclear.
docs/decisions.md holds the runs that this rule was found and checked with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from icone.evaluation.recognition import CHANCE, Recognition

COLLAPSED_SHARE = 0.02
NARROW_SHARE = 0.10
COLLAPSED_RANK = 2.0
"""Of few samples or dimensions, where 2 % would be less than one direction."""
NARROW_RANK = 3.0
ONE_DIRECTION = 2.0
"""Variance rank below which nearly all variance lies along one direction."""
IDENTICAL = 1e-6
"""1 − mean cosine: angles of a thousandth, the noise of float32 arithmetic in a deep network."""
RECOGNISED = 0.75
"""Half way between chance and certainty: evidence enough, whatever the untrained encoder can do."""
CONE_COSINE = 0.95
LARGE_COMPONENT = 0.9

ADVICE = (
    "Try a smaller --lr, weaker views (a crop may lose the object), and for IConE its own defaults "
    "(diversity_weight=1, normalisation=anchor); other methods need a larger --batch-size, --method icone does not."
)
UNCLEAR = (
    "Train longer, or with weaker views (a crop may lose the object); with --labels probes can tell. Under views as "
    "strong as these, geometry alone cannot."
)
NARROW = "They may still serve: look at the map, and compare with a longer run or a smaller --lr."


@dataclass(frozen=True)
class Verdict:
    """What the figures say: a state, a headline, the figures behind it, and what to do or to know."""

    state: Literal["healthy", "unclear", "narrow", "collapsed"]
    headline: str
    figures: str
    remarks: tuple[str, ...]

    @property
    def collapsed(self) -> bool:
        return self.state == "collapsed"

    def __str__(self) -> str:
        return " ".join((self.headline, self.figures, *self.remarks))


def judge(figures: Mapping[str, float]) -> Verdict:
    """The verdict on `rankme`, `rank_limit`, `mean_cosine`, `first_component` and, as far as measured, the rest.

    >>> judge({"rankme": 80.0, "rank_limit": 384, "mean_cosine": 0.2, "first_component": 0.1}).state
    'healthy'
    >>> print(judge({"rankme": 1.3, "rank_limit": 384, "mean_cosine": 1.0, "first_component": 0.99}).headline)
    The features have collapsed: different samples get nearly the same features.
    """
    numbers, remarks = _numbers(figures), _remarks(figures)
    now, before = _recognition(figures, ""), _recognition(figures, "untrained_")
    better = now is not None and before is not None and now.beats(before)
    if 1 - figures["mean_cosine"] < IDENTICAL or _fewer(figures, COLLAPSED_SHARE, COLLAPSED_RANK):
        headline = "The features have collapsed: different samples get nearly the same features."
        return Verdict("collapsed", headline, numbers, (ADVICE,))
    if now is not None and before is not None and now.lost(before):
        headline = "The features have collapsed: training has lost what told samples apart."
        return Verdict("collapsed", headline, numbers, (ADVICE,))
    one_direction = figures.get("variance_rank", ONE_DIRECTION) < min(ONE_DIRECTION, 0.75 * figures["rank_limit"])
    if one_direction and not better:
        headline = "The features have collapsed: they vary along one direction only."
        return Verdict("collapsed", headline, numbers, (ADVICE,))
    if one_direction or _fewer(figures, NARROW_SHARE, NARROW_RANK):
        headline = "The features are narrow: they use few of their dimensions."
        return Verdict("narrow", headline, numbers, (NARROW, *remarks))
    shown = better if before is not None else now is None or now.beats(Recognition(CHANCE))
    if now is not None and now.share < RECOGNISED and not shown:
        rival = "the untrained encoder" if before is not None else "chance"
        headline = (
            f"It is unclear whether training worked: nothing has collapsed, but {rival} recognises samples as well."
        )
        return Verdict("unclear", headline, numbers, (UNCLEAR, *remarks))
    headline = "The features are healthy: they spread over many dimensions and have not collapsed."
    return Verdict("healthy", headline, numbers, remarks)


def _fewer(figures: Mapping[str, float], share: float, rank: float) -> bool:
    """Whether RankMe is below a share of its limit; using all of two or three possible directions is no collapse."""
    limit = figures["rank_limit"]
    return figures["rankme"] < min(max(share * limit, rank), 0.75 * limit)


def _recognition(figures: Mapping[str, float], prefix: str) -> Recognition | None:
    if f"{prefix}recognition" not in figures:
        return None
    return Recognition(figures[f"{prefix}recognition"], figures[f"{prefix}recognition_error"])


def _numbers(figures: Mapping[str, float]) -> str:
    rank, limit = figures["rankme"], figures["rank_limit"]
    text = (
        f"RankMe {rank:.1f} of at most {limit:.0f} ({100 * rank / limit:.0f} %), "
        f"mean cosine {figures['mean_cosine']:.3f}, "
        f"{100 * figures['first_component']:.0f} % of the variance in the first component."
    )
    if "recognition" not in figures:
        return text
    before = figures.get("untrained_recognition")
    known = "chance 50 %" + ("" if before is None else f", before training {100 * before:.0f} %")
    recognised = 100 * figures["recognition"]
    return f"{text} A view is nearer to its own sample than to another in {recognised:.0f} % of the cases ({known})."


def _remarks(figures: Mapping[str, float]) -> tuple[str, ...]:
    cone = "All features point in nearly the same direction: standardise them before using distances or cosines."
    direction = (
        "One direction holds most of the variance: standardise the features, so that it does not drown the rest."
    )
    return (
        *([cone] if figures["mean_cosine"] > CONE_COSINE else []),
        *([direction] if figures["first_component"] > LARGE_COMPONENT else []),
    )
