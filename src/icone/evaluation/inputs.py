"""Checked arrays of what a caller hands over."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from icone.errors import InputError

FloatArray = npt.NDArray[np.float64]
Features = npt.ArrayLike | Tensor


def finite_array(x: Features, name: str = "features") -> FloatArray:
    """A float64 array of an array, a sequence or a tensor; NaN and infinity are refused."""
    if isinstance(x, Tensor):
        x = x.detach().cpu().double().numpy()
    array = np.asarray(x, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = np.unique(np.nonzero(~np.isfinite(array))[0])
        raise InputError(
            f"the {name} hold NaN or infinite values in {len(bad)} of {len(array)} rows, "
            f"first in row {bad[0]}; leave those samples out"
        )
    return array
