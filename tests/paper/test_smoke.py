"""The whole paper in miniature, as a user runs it: every printed number gets one of ours and a difference."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from icone.cli import main
from icone.paper.experiments import EXPERIMENTS
from icone.paper.experiments.memory_cost import TABLE_N
from icone.paper.store import Store

pytestmark = pytest.mark.slow
PRINTED = {"supervised", "regulariser", "views", "init-scale", "knn-3d", "memory", "synthetic", "hyperparameters"}


def test_run_all_and_show_all(tmp_path: Path) -> None:
    place = ["--smoke", "--store", str(tmp_path / "store")]
    assert main(["paper", "run", "all", "--device", "cpu", "--workers", "2", *place]) == 0
    assert set(Store(tmp_path / "store").statuses().values()) == {"done", "undefined"}
    assert main(["paper", "show", "all", "--out", str(tmp_path / "shown"), *place]) == 0
    shown = {path.name for path in (tmp_path / "shown").iterdir()}
    assert shown == set(EXPERIMENTS)
    printed = set()
    for path in sorted((tmp_path / "shown").glob("*/*.csv")):
        table = pd.read_csv(path)
        if path.name == "runs.csv":
            continue
        assert table["ours"].notna().any(), path
        here = table[table["paper"].notna()]
        if len(here):
            printed.add(path.parent.name)
        here = here[here["status"] != "undefined"] if "status" in here else here
        if path.stem == "memory":  # more samples take a GPU
            here = here[here["n"].isin(TABLE_N[:2])]
        assert here["ours"].notna().all(), path
        if path.parent.name != "hyperparameters":  # there a difference is a word
            assert here["difference"].notna().all(), path
    assert printed == PRINTED
