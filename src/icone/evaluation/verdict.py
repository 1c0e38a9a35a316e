"""Whether training worked, in words: one rule for `icone evaluate`, the report, and the alarm while a run trains.

The question is whether the encoder is better than it was before training. Both encoders are measured by the same
function on the same views of the same samples. The states:

- *collapsed*: what tells samples apart is lost. Three things show it, all on standardised features, because probes read
  features so, and useful encoders too may map everything into a narrow cone (untrained ones do): few directions (RankMe
  below 2 % of the most it could be, min(N − 1, d), or nearly all variance along one direction and recognition no better
  than before); recognition much lower than before; samples that coincide up to rounding. The first two do not count
  where labels are read better than before;
- *worse than untrained*, *no better than untrained*, *learned*: by labels where there are some, that is by the linear
  probe and kNN-5 (`comparison`); else by recognition and RankMe;
- *unclear*: too few samples to tell, signs that disagree, or nothing to compare with.

docs/decisions/verdict.md and collapse-detection.md hold the runs that this rule was found and checked with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from icone.evaluation.comparison import RELEVANT, Difference
from icone.evaluation.live_labels import differences
from icone.evaluation.metrics import METRICS, UNTRAINED, Metric, sentence_case
from icone.evaluation.recognition import GAIN_ERROR, Recognition
from icone.terminal import counted
from icone.wording import in_user_terms

State = Literal["collapsed", "worse than untrained", "no better than untrained", "learned", "unclear"]
Metrics = Mapping[str, Any]

COLLAPSED_SHARE = 0.02
COLLAPSED_RANK = 2.0
"""Of few samples or dimensions, where 2 % would be less than one direction."""
NARROW_SHARE = 0.10
NARROW_RANK = 3.0
ONE_DIRECTION = 2.0
"""Variance rank below which nearly all variance lies along one direction."""
IDENTICAL = 1e-6
"""1 − mean cosine: angles of a thousandth, the noise of float32 arithmetic in a deep network."""
KEPT_RANK, LOST_RANK = 0.5, 0.3
"""Shares of the untrained RankMe: above the first it is kept, below the second it is lost, and between them it says
nothing. Of three runs on Caltech-101 (20 classes), one that gained eleven points of kNN-5 had 56 % left, one that
labels could not tell from before 43 %, and one that lost eight points 26 %, with the same recognition. RankMe of few
samples differs less: blood cells at a learning rate that destroys a ViT have 9 % left on all samples, and 28 % on the
46 of the live probe. docs/decisions/verdict.md has the runs that the second share lies between."""
ALARMING: tuple[State, ...] = ("collapsed", "worse than untrained")
"""States that are told while a run trains, where two measurements in a row find one of them."""
RECOGNISED = 0.75
"""Half way between chance and certainty. Below, views are too strong to tell samples apart by them, and encoders that
labels find better or worse have the same recognition."""
CONE_COSINE = 0.95
LARGE_COMPONENT = 0.9
JUDGED_PROBES = ("linear_probe", "knn_5", "ridge_probe", "knn_regressor", "multilabel_probe")
"""What the verdict goes by where there are labels: one probe that weighs features, and one that does not, for classes
and for numbers. kNN-1 and kNN-20 say nothing else."""

NOT_MEASURED = "the untrained encoder was not measured"
TAUGHT = "the method was taught the labels of these samples, so they cannot test it"
OBSTACLES = {
    NOT_MEASURED: "Leave --no-untrained out: the comparison costs one more pass over the samples.",
    TAUGHT: "Pretrain with --test-fraction=0.2, which holds samples out.",
}
"""Why being better or worse than before cannot be told, and the way out."""

NO_LABELS = "Labels of two classes or more would tell (--labels): probes are then compared."
FEW_LABELS = "The labels of so few samples do not tell: `icone evaluate` reads those of all."

HEADLINES: dict[State, str] = {
    "collapsed": "The features have collapsed",
    "worse than untrained": "Training made the features worse than those of the untrained encoder",
    "no better than untrained": "The features are no better than those of the untrained encoder",
    "learned": "The encoder has learned",
    "unclear": "It is unclear whether training helped",
}
ADVICE: dict[State, str] = {
    "collapsed": "Try a smaller --lr, weaker views (a crop may lose the object), and the defaults of what --options "
    "changed; methods other than icone may need a larger --batch-size.",
    "worse than untrained": "Try a smaller --lr or weaker views (a crop may lose the object). A short run is often "
    "worse at first: then train longer.",
    "no better than untrained": "Train longer, with a larger --lr, or with other views.",
    "learned": "",
    "unclear": "",
}
LOST = (
    f"Less than {100 * LOST_RANK:.0f} % of the RankMe before training is left, as after a --lr that is too high: "
    "compare with a run at a smaller one."
)
NARROW = "The features use few of their dimensions: look at the map, and compare with a longer run or a smaller --lr."
CONE = "All features point in nearly the same direction: standardise them before using distances or cosines."
DIRECTION = "One direction holds most of the variance: standardise the features, so that it does not drown the rest."


@dataclass(frozen=True)
class Verdict:
    """A state, a headline, the sentences with the numbers behind it, and what to do or to know."""

    state: State
    headline: str
    evidence: tuple[str, ...] = ()
    advice: str = ""

    @property
    def collapsed(self) -> bool:
        return self.state == "collapsed"

    def __str__(self) -> str:
        return in_user_terms(" ".join(text for text in (self.headline, *self.evidence, self.advice) if text))

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "evidence": list(self.evidence)}

    @classmethod
    def from_json(cls, plain: dict[str, Any] | str) -> Verdict:
        """The verdict of a `result.json`; up to version 0.1 it was one text, of another rule."""
        if isinstance(plain, str):
            headline = "This run was evaluated by an earlier version, which did not compare it with no training."
            return cls("unclear", headline, (plain,), "Evaluate it again with `icone evaluate`.")
        return cls(plain["state"], plain["headline"], tuple(plain["evidence"]), plain["advice"])


def judge(
    after: Metrics,
    before: Metrics | None = None,
    probes: Mapping[str, Difference] | None = None,
    obstacle: str = "",
    *,
    labels: str = "",
) -> Verdict:
    """The verdict on the metrics of an encoder (`geometry_metrics`) after and before training.

    `probes` are the differences of `JUDGED_PROBES` where there are labels. An `obstacle`, one of `OBSTACLES`, is the
    reason why being better or worse than before would mean nothing; only a collapse is looked for then. `labels` is
    the way to probes where there are none.

    >>> good = {"rankme": 80.0, "rank_limit": 384, "mean_cosine": 0.2, "first_component": 0.1}
    >>> judge(good, good, {"linear_probe": Difference(before=0.5, after=0.7, error=0.03, samples=300)}).state
    'learned'
    >>> judge(good).headline
    'It is unclear whether training helped: the untrained encoder was not measured.'
    >>> judge({"rankme": 1.3, "rank_limit": 384, "mean_cosine": 0.7, "first_component": 0.99}, good).headline
    'The features have collapsed: they use 1.3 of 384 directions.'
    """
    probes = probes or {}
    obstacle = obstacle or (NOT_MEASURED if before is None else "")
    state: State
    reason, advice = _collapse(after, before, probes), ""
    if reason:
        state = "collapsed"
    elif obstacle:
        state, reason, advice = "unclear", obstacle, OBSTACLES[obstacle]
    elif probes:
        state, reason, advice = _by_labels(probes)
    else:
        assert before is not None
        state, reason, advice = _without_labels(after, before, labels or NO_LABELS)
    headline = f"{HEADLINES[state]}{': ' + reason if reason else ''}."
    remarks = () if state == "collapsed" else _remarks(state, after, None if obstacle else before)
    return Verdict(
        state, headline, _evidence(after, before, probes), " ".join(filter(None, (ADVICE[state], advice, *remarks)))
    )


def judge_live(row: Mapping[str, Any], obstacle: str = "") -> Verdict:
    """The verdict on a row of the history with what the live probe found, and before training (`untrained_…`).

    Labels decide where the few samples are enough to be sure of a gain or a loss, and views where they are not.
    """
    geometry = row["geometry"]
    before = {name.removeprefix(UNTRAINED): value for name, value in geometry.items() if name.startswith(UNTRAINED)}
    probes = differences(row.get("probe", {}))
    is_sure = any(difference.better or difference.worse for difference in probes.values())
    labels = FEW_LABELS if "probe" in row else ""
    return judge(geometry, before if "rankme" in before else None, probes if is_sure else {}, obstacle, labels=labels)


def lasting(former: Verdict | None, verdict: Verdict) -> State | None:
    """The state that two measurements in a row are alarming by: collapsed only if both are.

    One is not enough, because few samples are looked at, and a network may pass through a narrow place.
    """
    if former is None or former.state not in ALARMING or verdict.state not in ALARMING:
        return None
    return "collapsed" if former.collapsed and verdict.collapsed else "worse than untrained"


def _collapse(after: Metrics, before: Metrics | None, probes: Mapping[str, Difference]) -> str:
    """What shows that the features have collapsed, or nothing."""
    if 1 - after["mean_cosine"] < IDENTICAL:
        return "different samples get nearly the same features"
    if any(difference.better for difference in probes.values()):  # few directions from which more is read: a summary
        return ""
    if _fewer(after, COLLAPSED_SHARE, COLLAPSED_RANK):
        return f"they use {after['rankme']:.1f} of {counted(round(after['rank_limit']), 'direction')}"
    now, then, error = _recognition(after), _recognition(before or {}), after.get(GAIN_ERROR)
    if now is not None and then is not None and now.lost(then):
        return "training has lost what told samples apart"
    one_direction = after.get("variance_rank", ONE_DIRECTION) < min(ONE_DIRECTION, 0.75 * after["rank_limit"])
    better = now is not None and then is not None and now.beats(then, error)
    return "they vary along one direction only" if one_direction and not better else ""


def _by_labels(probes: Mapping[str, Difference]) -> tuple[State, str, str]:
    """State, reason and advice by the differences of the probes."""
    differences = probes.values()
    better, worse = any(d.better for d in differences), any(d.worse for d in differences)
    if better and (worse or any(d.value <= -RELEVANT for d in differences)):
        return "unclear", "the probes disagree", ADVICE["worse than untrained"]
    if better:
        return "learned", "its features are better than before training", ""
    if worse:
        return "worse than untrained", "", ""
    if all(d.high < RELEVANT for d in differences):
        gain = f"{100 * RELEVANT:.0f} points" if METRICS[next(iter(probes))].percent else f"{RELEVANT:g}"
        return "no better than untrained", f"a gain of {gain} or more is ruled out", ""
    few = _tested(min(differences, key=lambda d: d.samples))
    advice = "Test with more labelled samples (--test-fraction holds them out), or train longer."
    return "unclear", f"with {few}, what the probes gained or lost may be chance", advice


def _without_labels(after: Metrics, before: Metrics, with_labels: str) -> tuple[State, str, str]:
    """State, reason and advice by recognition and RankMe, with what labels would add."""
    now, then, error = _recognition(after), _recognition(before), after.get(GAIN_ERROR)
    left = after["rankme"] / before["rankme"]
    if now is None or then is None:
        return "unclear", "there are no labels, and no random views were compared", with_labels
    is_better = now.beats(then, error)
    if is_better and left >= KEPT_RANK:
        return "learned", "views of a sample are recognised more often than before training", ""
    if is_better:
        reason = "views of a sample are recognised better, but the features lost more than half of their RankMe"
        return "unclear", reason, with_labels
    if then.beats(now, error):
        return "worse than untrained", "views of a sample are recognised less often", with_labels
    if left < LOST_RANK:
        return "worse than untrained", f"only {100 * left:.0f} % of their RankMe is left", with_labels
    if left < KEPT_RANK:
        return "unclear", "views are recognised as before, but with less than half of the RankMe", with_labels
    if now.share < RECOGNISED:
        shares = f"{100 * now.share:.0f} % of the cases, {100 * then.share:.0f} % before training"
        reason = f"views of a sample are recognised in {shares}, which may be chance"
        return "unclear", reason, f"{with_labels} Else train longer, or with weaker views (a crop may lose the object)."
    return "no better than untrained", "views of a sample are recognised as often as before", with_labels


def _fewer(metrics: Metrics, share: float, rank: float) -> bool:
    """Whether RankMe is below a share of its limit; using all of two or three possible directions is no collapse."""
    limit = metrics["rank_limit"]
    return bool(metrics["rankme"] < min(max(share * limit, rank), 0.75 * limit))


def _recognition(metrics: Metrics) -> Recognition | None:
    if "recognition" not in metrics:
        return None
    return Recognition(metrics["recognition"], metrics["recognition_error"])


def _evidence(after: Metrics, before: Metrics | None, probes: Mapping[str, Difference]) -> tuple[str, ...]:
    sentences = [_sentence(METRICS[name], d) for name, d in probes.items()]
    if "recognition" in after:
        known = "" if before is None or "recognition" not in before else f"{100 * before['recognition']:.0f} % before"
        sentences.append(
            f"A view is nearer to its own sample than to another in {100 * after['recognition']:.0f} % of the cases "
            f"({known + ', ' if known else ''}chance 50 %)."
        )
    rank, limit = after["rankme"], after["rank_limit"]
    earlier = "" if before is None else f", {before['rankme']:.1f} before"
    sentences.append(
        f"Directions that the features use (RankMe): {rank:.1f} of at most {limit:.0f} ({100 * rank / limit:.0f} %)"
        f"{earlier}; {100 * after['first_component']:.0f} % of the variance in one of them. "
        f"Samples are alike by a mean cosine of {after['mean_cosine']:.3f}; 1 is all the same."
    )
    return tuple(sentences)


def _sentence(metric: Metric, d: Difference) -> str:
    """What a probe says about training, in the unit of its metric."""
    unit, points = (" %", " points") if metric.percent else ("", "")
    value, low, high = (metric.signed(x) for x in (d.value, d.low, d.high))
    before, after = (
        f"{metric.text(score)}{unit}{' (no better than the mean)' if score < d.floor else ''}"
        for score in (d.before, d.after)
    )
    if d.reads_nothing:
        return (
            f"{sentence_case(metric.short)}: {metric.text(d.before)} before training, {metric.text(d.after)} after: "
            f"neither is better than the mean of the training labels ({_tested(d)})."
        )
    floored = "below 0 counted as 0: " if min(d.before, d.after) < d.floor else ""
    return (
        f"{sentence_case(metric.short)}: {before} before training, {after} after "
        f"({floored}{value}{points}, 95 % interval {low} to {high}; {_tested(d)})."
    )


def _tested(d: Difference) -> str:
    """What a probe was tested on, in words."""
    samples = counted(d.samples, "test sample")
    return samples if d.groups is None else f"{samples} of {counted(d.groups, 'group')}"


def _remarks(state: State, metrics: Metrics, before: Metrics | None) -> tuple[str, ...]:
    is_lost = state != "learned" and before is not None and metrics["rankme"] < LOST_RANK * before["rankme"]
    return (
        *([LOST] if is_lost else []),
        *([NARROW] if _fewer(metrics, NARROW_SHARE, NARROW_RANK) else []),
        *([CONE] if metrics["mean_cosine"] > CONE_COSINE else []),
        *([DIRECTION] if metrics["first_component"] > LARGE_COMPONENT else []),
    )
