"""Runs are named by what determines them; a store loses nothing and counts nothing twice."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icone.data.identity import file_digest
from icone.errors import InputError
from icone.paper.engines.events import Task
from icone.paper.experiments import EXPERIMENTS
from icone.paper.listing import experiment_lines
from icone.paper.options import Options
from icone.paper.outcome import Outcome, Point
from icone.paper.results import COLUMNS
from icone.paper.show import remembered_options
from icone.paper.spec import RunSpec, spec_from_json
from icone.paper.store import Store
from icone.paper.sweep import _missing

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


def test_another_version_of_the_recipe_gives_other_runs(spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spec().key
    monkeypatch.setattr("icone.paper.spec.RECIPE_VERSION", 10_000)
    assert spec().key != before


def test_an_option_that_came_later_is_part_of_a_name_only_where_it_is_used(spec: MakeSpec) -> None:
    options = spec().identity()["options"]
    assert "center_weight" not in options
    assert "view_weight" in options
    assert spec(options=("center_weight=0",)).key == spec().key
    assert spec(options=("center_weight=0.1",)).key != spec().key


def _classes(folder: Path) -> Path:
    for label, value in (("a", 0), ("b", 255)):
        (folder / label).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(np.full((8, 8), value, np.uint8)).save(folder / label / f"{i}.bmp")
    return folder


def _repaint(path: Path) -> None:
    """Other pixels; the name, the size and even the time of the file stay."""
    before = path.stat()
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(path)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def test_the_bytes_of_data_and_labels_count(tmp_path: Path, spec: MakeSpec) -> None:
    folder = _classes(tmp_path / "data")
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\n0,a\n")
    zarr = tmp_path / "array.zarr"
    zarr.mkdir()
    (zarr / ".zarray").write_text("{}")

    def keys() -> list[str]:
        return [spec(source=str(folder), labels=labels).key, spec(source=str(folder)).key, spec(source=str(zarr)).key]

    first = keys()
    assert keys() == first
    (folder / ".DS_Store").touch()  # what no reader sees
    (folder / "a" / "loop").symlink_to(folder)
    assert keys() == first
    _repaint(folder / "a" / "1.bmp")
    second = keys()
    assert [a == b for a, b in zip(first, second, strict=True)] == [False, False, True]
    labels.write_text("id,label\n0,b\n")
    (zarr / ".zarray").write_text("[]")
    assert [a == b for a, b in zip(second, keys(), strict=True)] == [False, True, False]


def test_many_runs_read_their_data_once_and_the_next_sweep_sees_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _classes(tmp_path / "data")
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return file_digest(path)

    monkeypatch.setattr("icone.paper.contents.file_digest", counted)
    options = Options(datasets=(str(folder),))
    first = {cell.spec.key for cell in EXPERIMENTS["batch-size-2d"].grid(options)}
    assert len(first) == 8 * 7 * 5
    assert sorted(read) == sorted(folder.rglob("*.bmp"))
    assert {cell.spec.key for cell in EXPERIMENTS["batch-size-2d"].grid(options)} == first
    _repaint(folder / "b" / "0.bmp")
    assert {cell.spec.key for cell in EXPERIMENTS["batch-size-2d"].grid(options)}.isdisjoint(first)


def test_a_run_keeps_its_name_where_its_data_is_not(tmp_path: Path, spec: MakeSpec) -> None:
    there = spec(source=str(_classes(tmp_path / "data")))
    key, plain = there.key, json.loads(json.dumps(there.to_json()))
    shutil.rmtree(tmp_path / "data")
    assert spec_from_json(plain).key == key


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
        "import sys, time; from icone.paper.store import Store\n"
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


STRAYS = ["{key}.1 (copy).json", "{key}.1.json~", "{key}.1.bak", "{key}.x.json", "notes.txt", ".DS_Store", "folder/"]


@pytest.mark.parametrize("name", [*STRAYS, "{key}.2.json/", ".{key}.9.json.tmp"])
def test_what_no_run_wrote_is_passed_over_with_a_note(store: Store, spec: MakeSpec, name: str) -> None:
    store.record(spec(), Outcome(status="done", metrics={"linear_probe": 0.5}))
    stray = store.outcomes / name.format(key=spec().key)
    if name.endswith("/"):
        stray.mkdir()
    else:
        stray.write_text("{}")
    assert store.statuses() == {spec().key: "done"}
    assert store.last_record(spec().key) == (spec().key, 1)
    assert any(stray.name in note for note in store.notes) == (not stray.name.startswith("."))
    store.record(spec(), Outcome(status="failed", reason="again"))  # nothing is in the way
    assert store.statuses() == {spec().key: "failed"}


def _damages(good: str) -> dict[str, str | bytes]:
    content = json.loads(good)
    outcome, config = content["outcome"], content["spec"]["config"]
    return {
        "cut": good[: len(good) // 2],
        "empty": "",
        "list": "[]",
        "no outcome": json.dumps({"spec": content["spec"]}),
        "metrics": json.dumps({**content, "outcome": {**outcome, "metrics": [1, 2]}}),
        "value": json.dumps({**content, "outcome": {**outcome, "metrics": {"linear_probe": "high"}}}),
        "trace": json.dumps({**content, "outcome": {**outcome, "trace": [[1, "knn_5"]]}}),
        "status": json.dumps({**content, "outcome": {**outcome, "status": "perhaps"}}),
        "seconds": json.dumps({**content, "outcome": {**outcome, "seconds": "long"}}),
        "config": json.dumps({**content, "spec": {"config": {**config, "batch_size": None}}}),
        "bytes": b"\xff\xfe\x00",
    }


@pytest.mark.parametrize("damage", list(_damages('{"spec": {"config": {}}, "outcome": {}}')))
def test_a_damaged_outcome_is_named_and_its_run_is_done_again(store: Store, spec: MakeSpec, damage: str) -> None:
    store.record(spec(0), Outcome(status="done", metrics={"linear_probe": 0.5}))
    store.record(spec(1), Outcome(status="done", metrics={"linear_probe": 0.7}))
    path = store.outcomes / f"{spec(1).key}.1.json"
    broken = _damages(path.read_text())[damage]
    path.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    assert store.statuses() == {spec(0).key: "done"}
    assert any(path.name in note and "done again" in note for note in store.notes)
    tasks, before = _missing({s.key: s for s in (spec(0), spec(1))}, store, retry_failed=False)
    assert tasks == [Task(spec(1), after=1)]
    assert before["done"] == 1
    store.record(spec(1), Outcome(status="done", metrics={"linear_probe": 0.9}))
    assert sorted(store.results()["value"]) == [0.5, 0.9]


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "flipped", "folder"])
def test_a_damaged_table_is_made_again(store: Store, spec: MakeSpec, damage: str) -> None:
    for seed in range(3):
        store.record(spec(seed), Outcome(status="done", metrics={"linear_probe": 0.1 * seed}))
    table = store.results()
    whole = store.results_file.read_bytes()
    content = {
        "cut": whole[:-100],
        "text": b"not Parquet",
        "empty": b"",
        "flipped": whole[:200] + b"\0" * 300 + whole[500:],
    }
    if damage == "folder":
        store.results_file.unlink()
        store.results_file.mkdir()
    else:
        store.results_file.write_bytes(content[damage])
    pd.testing.assert_frame_equal(_by_run(store.results()), _by_run(table))
    assert any("results.parquet" in note for note in store.notes)


def _by_run(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({"run": str, "record": str}).sort_values("run", ignore_index=True)


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A place of which the test may be made to have no rights but reading, for a superuser too."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        user = os.geteuid()
        try:
            yield Path(name)
        finally:
            if user == 0:
                os.seteuid(0)
            for path in [Path(name), *Path(name).rglob("*")]:
                path.chmod(0o755)


def test_a_read_only_store_can_be_read(nobody: Path, spec: MakeSpec) -> None:
    store = Store(nobody / "store").create()
    store.record(spec(0), Outcome(status="done", metrics={"linear_probe": 0.5}))
    store.results()
    store.record(spec(1), Outcome(status="failed", reason="no luck"))
    experiment_lines(Options(smoke=True), store)  # reads the package's own files, which nobody may not be allowed to
    files = sorted(store.folder.rglob("*"))
    for path in [store.folder, *files]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.seteuid(65534)
    assert not store.is_writable
    assert store.statuses() == {spec(0).key: "done", spec(1).key: "failed"}
    lines = {line.name: line for line in experiment_lines(Options(smoke=True), store).lines}
    assert lines["geometry"].done == 0
    assert sorted(store.folder.rglob("*")) == files
    with pytest.raises(InputError, match=r"no permission to write.*choose another store="):
        store.create()


def test_a_damaged_request_is_passed_over(store: Store) -> None:
    store.remember("geometry", Options(seeds=2).to_json())
    assert remembered_options(EXPERIMENTS["geometry"], Options(), store).seeds == 2
    for text in ("{", "7", '{"seeds": "two"}', '{"seeds": 0}'):
        (store.folder / "requests" / "geometry.json").write_text(text)
        store.notes.clear()
        assert remembered_options(EXPERIMENTS["geometry"], Options(), store) == Options()
        assert any("geometry" in note for note in store.notes), text


def test_missing_stores_are_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store at"):
        Store(tmp_path / "nowhere").results()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose another store="):
        Store(tmp_path / "file" / "store").create()


def test_ten_thousand_finished_runs_list_in_about_a_second(store: Store) -> None:
    outcome = Outcome(status="done", metrics={f"metric_{i}": i / 7 for i in range(15)}, seconds=9.0).to_json()
    by_key = {cell.spec.key: cell for cell in EXPERIMENTS["dataset-size"].grid(Options(seeds=9))}
    cells = list(by_key.values())[:10_000]
    assert len(cells) == 10_000
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
    lines = {line.name: line for line in experiment_lines(Options(), store).lines}  # with the grids of the whole paper
    assert time.process_time() - began < 10  # about 4.5, with the estimates of 17,000 runs
    assert lines["dataset-size"].done > 5000


def test_sweeps_that_start_at_the_same_moment_do_not_take_each_others_files(store: Store) -> None:
    def remember(number: int) -> None:
        for _ in range(50):
            Store(store.folder).remember("geometry", {"number": number})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(remember, range(4)))
    assert store.remembered("geometry") in [{"number": number} for number in range(4)]
