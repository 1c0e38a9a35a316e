"""Checks of the settings of views; what is wrong is named by its flag."""

from __future__ import annotations

import math
from dataclasses import dataclass

from icone.errors import InputError


@dataclass(frozen=True)
class Checks:
    """Checks fields of `config`, which the command line knows as --`group`.field.

    >>> from icone.config import ImageViews
    >>> Checks("image-views", ImageViews(flip=1.5)).probability("flip")
    Traceback (most recent call last):
    icone.errors.InputError: --image-views.flip must be a probability between 0 and 1, got 1.5
    """

    group: str
    config: object

    def probability(self, *fields: str) -> None:
        """Every field lies in [0, 1]."""
        for field in fields:
            if not 0 <= getattr(self.config, field) <= 1:
                raise self._error(field, "a probability between 0 and 1")

    def strength(self, *fields: str, most: float = math.inf) -> None:
        """Every field is a finite number in [0, most]."""
        for field in fields:
            value = getattr(self.config, field)
            if not (0 <= value <= most and math.isfinite(value)):
                bound = "at least 0" if math.isinf(most) else f"between 0 and {most:g}"
                raise self._error(field, f"a number {bound}")

    def interval(self, field: str, most: float = math.inf) -> None:
        """The field is a pair with 0 < low <= high <= most."""
        low, high = getattr(self.config, field)
        if not (0 < low <= high <= most and math.isfinite(high)):
            bound = "" if math.isinf(most) else f" and at most {most:g}"
            raise self._error(field, f"two numbers, the smaller first, above 0{bound}")

    def odd(self, field: str) -> None:
        """The field is an odd positive integer."""
        value = getattr(self.config, field)
        if value < 1 or value % 2 == 0:
            raise self._error(field, "an odd number of pixels, at least 1")

    def _error(self, field: str, expected: str) -> InputError:
        value = getattr(self.config, field)
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        return InputError(f"--{self.group}.{field.replace('_', '-')} must be {expected}, got {shown}")
