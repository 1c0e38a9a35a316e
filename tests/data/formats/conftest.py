"""Helpers of the format tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from icone.config import DataConfig
from icone.data import Sample, Source, open_source

OpenOne = Callable[[Path], Source]
ReadOne = Callable[[Path], Sample]


@pytest.fixture
def open_one() -> OpenOne:
    """A function that opens a folder with one sample."""

    def opened(folder: Path) -> Source:
        source = open_source(str(folder), DataConfig())
        assert len(source) == 1
        return source

    return opened


@pytest.fixture
def read_one(open_one: OpenOne) -> ReadOne:
    """A function that reads the one sample of a folder."""
    return lambda folder: open_one(folder).read(0)
