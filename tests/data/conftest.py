"""Fixtures of the data tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import numpy.typing as npt
import pytest

WriteNifti = Callable[..., None]


@pytest.fixture
def write_nifti() -> WriteNifti:
    """A function that writes an array as a NIfTI file, with an affine and a (slope, intercept) where given."""
    make: Any = nibabel.Nifti1Image

    def write(
        path: Path, array: npt.NDArray[Any], affine: Any = None, scaling: tuple[float, float] | None = None
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        image = make(array, np.eye(4) if affine is None else affine)
        if scaling is not None:
            image.header.set_slope_inter(*scaling)
        nibabel.save(image, path)

    return write
