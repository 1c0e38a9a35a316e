"""A real Ray cluster of several nodes on this machine: a process and a node are killed in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from icone.errors import InputError
from icone.experiments.engines.events import Event, Task
from icone.experiments.executing import Setting, execute_one
from icone.experiments.spec import RunSpec
from icone.experiments.store import Store

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'icone[cluster]'")
from ray.cluster_utils import Cluster  # noqa: E402

from icone.experiments.engines.cluster import RayEngine  # noqa: E402

MakeSpec = Callable[..., RunSpec]
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
CPU = Setting(device="cpu", threads=1)


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
    with pytest.raises(InputError, match=r"ray start --head"):
        RayEngine(store, CPU)


def test_a_run_gets_the_share_of_a_gpu_that_it_needs(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"GPU": 2.0, "CPU": 8.0})
    engine = RayEngine(store, Setting(device="cuda"))
    small, large = spec(batch_size=4), spec(batch_size=64)
    assert engine._share(Task(small)) == 1  # nothing is known
    engine.packing.capacity = 100_000
    engine.packing.learn(small, 20_000)
    assert engine._share(Task(small)) == pytest.approx(0.25)  # 22 % with its margin, in steps of 5 %
    assert engine._share(Task(small, alone=True)) == 1
    assert engine._share(Task(large)) == 1
    assert RayEngine(store, Setting(device="cuda"), gpus_per_run=0.5)._share(Task(large)) == 0.5
    assert RayEngine(store, CPU)._share(Task(large)) == 0
