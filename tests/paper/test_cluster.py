"""A real Ray cluster of several nodes on this machine: a process and a node are killed in the middle."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from icone.errors import InputError
from icone.paper.engines.events import Event, Task
from icone.paper.execute import ExecutionSettings, execute_one
from icone.paper.outcome import Outcome, SweepHalted
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.time_limit import TimeLimit

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'icone[cluster]'")
from ray.cluster_utils import Cluster  # noqa: E402

from icone.paper.engines.cluster import LOSSES, RayEngine, Returned, _Flight  # noqa: E402

MakeSpec = Callable[..., RunSpec]
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
CPU = ExecutionSettings(device="cpu", threads=1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without CPUs, so that tasks run on nodes that can be killed."""
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


def running(store: Store, keys: list[str]) -> list[int]:
    """Processes that train now."""
    found = []
    for key in keys:
        folder = store.run_folder(key)
        if (folder / "training" / "history.jsonl").exists() and store.last_record(key) is None:
            found.append(int((folder / "executions").read_text().split()[-1]))
    return found


@pytest.mark.slow
def test_a_killed_process_and_a_killed_node_lose_nothing(cluster: Any, store: Store, spec: MakeSpec) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    cluster.wait_for_nodes()
    specs = [spec(seed, epochs=150) for seed in range(12)]
    keys = [s.key for s in specs]
    killed: list[str] = []

    def kill(event: Event) -> None:
        finished = len(store.records())
        if finished >= 2 and "process" not in killed and (pids := running(store, keys)):
            os.kill(pids[0], signal.SIGKILL)
            killed.append("process")
        elif finished >= 4 and "node" not in killed:
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed.append("node")

    engine = RayEngine(store, CPU, address=cluster.address, shared_store=True)
    engine.run([Task(s) for s in specs], kill)
    executions = {key: store.executions(key) for key in keys}
    print(f"runs {len(keys)}, outcomes {len(store.records())}, executions {sum(executions.values())}, killed {killed}")
    assert killed == ["process", "node"]
    assert {record.key for record in store.records()} == set(keys)  # nothing is lost
    assert all(record.attempt == 1 for record in store.records())  # nothing finished twice
    assert set(store.statuses().values()) == {"done"}
    assert len(keys) + 1 <= sum(executions.values()) <= len(keys) + 3  # only what was killed was begun again


def test_results_come_back_through_ray(cluster: Any, store: Store, spec: MakeSpec) -> None:
    """Without a shared store: the same figures as here, the files of the run, undefined combinations."""
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    specs = [spec(), spec(method="simclr", batch_size=1)]
    RayEngine(store, CPU, address=cluster.address).run([Task(s) for s in specs], lambda event: None)
    assert store.statuses() == {specs[0].key: "done", specs[1].key: "undefined"}
    assert (store.run_folder(specs[0].key) / "features.npz").is_file()
    here = execute_one(specs[0], store.folder / "here", CPU)
    remote = store.results().set_index("metric")["value"]
    assert remote["loss"] == pytest.approx(here.metrics["loss"])


def test_no_cluster_is_a_sentence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**arguments: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(InputError, match=r"Could not find any running.*ray start --head"):
        RayEngine(store, CPU, address="local")
    monkeypatch.setattr("icone.paper.engines.cluster.subprocess.run", lambda *_, **__: Tried(1, "x\nno way\n"))
    with pytest.raises(InputError, match=r"at '10\.0\.0\.1:1' \(no way\).*ray start --head"):
        RayEngine(store, CPU, address="10.0.0.1:1")


class Tried(NamedTuple):
    """A process that has ended."""

    returncode: int
    stderr: str


def test_an_address_where_nobody_answers_is_a_sentence_after_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that takes connections and says nothing, which Ray would ask for minutes."""
    monkeypatch.setattr("icone.paper.engines.cluster.CONNECT_SECONDS", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=r"no answer within 1\.5 s"):
            RayEngine(store, CPU, address=address)


def engine_of(
    monkeypatch: pytest.MonkeyPatch, store: Store, setting: ExecutionSettings = CPU, **shares: Any
) -> RayEngine:
    """An engine on a cluster of two machines that are not there."""
    machines = [{"Alive": True, "Resources": {"CPU": cpus, "GPU": 1.0}} for cpus in (4.0, 8.0)]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"GPU": 2.0, "CPU": 12.0})
    monkeypatch.setattr(ray, "nodes", lambda: [*machines, {"Alive": False, "Resources": {"CPU": 99.0}}])
    return RayEngine(store, setting, **shares)


def test_more_than_any_machine_has_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"cpus_per_run=9 .* the largest has 8"):
        engine_of(monkeypatch, store, cpus_per_run=9)
    with pytest.raises(InputError, match=r"gpus_per_run=2 .* the largest has 1"):
        engine_of(monkeypatch, store, ExecutionSettings(device="cuda"), gpus_per_run=2)
    engine_of(monkeypatch, store, cpus_per_run=8, gpus_per_run=2)  # a share of a GPU means nothing on CPUs


def test_lost_and_halted_runs_are_not_recorded(store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(monkeypatch, store)
    events: list[Event] = []
    engine.observe, engine.queue, engine.losses = events.append, [], {}
    for _ in range(LOSSES):
        engine._lost(Task(spec()), RuntimeError("the node died"))
    assert [event.kind for event in events] == ["waiting"] * (LOSSES - 1) + ["unfinished"]
    assert "the node died" in events[-1].reason

    claim = ExitStack()
    claim.enter_context(store.claim(spec().key))
    engine.flights = {"reference": _Flight(Task(spec()), claim, whole=True)}
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references, []))
    returned = Returned(Outcome(status="done"), {"features.npz": b"figures"})
    monkeypatch.setattr(ray, "get", lambda reference: returned)
    with monkeypatch.context() as patch:
        patch.setattr("icone.paper.store.write_text", full)
        with pytest.raises(SweepHalted, match="is full"):
            engine._collect()
    halted = ray.exceptions.RayTaskError("f", "traceback", SweepHalted("a disk of n1 is full")).as_instanceof_cause()
    monkeypatch.setattr(ray, "get", lambda reference: raise_(halted))
    engine.flights = {"reference": _Flight(Task(spec()), ExitStack(), whole=True)}
    with pytest.raises(SweepHalted, match="a disk of n1 is full"):
        engine._collect()
    assert store.records() == []
    with store.claim(spec().key) as free:
        assert free


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def raise_(error: Exception) -> None:
    raise error


def test_a_run_gets_the_share_of_a_gpu_that_it_needs(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(monkeypatch, store, ExecutionSettings(device="cuda"))
    small, large = spec(batch_size=4), spec(batch_size=64)
    assert engine._share(Task(small)) == 1  # nothing is known
    engine.packing.capacity = 100_000
    engine.packing.learn(small, 20_000)
    assert engine._share(Task(small)) == pytest.approx(0.25)  # 22 % with its margin, in steps of 5 %
    assert engine._share(Task(small, alone=True)) == 1
    assert engine._share(Task(large)) == 1
    assert RayEngine(store, ExecutionSettings(device="cuda"), gpus_per_run=0.5)._share(Task(large)) == 0.5
    assert RayEngine(store, CPU)._share(Task(large)) == 0


def test_what_fits_into_the_time_is_submitted_first_and_then_the_first_that_waits(spec: MakeSpec) -> None:
    now = [0.0]
    first, second, short = (Task(spec(seed)) for seed in range(3))
    engine = RayEngine.__new__(RayEngine)
    expected = {first.spec.key: 500.0, second.spec.key: 100.0, short.spec.key: 50.0}
    engine.limit = TimeLimit(2, expected, clock=lambda: now[0])
    engine.queue = [first, second, short]
    now[0] = 30.0
    assert [engine._next_task() for _ in range(4)] == [short, first, second, None]
    now[0] = 91.0  # less than half a minute is left
    engine.queue = [first, second._replace(begun=True)]
    assert [engine._next_task(), engine._next_task()] == [second._replace(begun=True), None]
    assert engine.queue == [first]
    now[0] = 120.0
    engine.queue = [short._replace(begun=True), first]
    assert engine._next_task() is None
