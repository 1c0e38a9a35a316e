"""What an option of a method may be: types for the annotations of its constructor, with the text of `icone methods`.

The annotation of an option is its one declaration: its type, its `Range` or `Names`, and a sentence.

>>> def __init__(self, encoder, setting, *, gamma: Annotated[Share, "Share of the new batch."] = 0.9): ...
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, NamedTuple

from icone.nn.heads import HEAD_NORMS


class Range(NamedTuple):
    """The numbers that an option may have, and how a message names them."""

    low: float
    high: float
    words: str
    above: bool = False
    """Whether `low` itself is too small."""

    def holds(self, value: float) -> bool:
        """Whether a number lies in the range; one that is not finite never does."""
        return math.isfinite(value) and self.low <= value <= self.high and not (self.above and value == self.low)


class Names(NamedTuple):
    """The names that an option may have; whoever looks a name up refuses all others."""

    known: Collection[str]

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.known)}"


MOST = 10_000_000
Count = Annotated[int, Range(1, MOST, f"a whole number from 1 to {MOST:,}")]
"""The annotation of an option that counts something."""
Width = Annotated[int, Range(0, MOST, f"a whole number from 0 (no projection head) to {MOST:,}")]
Weight = Annotated[float, Range(0, math.inf, "a finite number of 0 or more")]
"""The annotation of an option that weighs a term."""
Positive = Annotated[float, Range(0, math.inf, "a finite number above 0", above=True)]
"""The annotation of an option that may not be 0, such as a temperature."""
Share = Annotated[float, Range(0, 1, "a number between 0 and 1")]
"""The annotation of an option that is a share."""

# Options that several methods have.
Temperature = Annotated[Positive, "Divides the cosines in the softmax; smaller: similar negatives weigh more."]
Momentum = Annotated[Share, "What the EMA copy of the network keeps of itself in a step."]
HeadHidden = Annotated[Count, "Width of the hidden layer of the projection head."]
HeadOut = Annotated[Count, "Size of the embeddings that the loss compares."]
HeadNorm = Annotated[str, Names(HEAD_NORMS), "Normalisation in the projection head; layer and none need no batch."]
Normalisation = Annotated[
    str, Names(("anchor", "pair")), "By what the diversity loss is divided: the number of anchors, or of their pairs."
]
ViewWeight = Annotated[Weight, "Weight of the agreement between views of one sample."]
AnchorWeight = Annotated[Weight, "Weight of the pull of views to their anchors."]
DiversityWeight = Annotated[Weight, "Weight of the diversity loss, which keeps anchors apart."]
InitStd = Annotated[Positive, "Standard deviation of the values of anchors at the start."]
StartAt = Annotated[
    str, Names(("features", "random")), "Where anchors start: at the embeddings of the untrained network, or anywhere."
]
MaskRatio = Annotated[Share, "Share of a sample that is hidden."]
IntensityViews = Annotated[bool, "Change intensities and colours of views too, besides crops, flips and turns."]
