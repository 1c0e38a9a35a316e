"""Sweeps on this machine: nothing is lost, nothing runs twice, whatever is killed."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from icone.config import PretrainConfig
from icone.errors import InputError, InterruptedRun
from icone.paper.contents import on_this_node
from icone.paper.engines.events import Event, Task
from icone.paper.engines.local import LocalEngine, _Worker, threads_of_a_process
from icone.paper.engines.packing import Packing
from icone.paper.engines.worker import WorkerReport, work
from icone.paper.execute import ExecutionSettings, Job, _train_side_by_side, execute, execute_one
from icone.paper.live_view import LiveView
from icone.paper.outcome import Outcome, SweepHalted
from icone.paper.spec import RunSpec
from icone.paper.store import Store

MakeSpec = Callable[..., RunSpec]
CPU = ExecutionSettings(device="cpu", threads=1)


class Watch:
    """Collects events, and acts when a run starts."""

    def __init__(self, on_start: Callable[[RunSpec], None] = lambda spec: None) -> None:
        self.on_start = on_start
        self.kinds: list[str] = []
        self.statuses: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        self.kinds.append(event.kind)
        if event.kind == "started":
            self.on_start(event.spec)
        if event.outcome is not None:
            self.statuses[event.spec.key] = event.outcome.status


def test_outcomes_of_all_kinds(store: Store, spec: MakeSpec, tmp_path: Path) -> None:
    """In this process: figures, an undefined combination, a failure with its reason; light files only."""
    good, undefined = spec(), spec(method="simclr", batch_size=1)
    bad = spec(source=str(tmp_path / "missing"))
    outcome = execute_one(good, store.run_folder(good.key), CPU)
    assert outcome.status == "done", outcome.reason
    assert {"linear_probe", "knn_5", "rankme", "alignment", "loss"} <= outcome.metrics.keys()
    assert set(outcome.tested) == {"test_labels", "right_linear_probe", "right_knn_5"}
    share = outcome.tested["right_linear_probe"].count("1") / len(outcome.tested["test_labels"].split())
    assert share == pytest.approx(outcome.metrics["linear_accuracy"])
    assert outcome.train_seconds < outcome.seconds
    assert outcome.peak_bytes > 1e8
    assert {path.name for path in store.run_folder(good.key).iterdir()} == {"executions", "features.npz"}
    other = execute_one(spec(1), store.run_folder("other"), ExecutionSettings(device="cpu", keep_encoders=True))
    assert {path.name for path in store.run_folder("other").iterdir()} == {"executions", "encoder.safetensors"}
    assert other.metrics["loss"] != outcome.metrics["loss"]
    outcome = execute_one(undefined, store.run_folder(undefined.key), CPU)
    assert outcome.status == "undefined"
    assert "batch size of 2 or more" in (outcome.reason or "")
    assert outcome.metrics == {}
    outcome = execute_one(bad, store.run_folder(bad.key), CPU)
    assert (outcome.status, outcome.out_of_memory) == ("failed", False)
    assert "missing" in (outcome.reason or "")
    assert "Traceback" in (store.run_folder(bad.key) / "log.txt").read_text()


def test_too_little_memory_while_measuring_is_known_as_such(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr("icone.paper.execute.measure", exhausted)
    outcome = execute_one(spec(), store.run_folder(spec().key), CPU)
    assert (outcome.status, outcome.out_of_memory) == ("failed", True)


@pytest.mark.parametrize("method", ["icone", "simclr"])
def test_a_group_that_trained_together_is_only_measured_after(store: Store, spec: MakeSpec, method: str) -> None:
    """What could not train together (SimCLR at batch 1) gets its reason on its own."""
    specs = [spec(seed, method=method, batch_size=1) for seed in (0, 1)]
    outcomes: list[Outcome] = []
    jobs = [Job(s, store.run_folder(s.key), outcomes.append) for s in specs]
    for job in jobs:
        job.folder.mkdir(parents=True)
    torch.set_num_threads(1)  # as `execute` does
    _train_side_by_side(jobs, CPU)
    assert all((job.folder / "training" / "encoder.safetensors").exists() == (method == "icone") for job in jobs)
    execute(jobs, CPU)
    assert [outcome.status for outcome in outcomes] == ["done" if method == "icone" else "undefined"] * 2
    assert [store.executions(s.key) for s in specs] == [1, 1]
    alone = execute_one(specs[0], store.run_folder("alone"), CPU)
    assert outcomes[0].metrics == alone.metrics


def test_all_matrix_products_of_a_worker_keep_to_its_threads() -> None:
    """In a process of its own: the limits stay."""
    code = """
import numpy, torch
from threadpoolctl import threadpool_info
from icone.paper.execute import use_threads
use_threads(1)
import sklearn.linear_model
pools = threadpool_info()
assert {pool["user_api"] for pool in pools} == {"blas", "openmp"}, pools
assert all(pool["num_threads"] == 1 for pool in pools if pool["user_api"] == "blas"), pools
assert torch.get_num_threads() == 1
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_process_beside_a_gpu_takes_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [threads_of_a_process(gpu, workers) for workers in (1, 2, 8)] == [4, 4, 2]
    assert [threads_of_a_process(cpu, workers) for workers in (1, 2, 8)] == [None, 8, 2]


def test_runs_that_train_side_by_side_share_their_time(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [spec(seed) for seed in (0, 1)]
    outcomes: list[Outcome] = []
    jobs = [Job(s, store.run_folder(s.key), outcomes.append) for s in specs]
    monkeypatch.setattr("icone.paper.execute._many_at_once", lambda setting: True)
    began = time.monotonic()
    execute(jobs, CPU)
    elapsed = time.monotonic() - began
    assert sum(outcome.seconds for outcome in outcomes) == pytest.approx(elapsed, rel=0.1)
    assert 0 < sum(outcome.train_seconds for outcome in outcomes) < elapsed


def test_a_run_that_is_asked_to_stop_has_not_failed(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(**settings: object) -> None:
        raise InterruptedRun("stopped after step 3")

    monkeypatch.setattr("icone.paper.execute.pretrain", stopped)
    assert work(store, [Task(spec())], CPU) == [WorkerReport(spec().key, "stopped")]
    assert store.records() == []


def test_a_sweep_survives_its_workers_and_another_sweep(store: Store, spec: MakeSpec) -> None:
    """A worker is killed while it trains; another sweep holds one run and finishes it: each run has one outcome."""
    specs = [spec(seed, epochs=40) for seed in range(4)]
    held = specs[3]

    def kill_the_first(started: RunSpec) -> None:
        if started == specs[0] and not (store.folder / "killed").exists():
            folder = store.run_folder(started.key)
            while not (folder / "training" / "history.jsonl").exists():
                time.sleep(0.01)
            os.kill(int((folder / "executions").read_text().split()[1]), signal.SIGKILL)
            (store.folder / "killed").touch()

    code = (
        "import sys; from pathlib import Path; from icone.paper.engines.worker import work\n"
        "from icone.paper.engines.events import Task; from icone.paper.execute import ExecutionSettings\n"
        "from icone.paper.spec import spec_from_json; from icone.paper.store import Store; import json\n"
        "work(Store(sys.argv[1]), [Task(spec_from_json(json.loads(sys.argv[2])))], "
        "ExecutionSettings(device='cpu', threads=1))"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(store.folder), json.dumps(held.to_json())])
    while not store.executions(held.key):
        time.sleep(0.05)
    watch = Watch(kill_the_first)
    LocalEngine(store, CPU, workers=1).run([Task(s) for s in specs], watch)
    assert other.wait() == 0
    assert watch.statuses == {s.key: "done" for s in specs}
    assert sorted(record.attempt for record in store.records()) == [1, 1, 1, 1]
    assert [store.executions(s.key) for s in specs] == [2, 1, 1, 1]  # the killed one was begun twice, and finished once
    again = Watch()
    LocalEngine(store, CPU, workers=1).run([Task(s) for s in specs], again)
    assert [store.executions(s.key) for s in specs] == [2, 1, 1, 1]


def _executions(store: Store) -> int:
    return sum(len(path.read_text().splitlines()) for path in store.folder.glob("runs/*/executions"))


@pytest.mark.slow
def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    """kill -9 and SIGTERM at several moments of a sweep by the command line, then the same command again."""
    store = Store(tmp_path / "store")
    command = [sys.executable, "-m", "icone", "paper", "run", "synthetic", "--seeds", "2", "--epochs", "60"]
    command += ["--store", str(store.folder), "--device", "cpu"]
    for number, seconds in ((signal.SIGKILL, 1), (signal.SIGTERM, 4), (signal.SIGINT, 8)):
        begun = _executions(store)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            while _executions(store) == begun and process.poll() is None:
                time.sleep(
                    0.2
                )  # before its first run a sweep ends as any program does, however long it takes to import
            time.sleep(seconds)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
        if number != signal.SIGKILL and process.returncode != 0:
            assert process.returncode == 130
            assert "goes on" in errors
    assert subprocess.run(command, check=False).returncode == 0
    keys = {record.key for record in store.records()}
    assert len(keys) == 8
    assert all(record.attempt == 1 for record in store.records())
    assert set(store.statuses().values()) == {"done"}


def test_packing_goes_by_measured_memory(spec: MakeSpec) -> None:
    packing = Packing(1000, slots=8)
    large, small = spec(batch_size=16), spec(batch_size=4)
    assert packing.fits([large])  # nothing runs: anything may
    packing.start("a", [large])
    assert not packing.fits([small])  # nobody knows what the first one takes
    packing.end("a")
    packing.learn(large, 300)
    packing.start("a", [large])
    assert packing.need(small) == 330  # at most what the larger batch took, with a margin
    assert packing.need(spec(batch_size=64)) is None
    packing.start("b", [small])
    packing.start("c", [small])
    assert not packing.fits([small])
    packing.end("c")
    assert packing.fits([small])
    assert not packing.fits([small], alone=True)
    packing.learn(small, 10)
    assert packing.need(spec(1, batch_size=4)) == 11
    assert packing.need(spec(batch_size=16, method="simclr")) == 660  # at most twice what another method took
    assert packing.need(spec(batch_size=4, method="simclr")) == 660
    assert packing.need(spec(batch_size=16, method="simclr", size=64)) is None
    assert packing.need(spec(batch_size=16, method="simclr", subset=20)) is None  # anchors of other samples
    assert packing.need(spec(batch_size=16, method="simclr", crop=32)) is None
    packing.learn(spec(batch_size=16, micro_batch=1), 50)
    assert packing.need(spec(batch_size=16, micro_batch=1, method="simclr")) == 110
    assert packing.need(spec(batch_size=16, method="simclr")) == 660  # not what one in micro-batches took


def test_groups_are_as_large_as_memory_allows(store: Store, spec: MakeSpec) -> None:
    engine = LocalEngine(store, CPU, workers=2, together=5)
    engine.packing = Packing(1000, slots=2)
    seeds = [Task(spec(seed)) for seed in range(11)]
    engine.queue = [seeds[:5], seeds[5:9], seeds[9:]]
    assert engine._next_group() == seeds[:5]  # nobody knows what they take: they have the device to themselves
    engine.packing.start("a", [spec()] * 5)
    assert engine._next_group() == []
    engine.packing.end("a")
    engine.packing.learn(spec(), 300)  # 330 with the margin: three fit
    assert engine._next_group() == seeds[5:8]
    engine.packing.start("a", [spec()] * 2)
    assert engine._next_group() == seeds[8:9]
    assert engine.queue == [seeds[9:]]
    engine.packing.start("b", [spec()])
    assert engine._next_group() == []


def test_too_little_memory_is_tried_alone_once(store: Store, spec: MakeSpec) -> None:
    engine, watch = LocalEngine(store, CPU, workers=2), Watch()
    engine.observe, engine.queue, engine.waiting = watch, [], []
    too_large = Outcome(status="failed", reason="not enough memory", out_of_memory=True)
    engine._take(Task(spec()), WorkerReport(spec().key, "finished", too_large))
    assert engine.queue == [[Task(spec(), alone=True)]]
    engine._take(Task(spec(), alone=True), WorkerReport(spec().key, "finished", too_large))
    assert watch.statuses == {spec().key: "failed"}


def test_the_live_view_counts(spec: MakeSpec) -> None:
    console = Console(file=io.StringIO(), width=120)
    with LiveView(console, 4, {"done": 1, "undefined": 0, "failed": 0}, Path("runs"), {}) as view:
        view.observe(Event("started", spec()))
        assert "1 running" in view.summary()
        view.observe(Event("finished", spec(), Outcome(status="failed", reason="no luck")))
        assert "2/4 runs, 1 done, 1 failed" in view.summary()
        view.observe(Event("unfinished", spec(1), reason="killed"))
        assert "3/4 runs, 1 done, 1 failed, 1 unfinished" in view.summary()
        assert "left" in view.summary()
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"no luck (see runs/{spec().key}/log.txt)" in said
    assert f"killed (see runs/{spec(1).key}/log.txt)" in said
    Console(file=io.StringIO(), force_terminal=True).print(view._panel())


def test_data_is_copied_once_per_machine(tmp_path: Path, spec: MakeSpec) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "breastmnist.npz").write_bytes(b"official")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.png").touch()
    cache = tmp_path / "cache"

    def here(**changes: object) -> PretrainConfig:
        described = spec(**changes)
        return on_this_node(described.config, cache, described.found_contents())

    named = here(source="medmnist:breastmnist@28", data_root=tmp_path / "data")
    assert named.data_root == cache
    assert (cache / "breastmnist.npz").read_bytes() == b"official"
    folder = here(source=str(tmp_path / "folder"))
    assert Path(folder.source).parent == cache
    assert (Path(folder.source) / "a.png").exists()
    (Path(folder.source) / "mark").touch()
    assert here(source=str(tmp_path / "folder")) == folder
    assert (Path(folder.source) / "mark").exists()  # not copied again
    assert here() == spec().config  # generated data is never copied


def test_a_copy_of_data_is_that_of_its_run(tmp_path: Path, spec: MakeSpec) -> None:
    """The folder grows, labels change: the runs are others, and so are their copies; a name never lies."""
    folder, labels, cache = tmp_path / "folder", tmp_path / "labels.csv", tmp_path / "cache"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"one")
    labels.write_text("id,label\na.png,0\n")
    old = spec(source=str(folder), labels=labels)
    old_contents = old.found_contents()
    first = on_this_node(old.config, cache, old_contents)
    (folder / "b.png").write_bytes(b"two")
    labels.write_text("id,label\na.png,1\nb.png,0\n")
    new = spec(source=str(folder), labels=labels)
    second = on_this_node(new.config, cache, new.found_contents())
    assert sorted(path.name for path in Path(first.source).iterdir()) == ["a.png"]
    assert sorted(path.name for path in Path(second.source).iterdir()) == ["a.png", "b.png"]
    assert first.labels is not None
    assert second.labels is not None
    assert "a.png,0" in first.labels.read_text()
    assert "a.png,1" in second.labels.read_text()
    for cached in (tmp_path / "elsewhere", None):  # a run that was described before the data changed
        with pytest.raises(InputError, match="not what it was when the sweep began"):
            on_this_node(old.config, cached, old_contents)
    assert not [path for path in (tmp_path / "elsewhere").iterdir() if not path.name.endswith(".lock")]


def full(*_: object, **__: object) -> None:
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as error:
        raise InputError("the disk is full: could not write state.safetensors") from error


@pytest.mark.parametrize("place", ["execute.pretrain", "execute.measure", "execute.note_execution", "store.write_text"])
def test_a_full_disk_is_no_failure_of_a_run(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"icone.paper.{place}", full)
        (report,) = work(store, [Task(spec())], CPU)
        assert report.kind == "halted"
        assert "is full" in report.reason
        if "store" not in place:
            with pytest.raises(SweepHalted, match="is full"):
                execute_one(spec(), store.run_folder(spec().key), CPU)
        assert store.records() == []
    trained = (store.run_folder(spec().key) / "training" / "encoder.safetensors").exists()
    assert trained == (place in ("execute.measure", "store.write_text"))  # what was done is kept
    engine = LocalEngine(store, CPU, workers=1)
    engine.observe, engine.queue, engine.waiting = Watch(), [], []
    with pytest.raises(SweepHalted, match="is full"):
        engine._take(Task(spec()), report)
    assert work(store, [Task(spec())], CPU)[0].kind == "finished"  # with space again
    assert set(store.statuses().values()) == {"done"}


def test_a_full_disk_while_seeds_train_side_by_side_halts_too(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icone.paper.execute._many_at_once", lambda setting: True)
    monkeypatch.setattr("icone.paper.execute.pretrain_many", full)
    assert {r.kind for r in work(store, [Task(spec(0)), Task(spec(1))], CPU)} == {"halted"}


class Dead:
    """A worker's process after its end."""

    pid, exitcode = 1, -9

    def join(self) -> None:
        pass


@pytest.mark.parametrize("held", [False, True])
def test_a_killed_process_is_no_failure_of_its_run(store: Store, spec: MakeSpec, held: bool) -> None:
    """Tried once more alone, then left to the next sweep; but what another sweep has claimed is waited for."""
    engine, watch = LocalEngine(store, CPU, workers=1), Watch()
    engine.observe, engine.queue, engine.waiting = watch, [], []
    worker = _Worker(Dead(), None)  # type: ignore[arg-type]
    engine.workers.append(worker)
    engine._died(worker, [Task(spec())])
    assert engine.queue == [[Task(spec(), alone=True)]]
    engine.queue.clear()
    engine.workers.append(worker)
    with store.claim(spec().key) if held else contextlib.nullcontext():
        engine._died(worker, [Task(spec(), alone=True)])
    assert store.records() == []
    assert watch.kinds[-1] == ("waiting" if held else "unfinished")
    assert bool(engine.queue) == held
