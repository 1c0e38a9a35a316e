"""Finished runs are carried in one file: what arrives is what was sent, once, and nothing else."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import icone.paper
from icone.cli import main
from icone.errors import InputError
from icone.paper.commands import PaperRun
from icone.paper.engines.events import Event, Observe, Task
from icone.paper.experiments import EXPERIMENTS
from icone.paper.options import Options
from icone.paper.outcome import Outcome, Point
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.transfer import Imported, export_runs, import_runs

MakeSpec = Callable[..., RunSpec]


def done(value: float = 0.5) -> Outcome:
    return Outcome(status="done", metrics={"linear_probe": value}, trace=[Point(3, "knn_5", 0.25)], seconds=2.0)


@pytest.fixture
def sent(store: Store, spec: MakeSpec, tmp_path: Path) -> Path:
    """Runs 0 (done) and 1 (undefined), and the features of the first; run 2 has failed, and stays."""
    store.record(spec(0), Outcome(status="failed", reason="the disk was full"))
    store.record(spec(0), done())
    store.record(spec(1), Outcome(status="undefined", reason="cannot"))
    store.record(spec(2), Outcome(status="failed", reason="no luck"))
    folder = store.run_folder(spec(0).key)
    folder.mkdir()
    np.savez(folder / "features.npz", features=np.ones((3, 2)), labels=np.array(list("abc")))
    exported = export_runs(store, tmp_path / "sent.zip", features=True)
    assert (exported.runs, exported.features, exported.failed) == (2, 1, 1)
    return tmp_path / "sent.zip"


def test_what_arrives_is_what_was_sent_and_once(sent: Path, store: Store, spec: MakeSpec, tmp_path: Path) -> None:
    there = Store(tmp_path / "there")
    counts = icone.paper.import_runs(there, [sent, sent, store.folder])
    assert counts[str(sent)] == Imported(known=2)  # the second time
    assert counts[str(store.folder)] == Imported(known=2, failed=1)
    assert there.statuses() == {spec(0).key: "done", spec(1).key: "undefined"}
    assert sorted(record.attempt for record in there.records()) == [1, 1]
    first, record = there.last_record(spec(0).key), store.last_record(spec(0).key)
    assert first is not None
    assert record is not None
    assert there.outcome(first) == store.outcome(record) == done()
    with np.load(there.run_folder(spec(0).key) / "features.npz") as content:
        assert content["labels"].tolist() == ["a", "b", "c"]
    again = tmp_path / "again.zip"
    assert icone.paper.export_runs(there.folder, again).runs == 2
    assert again.stat().st_size < 5000


def test_runs_that_failed_here_are_replaced_and_those_that_ended_stay(
    sent: Path, spec: MakeSpec, tmp_path: Path
) -> None:
    here = Store(tmp_path / "here").create()
    here.record(spec(0), Outcome(status="failed", reason="no luck"))
    here.record(spec(1), done(0.75))
    assert import_runs(here, [sent])[str(sent)] == Imported(added=1, known=1, features=1)
    assert here.statuses() == {spec(0).key: "done", spec(1).key: "done"}
    assert sorted(here.results()["value"].dropna()) == [0.25, 0.25, 0.5, 0.75]


def rewritten(sent: Path, change: Callable[[list[str]], list[str]], name: str = "runs.jsonl") -> Path:
    out = sent.with_name("changed.zip")
    with zipfile.ZipFile(sent) as before, zipfile.ZipFile(out, "w") as after:
        for entry in before.namelist():
            lines = before.read(entry)
            after.writestr(entry, "\n".join(change(lines.decode().splitlines())) if entry == name else lines)
    return out


def test_a_run_that_is_not_what_its_key_says_is_refused(sent: Path, tmp_path: Path, spec: MakeSpec) -> None:
    def forge(lines: list[str]) -> list[str]:
        return [line.replace('"batch_size":8', '"batch_size":4') for line in lines]

    there = Store(tmp_path / "there")
    changed = rewritten(sent, forge)
    assert import_runs(there, [changed])[str(changed)] == Imported(others=2)
    assert there.records() == []
    unknown = rewritten(sent, lambda lines: [line.replace('"method":"icone"', '"method":"later"') for line in lines])
    assert import_runs(there, [unknown])[str(unknown)] == Imported(others=2)


def test_a_file_of_another_recipe_is_refused(sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icone.paper.spec.RECIPE_VERSION", 10_000)
    assert import_runs(tmp_path / "there", [sent])[str(sent)] == Imported(others=2)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda sent: sent.write_bytes(sent.read_bytes()[:-200]), "cannot read"),
        (lambda sent: sent.write_bytes(b"run,status\n"), "cannot read"),
        (lambda sent: sent.unlink(), "cannot read"),
        (lambda sent: rewritten(sent, lambda lines: [*lines, "{"]).replace(sent), "run 3 cannot be read"),
        (lambda sent: rewritten(sent, lambda lines: [lines[0].replace("0.5", '"high"')]).replace(sent), "damaged"),
        (lambda sent: rewritten(sent, lambda lines: ['{"format": 9}'], "about.json").replace(sent), "format 9"),
    ],
)
def test_nothing_is_taken_of_a_damaged_file(
    sent: Path, tmp_path: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    damage(sent)
    there = Store(tmp_path / "there")
    with pytest.raises(InputError, match=sentence):
        import_runs(there, [sent])
    assert there.records() == []


def test_after_an_import_nothing_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line, from one store through a file to another, and the options come along."""
    here, there, file = (str(tmp_path / name) for name in ("here", "there", "runs.zip"))
    store = Store(here).create()
    options = Options(smoke=True, data_root=tmp_path)
    store.remember("synthetic", options.to_json())
    store.remember("views", Options(datasets=(str(tmp_path / "not there"),)).to_json())
    *cells, last = EXPERIMENTS["synthetic"].cells(options)
    for cell in cells:
        store.record(cell.spec, done())
    store.record(last.spec, Outcome(status="failed", reason="no luck"))
    assert main(["paper", "export", file, "--store", here]) == 0
    assert "7 runs, without 1 failed one" in capsys.readouterr().out
    assert main(["paper", "import", file, "--store", there]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "7 runs added, 0 known before" in said
    assert "views was run with options that do not hold here" in said
    executed: list[Task] = []

    class Counting:
        def learn(self, *_: object) -> None:
            pass

        def run(self, tasks: Sequence[Task], observe: Observe, limit: object) -> None:
            for task in tasks:
                executed.append(task)
                Store(there).record(task.spec, done())
                observe(Event("finished", task.spec, done()))

    monkeypatch.setattr(PaperRun, "_engine", lambda self, store: Counting())
    words = ["paper", "run", "synthetic", "--smoke", "--device", "cpu", "--store", there]
    assert main(words) == 0
    assert len(executed) == 1  # the one that failed
    assert main(words) == 0
    assert len(executed) == 1
    kept = Store(there).remembered("synthetic")
    assert kept is not None
    assert kept["smoke"]
    assert main(["paper", "import", "--store", there]) == 2
    assert main(["paper", "export", file, "--store", str(tmp_path / "nowhere")]) == 2
    assert main(["paper", "export", str(tmp_path), "--store", here]) == 2
    assert "give the name of a file with FILE" in capsys.readouterr().err
    assert main(["paper", "import", str(tmp_path), "--store", there]) == 2
    assert "is not a store" in capsys.readouterr().err
