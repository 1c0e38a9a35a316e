"""The whole paper in miniature, as a user runs it: every table and figure of the audit is filled."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from icone.cli import main
from icone.paper.experiments import EXPERIMENTS
from icone.paper.experiments.memory_cost import NEEDS_GPU, TABLE_N
from icone.paper.experiments.stability import CONSTANT, ONE_SIZE
from icone.paper.store import Store

pytestmark = pytest.mark.slow
AUDIT = Path(__file__).parents[2] / "docs" / "paper-audit.md"
DRAWS = ("accuracy_figures", "geometry_figures", "synthetic_figures", "experiments.memory_cost")


def audited() -> list[tuple[str, str]]:
    """Label and experiment of every item of the audit that a command reproduces."""
    rows = [line.split(" | ") for line in AUDIT.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [(row[2], name) for row in rows for name in re.findall(r"`icone paper (?:run|show) ([\w-]+)", row[3])]


def test_run_all_and_show_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ["--smoke", "--store", str(tmp_path / "store")]
    assert main(["paper", "run", "all", "--device", "cpu", "--workers", "2", *place]) == 0
    assert set(Store(tmp_path / "store").statuses().values()) == {"done", "undefined"}
    empty: list[str] = []
    for module in DRAWS:
        monkeypatch.setattr(f"icone.paper.{module}.say_empty", lambda axis, text="empty": empty.append(text))
    shown = tmp_path / "shown"
    assert main(["paper", "show", "all", "--out", str(shown), *place]) == 0
    assert set(empty) == {"undefined"}  # maps of methods that have no loss at B = 1
    assert {path.name for path in shown.iterdir()} == set(EXPERIMENTS)
    items = audited()
    assert {name for _, name in items} == set(EXPERIMENTS) - {"collapse"}  # which is ours
    for label, name in items:
        tables = {path.stem: pd.read_csv(path) for path in (shown / name).glob("*.csv") if path.stem != "runs"}
        assert tables, name
        for table in tables.values():
            check_filled(table, name)
        if label.startswith("tab:"):
            assert sum(table["paper"].notna().sum() for table in tables.values()) >= 8, label
        if label.startswith("fig:"):
            drawn = {path.suffix: path.stat().st_size for path in (shown / name).iterdir()}
            assert min(drawn[".png"], drawn[".pdf"]) > 5000, label


def check_filled(table: pd.DataFrame, name: str) -> None:
    """Every cell has a number of ours, or says why it has none; beside a printed number stands the difference."""
    reasons = ["undefined", NEEDS_GPU, ONE_SIZE, CONSTANT]
    excused = table.get("status", pd.Series("done", index=table.index)).isin(reasons)
    if name == "memory":
        assert set(table[table["status"] == NEEDS_GPU]["n"]) <= set(TABLE_N[2:])
    assert not (excused & table["ours"].notna()).any(), name
    assert table[~excused]["ours"].notna().all(), name
    printed = table[table["paper"].notna() & ~excused]
    if name != "hyperparameters":  # there a difference is a word
        assert printed["difference"].notna().all(), name
