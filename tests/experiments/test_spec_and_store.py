"""Runs are named by what determines them; a store loses nothing and counts nothing twice."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from icone.errors import InputError
from icone.experiments.grids import dataset_sizes
from icone.experiments.listing import experiment_lines
from icone.experiments.options import Options
from icone.experiments.outcome import Outcome, Point
from icone.experiments.results import COLUMNS
from icone.experiments.spec import RunSpec, spec_from_json
from icone.experiments.store import Store

MakeSpec = Callable[..., RunSpec]


def test_the_name_of_a_run_depends_on_what_determines_it(spec: MakeSpec) -> None:
    one = spec()
    elsewhere = {"device": "cpu", "workers": 7, "memory_gb": 1.0, "log": ("tensorboard",), "data_root": "/somewhere"}
    assert spec(**elsewhere).key == one.key
    for change in ({"seed": 1}, {"options": ("init_std=0.1",)}, {"lr": 2e-4}, {"split_seed": 1}, {"precision": "fp32"}):
        assert spec(**change).key != one.key, change
    assert spec(options=("out=128",)).key == one.key  # the default: were it another, the run would be another
    assert spec(recipe="paper").key == spec(recipe="paper", options=("out=0",)).key
    assert dataclasses.replace(one, geometry_instances=9).key != one.key
    assert spec_from_json(json.loads(json.dumps(one.to_json()))).key == one.key


def test_folders_count_by_what_is_in_them(tmp_path: Path, spec: MakeSpec) -> None:
    for place in ("here", "there", "more"):
        (tmp_path / place / "data" / "class").mkdir(parents=True)
        (tmp_path / place / "data" / "class" / "a.png").write_bytes(b"an image")
        (tmp_path / place / "labels.csv").write_text("a.png,0\n")
    (tmp_path / "more" / "data" / "class" / "b.png").write_bytes(b"another")
    here, there, more = (
        spec(source=str(tmp_path / place / "data"), labels=tmp_path / place / "labels.csv").key
        for place in ("here", "there", "more")
    )
    assert here == there != more
    assert spec(source=str(tmp_path / "here" / "data")).key != here  # without labels


def test_the_last_attempt_counts_and_merging_is_incremental(store: Store, spec: MakeSpec) -> None:
    first, second = spec(0), spec(1)
    store.record(first, Outcome(status="failed", reason="the disk was full"))
    store.record(second, Outcome(status="done", metrics={"linear_probe": 0.5, "odd": float("nan")}))
    table = store.results()
    assert dict(zip(table["run"], table["status"], strict=True)) == {first.key: "failed", second.key: "done"}
    assert table.loc[table["run"] == first.key, "metric"].isna().all()
    store.record(first, Outcome(status="done", metrics={"linear_probe": 0.7}, trace=[Point(3, "knn_5", 0.1)]))
    (store.outcomes / f"{second.key}.1.json").write_text("not read again, because it is merged")
    table = store.results()
    assert sorted(table["value"]) == [0.1, 0.5, 0.7]
    assert table.loc[table["epoch"] == 3, "metric"].tolist() == ["knn_5"]
    assert store.last_record(first.key) == (first.key, 2)
    plain = pd.read_parquet(store.results_file)  # what other programs see
    assert list(plain.columns) == list(COLUMNS)
    assert len(plain) == 3


def test_a_claim_is_held_by_one_process_and_ends_with_it(store: Store) -> None:
    code = (
        "import sys, time; from icone.experiments.store import Store\n"
        f"with Store({str(store.folder)!r}).claim('x') as mine: print(mine, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with store.claim("x") as mine:
            assert not mine
        other.kill()
    with store.claim("x") as mine:
        assert mine


def test_broken_files_and_missing_stores_are_named(store: Store, tmp_path: Path) -> None:
    (store.outcomes / "abc.1.json").write_text("{")
    with pytest.raises(InputError, match=r"abc\.1\.json.*delete it"):
        store.results()
    with pytest.raises(InputError, match="no store at"):
        Store(tmp_path / "nowhere").results()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose another --store"):
        Store(tmp_path / "file" / "store").create()


def test_ten_thousand_finished_runs_list_in_about_a_second(store: Store) -> None:
    outcome = Outcome(status="done", metrics={f"metric_{i}": i / 7 for i in range(15)}, seconds=9.0).to_json()
    cells = dataset_sizes(Options(seeds=7))[:10_000]
    assert len({cell.spec.key for cell in cells}) == 10_000
    for cell in cells:
        content = json.dumps({"spec": cell.spec.to_json(), "outcome": outcome})
        (store.outcomes / f"{cell.spec.key}.1.json").write_text(content)
    store.results()
    began = time.process_time()  # not the clock: the machine may be busy
    statuses = store.statuses()
    seconds = time.process_time() - began
    assert len(statuses) == 10_000
    assert seconds < 2
    began = time.process_time()
    lines = {line.name: line for line in experiment_lines(Options(), store)}  # with the grids of the whole paper
    assert time.process_time() - began < 5
    assert lines["dataset-size"].done > 5000


def test_sweeps_that_start_at_the_same_moment_do_not_take_each_others_files(store: Store) -> None:
    def remember(number: int) -> None:
        for _ in range(50):
            Store(store.folder).remember("geometry", {"number": number})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(remember, range(4)))
    assert store.remembered("geometry") in [{"number": number} for number in range(4)]
