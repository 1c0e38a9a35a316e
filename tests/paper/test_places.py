"""A file of runs tells nothing about the machine that wrote it, and is worth as much on another."""

from __future__ import annotations

import platform
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icone.cli import main
from icone.paper.commands import PaperRun
from icone.paper.engines.events import Observe, Task
from icone.paper.execute import ExecutionSettings, execute_one
from icone.paper.experiments import EXPERIMENTS
from icone.paper.options import Options
from icone.paper.outcome import Outcome
from icone.paper.places import request_without_places, run_without_places
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.transfer import export_runs, import_runs

MakeSpec = Callable[..., RunSpec]
HOST = "node-17-of-the-lab"
EXPERIMENT = "batch-size-2d"
SMALL = ["--methods", "icone", "--batch-sizes", "4", "--seeds", "1", "--epochs", "1", "--encoder", "test_resnet"]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with a blank in its name: images of two classes, and a table with their labels and groups."""
    lab, rng, rows = tmp_path / "our lab", np.random.default_rng(0), ["path,label,group"]
    for name in ("round", "long"):
        (lab / "cells" / name).mkdir(parents=True)
        for number in range(12):
            file = lab / "cells" / name / f"{number}.png"
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(file)
            rows.append(f"{name}/{number}.png,{name},{number // 2}")
    (lab / "labels.csv").write_text("\n".join(rows) + "\n")
    return lab


@pytest.fixture
def here(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with one run on that data, trained and measured."""
    monkeypatch.setattr(platform, "node", lambda: HOST)
    store = Store(tmp_path / "here").create()
    options = Options(
        datasets=(str(lab / "cells"),), labels=lab / "labels.csv", data_root=lab, methods=("icone",), batch_sizes=(4,),
        seeds=1, epochs=1, encoder="test_resnet", size=32,
    )  # fmt: skip
    (cell,) = EXPERIMENTS[EXPERIMENT].cells(options)
    outcome = execute_one(cell.spec, store.run_folder(cell.spec.key), ExecutionSettings(device="cpu", threads=1))
    assert outcome.status == "done", outcome.reason
    store.record(cell.spec, outcome)
    store.remember(EXPERIMENT, options.to_json())
    return store


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_no_folder_and_no_host_is_in_the_file(here: Store, lab: Path, tmp_path: Path) -> None:
    (record,) = here.records()
    outcome = here.outcome(record)
    assert outcome.host == HOST
    assert f"the column group of {lab}/labels.csv holds groups: no split parts them" in outcome.notes
    export_runs(here, tmp_path / "runs.zip", features=True)
    content = members(tmp_path / "runs.zip")
    assert content.keys() == {
        "about.json", "runs.jsonl", f"requests/{EXPERIMENT}.json", f"features/{record.key}/features.npz",
    }  # fmt: skip
    for told in content.values():
        assert str(tmp_path).encode() not in told
        assert b"our lab" not in told
        assert HOST.encode() not in told
    for there in (Store(tmp_path / "there"), Store(tmp_path / "and on")):
        assert [count.added for count in import_runs(there, [tmp_path / "runs.zip"]).values()] == [1]
        assert there.records() == [record]  # the same key
        export_runs(there, tmp_path / "again.zip", features=True)
        assert members(tmp_path / "again.zip")["runs.jsonl"] == content["runs.jsonl"]
        (tmp_path / "again.zip").replace(tmp_path / "runs.zip")


def test_where_the_data_lies_elsewhere_the_runs_are_found(
    here: Store, lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is run again, tables are the same, and in a folder that holds the data `show` needs no options."""
    executed: list[Task] = []

    class Counting:
        def learn(self, *_: object) -> None:
            pass

        def run(self, tasks: Sequence[Task], observe: Observe, limit: object) -> None:
            executed.extend(tasks)

    monkeypatch.setattr(PaperRun, "_engine", lambda self, store: Counting())
    file, there = str(tmp_path / "runs.zip"), str(tmp_path / "there")
    assert main(["paper", "export", file, "--store", str(here.folder)]) == 0
    assert main(["paper", "show", EXPERIMENT, "--store", str(here.folder)]) == 0
    moved = shutil.move(lab, tmp_path / "elsewhere")
    assert main(["paper", "import", file, "--store", str(tmp_path / "without")]) == 0
    assert "there is no data set './cells'" in " ".join(capsys.readouterr().out.split())
    monkeypatch.chdir(moved)
    assert main(["paper", "import", file, "--store", there]) == 0
    assert main(["paper", "show", EXPERIMENT, "--store", there]) == 0
    shown = [store / "figures" / EXPERIMENT for store in (here.folder, Path(there))]
    names = {path.name for path in shown[0].glob("*.csv")}
    assert names > {"runs.csv"}
    for name in names - {"runs.csv"}:
        assert (shown[0] / name).read_bytes() == (shown[1] / name).read_bytes()
    before, after = (pd.read_csv(folder / "runs.csv").drop(columns="notes") for folder in shown)
    pd.testing.assert_frame_equal(before, after)
    assert after["dataset"].tolist() == ["cells"]
    monkeypatch.chdir(tmp_path)
    words = ["--datasets", "elsewhere/cells", "--labels", "elsewhere/labels.csv", *SMALL, "--size", "32"]
    assert main(["paper", "run", EXPERIMENT, *words, "--device", "cpu", "--store", there]) == 0
    assert "1 done" in capsys.readouterr().out
    assert executed == []


def test_a_run_that_a_path_is_part_of_is_left_out(store: Store, spec: MakeSpec, tmp_path: Path) -> None:
    store.record(spec(0), Outcome(status="done"))
    store.record(spec(1, weights="/models/first"), Outcome(status="done"))
    store.record(spec(2, source=str(tmp_path / "gone")), Outcome(status="done"))  # its path stands for its contents
    store.record(spec(3, weights="timm"), Outcome(status="done"))
    assert export_runs(store, tmp_path / "runs.zip").runs == 2
    told = members(tmp_path / "runs.zip")["runs.jsonl"]
    assert b"models" not in told
    assert b"gone" not in told
    (note,) = store.notes
    assert note.startswith("left out (2 runs), because a path of this machine is part of the key, such as /")
    (count,) = import_runs(tmp_path / "there", [tmp_path / "runs.zip"]).values()
    assert (count.added, count.others) == (2, 0)


@pytest.mark.parametrize(
    ("note", "told"),
    [
        ("--labels='/data/my scans/a.csv' reads them", "--labels='a.csv' reads them"),
        ("1 row of /data/my scans/t.csv, such as /mnt/data/my scans", "1 row of t.csv, such as my scans"),
        ("read /mnt/disk/x.h5:/raw and ~/a/b.png, ~me/a/c.png", "read x.h5:/raw and b.png, c.png"),
        ("half (1/2) of train/1.png, see https://example.org/a/b", None),
    ],
)
def test_sentences_lose_their_folders(spec: MakeSpec, note: str, told: str | None) -> None:
    run = spec(source="/data/my scans/cells", data_root="/data")
    content = {"spec": run.to_json(), "outcome": Outcome(status="undefined", reason=note, notes=[note]).to_json()}
    outcome = run_without_places(content)["outcome"]
    assert (outcome["reason"], outcome["notes"]) == (told or note, [told or note])


def test_a_request_keeps_what_is_no_place() -> None:
    options = Options(
        datasets=("bloodmnist@28", "/data/bloodmnist", "data/cells"), data_root=Path("data"), seeds=2,
        natural_images=Path("~/pictures"), labels=Path("../labels.csv"), options=("simclr.temperature=0.2",),
    )  # fmt: skip
    plain = {**options.to_json(), "datasets": list(options.datasets)}
    told = request_without_places(plain)
    assert {name: told[name] for name in told if told[name] != plain[name]} == {
        "datasets": ["bloodmnist@28", "./bloodmnist", "data/cells"],  # ./ makes it a folder, and no set of MedMNIST
        "data_root": None,
        "natural_images": "./pictures",
        "labels": "./labels.csv",
    }
    assert request_without_places(told) == told
