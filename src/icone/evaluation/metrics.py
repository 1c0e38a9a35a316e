"""The table of all metrics: how each is measured, what it is called, how it is written and where it is shown.

Metrics are numbers; figures are pictures. Tables, the page, figures, the verdict and the paper's experiments take
names, units and digits from here. Adding a metric: one entry of `METRICS`, or `register_metric`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from icone.errors import InputError
from icone.evaluation import geometry
from icone.evaluation.inputs import FloatArray
from icone.evaluation.recognition import Recognition, recognition

Array = npt.NDArray[np.float32]
Groups = npt.NDArray[np.int64] | None
Place = Literal["evaluation", "training", "sweep"]
UNTRAINED = "untrained_"
"""Before the name of a metric: that of the encoder before training."""


@dataclass(frozen=True)
class Embedding:
    """What a metric can look at: features, and where there are any those of random views."""

    features: Array
    """Of the deterministic views, (N, d)."""
    views: Array | None = None
    """Of random views, (n, V, d)."""
    groups: Groups = None
    """The classes (n,) that the encoder was taught to unite."""

    @cached_property
    def standardized(self) -> FloatArray:
        """Every dimension with mean 0 and variance 1, as the paper measures geometry."""
        return geometry.standardize(self.features)

    @cached_property
    def standardized_views(self) -> FloatArray | None:
        if self.views is None:
            return None
        return geometry.standardize(self.views.reshape(-1, self.views.shape[-1])).reshape(self.views.shape)

    @cached_property
    def recognised(self) -> Recognition | None:
        return None if self.standardized_views is None else recognition(self.standardized_views, self.groups)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number about an encoder."""

    name: str
    """Its key in result.json, the history, loggers (`geometry/NAME`) and the results table of a sweep."""
    title: str
    """What tables call it."""
    label: str = ""
    """A shorter title for axes and charts; empty: the title."""
    percent: bool = False
    """Whether it is a share, which is written in percent."""
    digits: int = 1
    """Decimals, of percent where it is one."""
    better: Literal["higher", "lower", ""] = ""
    """Which values are better; empty where neither is."""
    meaning: str = ""
    """What a better value means, where the title does not say it."""
    explanation: str = ""
    """What it is, in a sentence, for readers of the page who do not know the name."""
    shown: tuple[Place, ...] = ("evaluation",)
    """evaluation: in tables of `icone evaluate`, the page and a sweep; sweep: there alone; training: measured and drawn
    over epochs."""
    from_zero: bool = False
    """Whether charts begin at 0."""
    probe: str = ""
    """The probe whose `score` it is; empty for other metrics."""
    score: str = "balanced_accuracy"
    measure: Callable[[Embedding], float | None] | None = None
    """The function that measures it; None: a probe or a method does (`Method.epoch_metrics`)."""

    @property
    def heading(self) -> str:
        """The title with its unit and its direction."""
        unit = " (%)" if self.percent else ""
        return f"{self.title}{unit}" + (f" ({self.better}: {self.meaning})" if self.meaning else "")

    @property
    def short(self) -> str:
        return self.label or self.title

    @property
    def axis(self) -> str:
        """The short title with its unit."""
        return f"{self.short} (%)" if self.percent else self.short

    @property
    def live_axis(self) -> str:
        """The title of its chart over epochs.

        What is measured while training, on random views of few samples, is called live: its values are others than
        those of the evaluation. The cosine of anchors is that of all anchors, and has no other value.
        """
        is_live = self.measure is not None or self.name.startswith("live_")
        return f"live {self.axis}" if is_live else self.axis

    @property
    def scale(self) -> int:
        """By what a value is multiplied to be written."""
        return 100 if self.percent else 1

    def text(self, value: float) -> str:
        """A value as tables write it; a zero has no sign.

        >>> METRICS["knn_5"].text(0.55), METRICS["knn_5"].text(-0.0001)
        ('55.0', '0.0')
        """
        text = f"{self.scale * value:.{self.digits}f}"
        return text if float(text) else text.removeprefix("-")

    def signed(self, difference: float) -> str:
        """A difference of two values with its sign; one that is written as 0 has none.

        >>> METRICS["knn_5"].signed(0.0125), METRICS["knn_5"].signed(-0.085), METRICS["knn_5"].signed(-0.0004)
        ('+1.2', '-8.5', '0.0')
        """
        text = f"{self.scale * difference:+.{self.digits}f}"
        return text if float(text) else text[1:]

    def mean_text(self, values: Sequence[float]) -> str:
        """The mean of several runs ± their standard deviation (that of a sample, with n − 1); of one run its value.

        >>> METRICS["knn_5"].mean_text([0.5, 0.6]), METRICS["knn_5"].mean_text([0.5])
        ('55.0 ± 7.1', '50.0')
        """
        mean = self.text(float(np.mean(values)))
        return mean if len(values) == 1 else f"{mean} ± {self.text(float(np.std(values, ddof=1)))}"


def _of_views(function: Callable[[FloatArray], float]) -> Callable[[Embedding], float | None]:
    """A function of standardised views (n, V, d), as a metric that is absent without views."""
    return lambda e: None if e.standardized_views is None else function(e.standardized_views)


def _probe(name: str, label: str, **changes: Any) -> Metric:
    title = f"{label}, balanced accuracy"
    settings = {"title": title, "label": label, "percent": True, "better": "higher", "probe": name, **changes}
    return Metric(name=name, **settings)


_EXPLAINED = "The share of the variance of the numbers that {} explains; 0 is no better than their mean."
_ORDERED = "Whether {} puts test samples in the right order; 1 is perfect, 0 is chance."
_NEIGHBOURS = "How often {} of a test sample {} its class, as the mean over classes."
_VOTE = _NEIGHBOURS.format("a vote of the {} nearest training samples", "names")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _probe(
            "linear_probe", "linear probe",
            explanation="How often a logistic regression on the features names the class of a test sample, as the mean "
            "over classes.",
        ),
        _probe("knn_1", "kNN-1", explanation=_NEIGHBOURS.format("the nearest training sample", "has")),
        _probe("knn_5", "kNN-5", explanation=_VOTE.format("five")),
        _probe("knn_20", "kNN-20", explanation=_VOTE.format("twenty")),
        _probe(
            "minority", "minority classes", title="linear probe, minority classes", probe="linear_probe",
            score="minority_accuracy",
            explanation="The linear probe on the classes that have fewer training samples than the average class.",
        ),
        Metric(
            name="auroc", title="linear probe, AUROC", label="AUROC", digits=3, better="higher", probe="linear_probe",
            score="auroc",
            explanation="How often the linear probe ranks a sample of a class above one of another; 0.5 is chance.",
        ),
        Metric(
            name="ridge_probe", title="ridge probe, R²", label="ridge probe, R²", digits=3, better="higher",
            probe="ridge_probe", score="r2", explanation=_EXPLAINED.format("a linear regression on the features"),
        ),
        Metric(
            name="ridge_spearman", title="ridge probe, Spearman correlation", digits=3, better="higher",
            probe="ridge_probe", score="spearman", explanation=_ORDERED.format("a linear regression on the features"),
        ),
        Metric(
            name="knn_regressor", title="5 nearest neighbours, R²", digits=3, better="higher", probe="knn_regressor",
            score="r2", explanation=_EXPLAINED.format("the mean of the five nearest training samples"),
        ),
        Metric(
            name="knn_spearman", title="5 nearest neighbours, Spearman correlation", digits=3, better="higher",
            probe="knn_regressor", score="spearman",
            explanation=_ORDERED.format("the mean of the five nearest training samples"),
        ),
        Metric(
            name="multilabel_probe", title="one-vs-rest probe, mean AUROC", digits=3, better="higher",
            probe="multilabel_probe", score="auroc",
            explanation="How often a logistic regression for each label ranks a sample that has it above one that has "
            "not, as the mean over labels; 0.5 is chance.",
        ),
        Metric(
            name="average_precision", title="one-vs-rest probe, mean average precision", digits=3, better="higher",
            probe="multilabel_probe", score="average_precision",
            explanation="The area under precision against recall, as the mean over labels; chance is the share of "
            "samples that have the label.",
        ),
        Metric(
            name="recognition", title="views nearer to their own sample than to another",
            label="views nearer to their own sample", percent=True, better="higher", shown=("evaluation", "training"),
            explanation="How often a random view of a sample lies nearer to another view of it than to one of another "
            "sample; 50 is chance. It needs no labels.",
            measure=lambda e: None if e.recognised is None else e.recognised.share,
        ),
        Metric(
            name="rankme", title="RankMe", better="higher", shown=("evaluation", "training"), from_zero=True,
            explanation="How many directions the features use: the exponential of the entropy of their singular values "
            "(Garrido et al. 2023). Near 1 is a collapse. It is no score: noise has a high one, and a better encoder "
            "may have a lower one. A fall below a third of what it was is a bad sign.",
            measure=lambda e: geometry.rankme(e.standardized),
        ),
        Metric(
            name="variance_rank", title="directions that hold the variance", better="higher",
            explanation="The same for the variance, the squares of the singular values: stricter than RankMe.",
            shown=("evaluation", "training"), from_zero=True,
            measure=lambda e: geometry.variance_rank(e.standardized),
        ),
        Metric(
            name="effective_rank", title="effective rank", better="higher", shown=("sweep",),
            measure=lambda e: geometry.entropy_rank(geometry.singular_values(e.standardized)),
        ),
        Metric(
            name="lidar", title="LiDAR", better="higher", measure=_of_views(geometry.lidar),
            explanation="How many directions tell samples apart, once what differs between views of one sample is "
            "taken out (Thilak et al. 2024).",
        ),
        Metric(
            name="alignment", title="alignment", digits=2, better="lower", meaning="views agree",
            explanation="The mean squared distance between two views of a sample (Wang and Isola 2020).",
            shown=("evaluation", "training"), from_zero=True, measure=_of_views(geometry.alignment),
        ),
        Metric(
            name="uniformity", title="uniformity", digits=2, better="lower", meaning="more spread",
            explanation="How evenly samples are spread over directions: about −4 is even, 0 is one point (Wang and "
            "Isola 2020).",
            shown=("evaluation", "training"), measure=lambda e: geometry.uniformity(e.standardized),
        ),
        Metric(
            name="first_component", title="variance in the first component", percent=True,
            explanation="The share of the variance that lies in one direction; 100 is a collapse to a line.",
            shown=("evaluation", "training"), from_zero=True,
            measure=lambda e: geometry.first_component_share(e.features),
        ),
        Metric(
            name="mean_cosine", title="mean cosine between samples", label="mean cosine of features", digits=4,
            explanation="How alike the features of two samples are on average; 1 is a collapse to a point.",
            shown=("evaluation", "training"), measure=lambda e: geometry.mean_cosine(e.features),
        ),
        Metric(
            name="live_linear", title="linear probe of a few samples, balanced accuracy", label="linear probe",
            percent=True, better="higher", shown=("training",),
        ),
        Metric(
            name="live_knn", title="kNN-5 of a few samples, balanced accuracy", label="kNN-5", percent=True,
            better="higher", shown=("training",),
        ),
        Metric(
            name="live_ridge", title="ridge probe of a few samples, R²", label="ridge probe, R²", digits=3,
            better="higher", shown=("training",),
        ),
        Metric(
            name="live_knn_regressor", title="5 nearest neighbours of a few samples, R²",
            label="5 nearest neighbours, R²", digits=3, better="higher", shown=("training",),
        ),
        Metric(
            name="live_multilabel", title="one-vs-rest probe of a few samples, mean AUROC",
            label="one-vs-rest probe, mean AUROC", digits=3, better="higher", shown=("training",),
        ),
        Metric(
            name="live_knn_multilabel", title="5 nearest neighbours of a few samples, mean AUROC",
            label="5 nearest neighbours, mean AUROC", digits=3, better="higher", shown=("training",),
        ),
        Metric(name="anchor_cosine", title="mean cosine of anchors", digits=4, shown=("training",)),
        Metric(name="prototype_cosine", title="mean cosine of prototypes", digits=4, shown=("training",)),
        Metric(name="class_alignment", title="alignment of same-class pairs", digits=2, better="lower", shown=()),
        Metric(name="silhouette", title="silhouette", digits=2, better="higher", shown=()),
    )
}  # fmt: skip
"""In the order of tables and charts. The effective rank of standardised features is their RankMe, so that only
the paper's figures show it; the last two belong to the paper's synthetic study, which shows them itself."""


def register_metric(metric: Metric) -> Metric:
    """Add a metric of your own: it is measured, written and drawn like the others from then on, in this process."""
    if metric.name in METRICS:
        raise InputError(f"there is a metric {metric.name} already: give yours another name")
    METRICS[metric.name] = metric
    return metric


def metrics_shown(*places: Place) -> list[Metric]:
    """Metrics that are shown in one of these places."""
    return [metric for metric in METRICS.values() if set(places) & set(metric.shown)]


def find_metric(name: str) -> Metric:
    """The metric of this name, also before training (`untrained_NAME`); of an unknown one, what its name says.

    >>> find_metric("untrained_knn_5").heading, find_metric("peak_gb").heading
    ('kNN-5, balanced accuracy (%)', 'peak gb')
    """
    return METRICS.get(name.removeprefix(UNTRAINED)) or Metric(name=name, title=name.replace("_", " "))


def metric_value(measured: Mapping[str, Any], metric: Metric) -> float | None:
    """The value of a metric among the results of one encoder (`assess`), or None."""
    value = measured.get(metric.probe or metric.name)
    if metric.probe and value is not None:
        value = value.get(metric.score)  # results of earlier versions lack some
    return None if value is None else float(value)


def metric_texts(results: Sequence[Mapping[str, Any]]) -> list[tuple[Metric, dict[str, str]]]:
    """Every metric of an evaluation that all results (`assess`) have, as tables write it, untrained and trained.

    Of several runs it is the mean ± standard deviation.
    """
    rows = []
    for metric in metrics_shown("evaluation"):
        texts = {}
        for which in ("untrained", "trained"):
            values = [metric_value(result.get(which, {}), metric) for result in results]
            known = [value for value in values if value is not None]
            if len(known) == len(results):
                texts[which] = metric.mean_text(known)
        if "trained" in texts:
            rows.append((metric, texts))
    return rows


def sentence_case(title: str) -> str:
    """A title as the beginning of a sentence.

    >>> sentence_case("linear probe"), sentence_case("kNN-5")
    ('Linear probe', 'kNN-5')
    """
    return title if title[1:2].isupper() else title[:1].upper() + title[1:]
