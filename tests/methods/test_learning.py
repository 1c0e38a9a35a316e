"""They learn: every method beats its untrained encoder by its stated margin, and small batches hurt whom they should.

It is the comparison of benchmarks/baselines.py, with its three seeds.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from baselines import (
    CONTENDERS,
    LEAST_LOSS,
    MOST_LOSS,
    SEEDS,
    Comparison,
    compare,
    entries_of,
    learning_table,
    small_batch_table,
)  # fmt: skip
from icone.errors import InputError
from icone.methods import METHODS
from learning import Entry, Outcome, Record, Terms, measure_all, saved_outcomes, settings_of, spread


@pytest.fixture(scope="module")
def comparisons() -> dict[str, Comparison]:
    found = measure_all(Terms(), entries_of(CONTENDERS, SEEDS), workers=os.cpu_count() or 1)
    return {c.contender.name: c for c in compare(found, CONTENDERS, SEEDS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [contender.name for contender in CONTENDERS])
def test_every_seed_gains_the_stated_margin(name: str, comparisons: dict[str, Comparison]) -> None:
    comparison, margin = comparisons[name], comparisons[name].contender.margin
    assert min(outcome.gain() for outcome in comparison.liked) >= margin > 0


@pytest.mark.slow
def test_small_batches_hurt_the_methods_that_live_on_the_batch_and_icone_less(
    comparisons: dict[str, Comparison],
) -> None:
    lost = {name: float(np.mean(c.losses(c.liked))) for name, c in comparisons.items()}
    batch_bound = ["simclr", "swav", "byol", "vicreg", "supcon"]
    assert all(comparisons[name].undefined for name in batch_bound)
    assert min(lost[name] for name in batch_bound) >= LEAST_LOSS
    assert np.mean(comparisons["icone"].losses(comparisons["icone"].large)) <= MOST_LOSS
    assert lost["icone"] < min(lost[name] for name in batch_bound)


def test_every_method_takes_part() -> None:
    assert {contender.method for contender in CONTENDERS} == set(METHODS)
    assert [c.name for c in CONTENDERS[:4]] == ["icone", "icone, VCReg", "icone, SIGReg", "simclr"]
    assert settings_of(Terms(), CONTENDERS[0].entry(0, 1)) == vars(Terms())
    mae = next(contender for contender in CONTENDERS if contender.method == "mae")
    assert settings_of(Terms(), mae.entry(0, 1))["encoder"] == "test_vit"  # no tokens in the network for volumes
    assert CONTENDERS[1].options == ("diversity=variance_covariance", "hidden=512")


def invented(entry: Entry) -> Outcome:
    """Figures that depend on batch size and seed, or the refusal of a batch that is too small."""
    if entry.batch_size < METHODS[entry.method].min_batch_size:
        return Outcome(entry, undefined=f"{entry.method} cannot")
    accuracy = 50.0 + entry.batch_size + entry.seed
    trained = {"linear_probe": accuracy, "knn_5": accuracy - 10, "rankme": 9.0}
    return Outcome(entry, trained, {name: value - 5 for name, value in trained.items()}, seconds=1.0)


def test_tables_tell_gains_losses_and_what_is_undefined() -> None:
    found = {entry: invented(entry) for entry in entries_of(CONTENDERS, SEEDS)}
    comparisons = compare(found, CONTENDERS, SEEDS)
    learning = learning_table(comparisons).splitlines()
    small = small_batch_table(comparisons).splitlines()
    assert len(learning) == 2 + len(CONTENDERS)
    simclr = next(line for line in learning if line.startswith("| simclr"))
    cells = [cell.strip() for cell in simclr.split("|")]
    assert cells[2:5] == ["16", "62.0±1.0 / 52.0±1.0", "67.0±1.0 / 57.0±1.0"]
    assert cells[5:7] == ["5.0±0.0", "5.0"]  # mean, and less twice the spread
    icone = next(line for line in small if line.startswith("| icone "))
    cells = [cell.strip() for cell in icone.split("|")]
    assert cells[2:5] == ["4", "55.0±1.0 / 45.0±1.0", "67.0±1.0 / 57.0±1.0"]
    assert cells[5:9] == ["1", "52.0±1.0 / 42.0±1.0", "3.0±0.0 / 3.0±0.0", "15.0±0.0 / 15.0±0.0"]
    assert "- undefined: simclr cannot" in small
    assert not any("icone cannot" in line for line in small)


def test_saved_runs_are_not_repeated_and_other_terms_are_refused(tmp_path: Path) -> None:
    entries = entries_of(CONTENDERS[:1], seeds=1)
    outcomes = [invented(entry) for entry in entries]
    record = Record(tmp_path, "baselines", Terms())
    record.runs(outcomes)
    record.tables("the tables", outcomes)
    (text,), (file,) = tmp_path.glob("baselines-*.md"), tmp_path.glob("baselines-*.json")
    assert text.read_text().endswith("the tables")
    known = saved_outcomes(file, Terms())
    assert measure_all(Terms(), entries, known=known) == dict(zip(entries, outcomes, strict=True))
    with pytest.raises(InputError, match="other terms"):
        saved_outcomes(file, Terms(epochs=1))


def test_spread_is_that_of_a_sample() -> None:
    assert spread([1.0, 2.0, 3.0]) == "2.0±1.0"
    assert spread([4.0]) == "4.0"
