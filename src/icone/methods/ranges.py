"""The numbers that an option of a method may have: types for the annotations of its constructor."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple


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


MOST = 10_000_000
Count = Annotated[int, Range(1, MOST, f"a whole number from 1 to {MOST:,}")]
"""The annotation of an option that counts something."""
Width = Annotated[int, Range(0, MOST, f"a whole number from 0 (no projection head) to {MOST:,}")]
Weight = Annotated[float, Range(0, math.inf, "0 or more, and finite")]
"""The annotation of an option that weighs a term."""
Positive = Annotated[float, Range(0, math.inf, "above 0, and finite", above=True)]
"""The annotation of an option that may not be 0, such as a temperature."""
Share = Annotated[float, Range(0, 1, "between 0 and 1")]
"""The annotation of an option that is a share."""
