"""Whether features tell samples apart: how often a view is nearer to its own sample than to another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from icone.evaluation.inputs import FloatArray

CHANCE = 0.5
CERTAIN = 0.995
"""Shares above count as this one: their log odds would hang on single comparisons."""
SURE = 2.0
"""Standard errors that a difference must exceed: one in twenty does so by chance."""
NOTICEABLE = 0.01
"""A difference of less than a point is none, however many samples make it sure."""
GAIN_ERROR = "recognition_gain_error"
"""Among the metrics of a trained encoder: the standard error of its recognition minus that of the untrained one."""


@dataclass(frozen=True)
class Recognition:
    """A share of comparisons, and its standard error over instances, at least half an instance."""

    share: float
    error: float = 0.0
    shares: FloatArray | None = field(default=None, compare=False, repr=False)
    """That of every instance, (n,), where they are known."""

    def gain_error(self, other: Recognition) -> float:
        """The standard error of the gain over another encoder: paired where both were measured on the same instances.

        An instance that is easy to tell from others is so for both encoders. Differences within instances leave that
        out: for images they spread about half as much as the shares.
        """
        if self.shares is None or other.shares is None:
            return math.hypot(self.error, other.error)
        return _error(self.shares - other.shares)

    def beats(self, other: Recognition, error: float | None = None) -> bool:
        """Whether this share is larger, and not by chance; `error` is that of the difference.

        It must be larger by a point at least, or by half of what the other one misses: near 1 there is no point left.
        """
        error = self.gain_error(other) if error is None else error
        noticeable = min(NOTICEABLE, (1 - other.share) / 2)
        return self.share - other.share > max(SURE * error, noticeable)

    def lost(self, other: Recognition) -> bool:
        """Whether less than half of the other's evidence (log odds) is left, even if both erred in favour."""
        return _evidence(self.share + SURE * self.error) < _evidence(other.share - SURE * other.error) / 2


def _evidence(share: float) -> float:
    """Log odds of a share, 0 at chance and below."""
    share = min(max(share, CHANCE), CERTAIN)
    return math.log(share / (1 - share))


def recognition(views: FloatArray, groups: npt.NDArray[np.int64] | None = None) -> Recognition | None:
    """Probability that a view is nearer to another view of its own instance than to a view of another instance.

        mean over i, a ≠ b, j ≠ i of [ ‖x_ia − x_ib‖ < ‖x_ia − x_jb‖ ],   ties count one half

    views: (n instances, V views, d). Chance is 0.5 whatever n, V and d are, so that small and large sets compare.
    With `groups` (n,) the views of a whole group are its own, for encoders that were taught to unite a class; None
    where there is no other group to compare with.

    >>> recognition(np.array([[[0.0], [0.1]], [[5.0], [5.1]]]))
    Recognition(share=1.0, error=0.25)
    """
    n, count, _ = views.shape
    groups = np.arange(n) if groups is None else groups
    own = groups[:, None] == groups
    if own.all():
        return None
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    shares = np.mean([_nearer(views[:, a], views[:, b], own) for a, b in pairs], axis=0)
    return Recognition(float(shares.mean()), _error(shares), shares)


def _error(values: FloatArray) -> float:
    """The standard error of the mean over instances (n,): half an instance at least, as few that agree prove little."""
    return max(float(values.std()) / math.sqrt(len(values) - 1), 1 / (2 * len(values)))


def _nearer(queries: FloatArray, gallery: FloatArray, own: npt.NDArray[np.bool_]) -> FloatArray:
    """Of each query: the share of (own, foreign) pairs in which the own one is nearer, by the sum of its ranks."""
    squared = (queries**2).sum(axis=1)[:, None] + (gallery**2).sum(axis=1) - 2 * queries @ gallery.T
    from scipy.stats import rankdata  # takes its time to import

    ranks = rankdata(squared, axis=1)
    mine = own.sum(axis=1)
    foreign = np.maximum(own.shape[1] - mine, 1)
    farther = ((ranks * own).sum(axis=1) - mine * (mine + 1) / 2) / (mine * foreign)
    shares: FloatArray = 1 - farther
    return shares
