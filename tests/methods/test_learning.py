"""They learn: every method beats its untrained encoder by its stated margin, and small batches hurt whom they should.

It is the comparison of benchmarks/rivals.py, with its three seeds; about half an hour on one core.
"""

from __future__ import annotations

import os

import pytest

from icone.methods import METHODS
from learning import Terms
from rivals import CONTENDERS, Comparison, compare

pytestmark = pytest.mark.slow
NAMES = [contender.name for contender in CONTENDERS]


@pytest.fixture(scope="module")
def comparisons() -> dict[str, Comparison]:
    workers = os.cpu_count() or 1
    return {c.contender.name: c for c in compare(Terms(), workers=workers)}


def test_every_method_takes_part() -> None:
    assert {contender.method for contender in CONTENDERS} == set(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_gains_the_stated_margin(name: str, comparisons: dict[str, Comparison]) -> None:
    comparison = comparisons[name]
    assert min(outcome.gain() for outcome in comparison.liked) >= comparison.contender.margin > 0
