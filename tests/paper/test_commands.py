"""`icone paper` as people call it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from icone.cli import main
from icone.paper.commands import PaperRun
from icone.paper.engines.events import Event, Observe, Task
from icone.paper.engines.worker import work
from icone.paper.execute import ExecutionSettings
from icone.paper.outcome import Outcome, SweepHalted
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.time_limit import TimeLimit

Out = pytest.CaptureFixture[str]


def test_list_and_show(told: Store, tmp_path: Path, capsys: Out) -> None:
    place = ["--store", str(told.folder)]
    assert main(["paper", "list", "--smoke", *place]) == 0
    assert "batch-size-3d" in capsys.readouterr().out
    assert main(["paper", "show", "knn-3d", "--out", str(tmp_path), *place]) == 0
    assert "diff." in capsys.readouterr().out
    assert (tmp_path / "knn-3d" / "knn-3d.csv").read_text().startswith("row,batch_size,k,paper,mark,ours,difference")
    assert main(["paper", "show", "knn-3d", "--seeds", "9", "--out", str(tmp_path), "--smoke", *place]) == 0
    assert "*" in capsys.readouterr().out  # two seeds of nine


def test_run_redoes_nothing(told: Store, capsys: Out) -> None:
    assert main(["paper", "run", "batch-size-2d", "views", "--smoke", "--store", str(told.folder)]) == 0
    assert "0 runs executed; in all" in capsys.readouterr().out


def test_a_dry_run_says_how_long_it_takes_and_writes_nothing(tmp_path: Path, capsys: Out) -> None:
    place = ["--store", str(tmp_path / "store"), "--device", "cpu", "--dry-run"]
    assert main(["paper", "run", "synthetic", "--smoke", *place]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "8 runs to do, about" in said
    assert "nothing was run; 0 runs of it have ended before" in said
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run"], "name at least one experiment"),
        (["run", "batchsize"], "did you mean"),
        (["run", "natural-images"], "needs --natural-images FOLDER"),
        (["run", "views", "--workers", "0"], "--workers must be at least 1"),
        (["run", "views", "--seeds", "0"], "--seeds must be at least 1"),
        (["show", "views"], "there is no store"),
        (["run", "batch-size-2d", "--datasets", "~nosuchuser/x"], "there is no such user"),
        (["run", "views", "--lr", "0"], "--lr must be above 0 and at most 1e+30, got 0"),
        (["run", "synthetic", "--lr", "0"], "--lr must be above 0 and at most 1e+30, got 0"),
        (["run", "views", "--epochs", "0"], "--epochs must be at least 1"),
        (["run", "views", "--subset", "0"], "--subset must be at least 1"),
        (["run", "views", "--size", "0"], "--size must be at least 8"),
        (["run", "views", "--cpus-per-run", "0"], "--cpus-per-run must be above 0"),
        (["run", "views", "--gpus-per-run", "nan"], "--gpus-per-run must be above 0"),
    ],
)
def test_errors_are_sentences(words: list[str], sentence: str, tmp_path: Path, capsys: Out) -> None:
    assert main(["paper", *words, "--store", str(tmp_path / "store")]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_set_that_cannot_be_used_is_named_before_the_first_run(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "breastmnist.npz").write_bytes(b"not what it says")
    words = ["paper", "run", "views", "--datasets", "breastmnist@28", "--data-root", str(tmp_path)]
    assert main([*words, "--store", str(tmp_path / "store")]) == 2
    assert "not the official file" in " ".join(capsys.readouterr().err.split())
    assert not list((tmp_path / "store" / "outcomes").iterdir())


class Here:
    """An engine in this process, which does with every run what the test says."""

    def __init__(self, store: Store, act: Callable[[Store, Task], Event]) -> None:
        self.store, self.act = store, act

    def learn(self, spec: RunSpec, peak_bytes: int) -> None:
        pass

    def run(self, tasks: Sequence[Task], observe: Observe, limit: object) -> None:
        for task in tasks:
            observe(self.act(self.store, task))


RUN = ["paper", "run", "synthetic", "--smoke", "--device", "cpu"]


def sweep_with(act: Callable[[Store, Task], Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PaperRun, "_engine", lambda self, store: Here(store, act))


def fail(store: Store, task: Task) -> Event:
    outcome = Outcome(status="failed", reason="OSError: no such lens (x.py:1)")
    store.record(task.spec, outcome)
    return Event("finished", task.spec, outcome)


def succeed(store: Store, task: Task) -> Event:
    outcome = Outcome(status="done", metrics={"linear_probe": 0.5})
    store.record(task.spec, outcome)
    return Event("finished", task.spec, outcome)


def test_a_sweep_with_failures_ends_in_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    words = [*RUN, "--store", str(tmp_path)]
    sweep_with(fail, monkeypatch)
    assert main(words) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "failed (8 runs): OSError: no such lens" in said
    assert f"{tmp_path}/runs/" in said
    assert "log.txt" in said
    assert "0 done, 0 undefined, 8 failed; --retry-failed" in said
    sweep_with(succeed, monkeypatch)
    assert main(words) == 1  # nothing runs, and nothing is better
    assert "0 runs executed" in capsys.readouterr().out
    assert main([*words, "--retry-failed"]) == 0
    assert "8 runs executed; in all 8 done" in capsys.readouterr().out


def test_what_can_run_runs_and_missing_files_come_with_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    """Two MedMNIST files that cannot be used beside a set that can: 12 runs of each."""
    for name in ("breastmnist", "pneumoniamnist"):
        (tmp_path / f"{name}.npz").write_bytes(b"not what it says")
    sets = ["breastmnist@28", "synthetic:cells@32x60", "pneumoniamnist@28"]
    words = ["paper", "run", "views", "init-scale", "--datasets", *sets, "--batch-sizes", "2", "--seeds", "1"]
    words += ["--data-root", str(tmp_path), "--store", str(tmp_path / "store"), "--device", "cpu"]
    sweep_with(succeed, monkeypatch)
    assert main(words) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "9 runs to do, about" in said  # four numbers of views, five scales
    assert "left out (18 runs), because data is not there" in said
    fetch = f"icone fetch medmnist:breastmnist@28 medmnist:pneumoniamnist@28 --data-root {tmp_path}"
    assert fetch in said
    assert "9 runs executed; in all 9 done, 0 undefined, 0 failed, 18 left out" in said
    assert "a tenth of it, with a tenth of the epochs: icone paper run views init-scale --datasets" in said
    assert "--epochs 10" in said


def test_lost_runs_are_unfinished_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    words = [*RUN, "--store", str(tmp_path)]
    sweep_with(lambda store, task: Event("unfinished", task.spec, reason="killed"), monkeypatch)
    assert main(words) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "unfinished (8 runs): killed" in said
    assert "0 failed, 8 unfinished" in said
    sweep_with(succeed, monkeypatch)
    assert main(words) == 0


def test_a_sweep_that_ends_at_its_time_limit_says_so_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    class UntilTheLimit(Here):
        """The clock stands still until three runs have ended."""

        def run(self, tasks: Sequence[Task], observe: Observe, limit: object) -> None:
            assert isinstance(limit, TimeLimit)
            assert limit.expected.keys() == {task.spec.key for task in tasks}
            super().run(tasks[:3] if limit.seconds == 90 else tasks, observe, limit)

    words = [*RUN, "--store", str(tmp_path)]
    monkeypatch.setattr(PaperRun, "_engine", lambda self, store: UntilTheLimit(store, succeed))
    assert main([*words, "--max-minutes", "1.5"]) == 75
    said = " ".join(capsys.readouterr().out.split())
    assert "3 runs executed; in all 3 done, 0 undefined, 0 failed, 5 left for the next time" in said
    assert "did not fit into 1.5 minutes" in said
    assert main([*words, "--max-minutes", "60"]) == 0
    assert "5 runs executed; in all 8 done" in capsys.readouterr().out
    assert main([*words, "--max-minutes", "0"]) == 2
    assert "--max-minutes must be above 0" in capsys.readouterr().err


def test_a_full_disk_stops_the_sweep_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    words = [*RUN, "--store", str(tmp_path)]
    executed = []

    def full(**settings: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def train(store: Store, task: Task) -> Event:
        executed.append(task)
        (report,) = work(store, [task], ExecutionSettings(device="cpu"))
        assert report.kind == "halted"
        raise SweepHalted(report.reason)

    with monkeypatch.context() as patch:
        patch.setattr("icone.paper.execute.pretrain", full)
        sweep_with(train, patch)
        assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "is full" in said
    assert "the same command goes on" in said
    assert len(executed) == 1
    assert Store(tmp_path).records() == []
    sweep_with(succeed, monkeypatch)
    assert main(words) == 0


def test_strange_and_damaged_files_in_a_store_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    words = [*RUN, "--store", str(tmp_path)]
    sweep_with(succeed, monkeypatch)
    assert main(words) == 0
    first, *_ = sorted((tmp_path / "outcomes").iterdir())
    first.with_name(f"{first.stem} (copy).json").write_text("{}")
    first.write_text("{")
    (tmp_path / "results.parquet").write_bytes(b"cut")
    for verb in (["list", "--smoke"], ["show", "synthetic"]):
        capsys.readouterr()
        assert main(["paper", *verb, "--store", str(tmp_path)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "(copy).json" in said
        assert f"{first} is damaged" in said
    assert main(words) == 0
    assert "1 run executed; in all 8 done" in capsys.readouterr().out
