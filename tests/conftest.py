"""Fixtures that several test folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, from ICONE_TEST_DATA or the default place; skips where there is none."""
    folder = Path(os.environ.get("ICONE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder} (set ICONE_TEST_DATA)")
    return folder
