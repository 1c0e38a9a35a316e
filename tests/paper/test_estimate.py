"""What a sweep will take: by the table, by the store's own runs, and while it goes on."""

from __future__ import annotations

import dataclasses
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from icone.config import PretrainConfig
from icone.paper.engines.events import Event
from icone.paper.estimate import Estimator, is_undefined, step_times, steps_of, table_seconds, work_of
from icone.paper.execute import ExecutionSettings, execute_one, start_clock
from icone.paper.listing import estimate_line, likely_device
from icone.paper.live_view import LiveView
from icone.paper.outcome import Outcome
from icone.paper.spec import Cell, RunSpec
from icone.paper.store import Store

MakeSpec = Callable[..., RunSpec]
H200 = "NVIDIA H200"


def cell(**changes: Any) -> Cell:
    settings: dict[str, Any] = {
        "source": "medmnist:adrenalmnist3d@64", "test_fraction": 0.2, "batch_size": 1, "epochs": 100, **changes,
    }  # fmt: skip
    return Cell(RunSpec(config=PretrainConfig(**settings)), {"dims": 3, "samples": 1188})


def told(store: Store, one: Cell, step_seconds: float, **more: Any) -> None:
    facts: dict[str, Any] = {"device": H200, "sample": "1x64x64x64", "steps": steps_of(one), **more}
    seconds = step_seconds * steps_of(one) + 10
    store.record(one.spec, Outcome(status="done", seconds=seconds, step_seconds=step_seconds, **facts))


def test_the_table_gives_back_what_was_measured() -> None:
    """A step of the two encoders at the two batch sizes of the benchmark, one run alone."""
    times = step_times()["encoders"]["resnet18_3d"]
    for batch_size, engine in ((1, "compiled"), (16, "compiled")):
        work = work_of(cell(batch_size=batch_size))
        assert table_seconds(work, True) == pytest.approx(times[engine][str(2 * batch_size)] / 1000)
    short = work_of(cell(epochs=1))
    assert table_seconds(short, True) == pytest.approx(times["captured"]["2"] / 1000)
    together = work_of(cell(), together=5)
    assert 0.55 < table_seconds(together, True) / table_seconds(work_of(cell()), True) < 0.75
    assert steps_of(cell(batch_size=16, epochs=3)) == 3 * 60  # 951 of 1188 in batches of 16
    assert steps_of(cell(imbalance=5.0, epochs=1)) == 571


def test_the_stores_own_runs_decide_and_the_nearest_scale(store: Store) -> None:
    measured = cell(batch_size=16)
    told(store, measured, 0.02)
    told(store, dataclasses.replace(cell(batch_size=16, seed=1)), 0.04, processes=2)  # half of the device: 0.02 too
    estimator = Estimator(store.results(), H200)
    seconds, known = estimator.run(cell(batch_size=16, seed=2))
    assert known
    assert seconds == pytest.approx(0.02 * 6000 + 10, rel=0.1)
    other, known = estimator.run(cell(batch_size=1))  # the same encoder at another batch size: the table, as wrong
    by_table = Estimator(None, H200)
    wrong = 0.02 / table_seconds(work_of(measured), True)
    assert known
    assert other == pytest.approx(95100 * table_seconds(work_of(cell()), True) * wrong + 10, rel=0.1)
    assert by_table.run(cell(batch_size=16))[1] is False
    elsewhere, known = Estimator(store.results(), "cpu").run(cell(batch_size=16))
    assert not known
    assert elsewhere > 100 * seconds
    assert likely_device(store.results()) == H200


def test_micro_batches_take_the_time_of_their_passes(store: Store) -> None:
    """Sixteen passes are compiled where sixteen steps would be, and runs of whole batches tell nothing about them."""
    whole, parts = cell(batch_size=16, epochs=20), cell(batch_size=16, micro_batch=1, epochs=20)
    single = table_seconds(work_of(cell(epochs=100)), True)
    assert table_seconds(work_of(parts), True) == pytest.approx(16 * single)
    told(store, whole, 0.02)
    told(store, parts, 0.08)
    estimator = Estimator(store.results(), H200)
    assert estimator.run(parts)[0] == pytest.approx(0.08 * steps_of(parts) + 10, rel=0.01)
    assert estimator.run(whole)[0] == pytest.approx(0.02 * steps_of(whole) + 10, rel=0.01)


def test_undefined_runs_and_runs_that_are_shared_take_no_time() -> None:
    estimator = Estimator(None, H200)
    assert is_undefined(cell(method="simclr"))
    one = estimator.total([cell(), cell(), cell(method="simclr")])
    assert one.runs == 1
    assert one.seconds == pytest.approx(estimator.run(cell())[0])
    assert "1 run to do, about" in estimate_line(one, H200)
    assert "0 of 1 run by runs of this store, the others by a table measured on an NVIDIA H200" in estimate_line(
        one, H200
    )
    assert "(small encoders and the MLP: guessed)" in estimate_line(one, "cpu")


def test_only_as_many_runs_as_there_are_seeds_train_side_by_side() -> None:
    estimator = Estimator(None, H200, together=5)
    three = estimator.total([cell(seed=seed) for seed in range(3)])
    assert three.seconds == pytest.approx(3 * Estimator(None, H200, together=3).run(cell())[0])
    assert three.seconds > 3 * estimator.run(cell())[0]


def test_time_left_goes_by_work_and_not_by_runs(spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 1000 expected seconds took 2000: the one of 10,000 seconds that is left takes nearly 20,000."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    expected = {spec(0).key: 1000.0, spec(1).key: 10_000.0}
    view = LiveView(Console(file=io.StringIO()), 2, {"done": 0, "undefined": 0, "failed": 0}, Path(), expected)
    assert view.seconds_left() == 11_000
    now[0] = 2000.0
    view.observe(Event("finished", spec(0), Outcome(status="done")))
    assert view.seconds_left() == pytest.approx(20_000, rel=0.05)
    assert "about 5 h 24 min left" in view.summary()
    view.observe(Event("started", spec(1)))
    now[0] = 6000.0  # 4000 of it should be done
    assert view.seconds_left() == pytest.approx(6000 / 5000 * 6000, rel=0.05)


def test_a_first_run_that_takes_the_imports_too_says_little(spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    expected = {spec(seed).key: 1.0 for seed in range(101)}
    view = LiveView(Console(file=io.StringIO()), 101, {"done": 0, "undefined": 0, "failed": 0}, Path(), expected)
    now[0] = 30.0
    view.observe(Event("finished", spec(0), Outcome(status="done")))
    assert 100 < view.seconds_left() < 200


def test_seconds_add_up_over_executions(tmp_path: Path, spec: MakeSpec) -> None:
    """Two executions that were killed, 30 and (half of) 50 seconds after they began, and one that finishes."""
    folder = tmp_path / "run"
    now = time.time()
    assert start_clock(folder) == 0
    (folder / "state").touch()
    os.utime(folder / "state", (now + 30, now + 30))
    assert start_clock(folder, sharing=2) == pytest.approx(30, abs=1)
    os.utime(folder / "state", (now + 50, now + 50))
    began = time.monotonic()
    outcome = execute_one(spec(), folder, ExecutionSettings(device="cpu"))
    took = time.monotonic() - began
    assert outcome.status == "done", outcome.reason
    assert 54 < outcome.seconds < 56 + took
    assert outcome.steps == 2 * 6  # 48 points in batches of 8
    assert 0 < outcome.step_seconds < 1
    assert outcome.sample == "2"
    assert start_clock(folder) == 0  # the clock has gone with the outcome
