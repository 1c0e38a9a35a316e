"""The lines of docs/experiments.md for SLURM, run by stand-ins for sbatch, srun and scontrol; and shares of GPUs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icone.paper.engines.events import Event, Task
from icone.paper.execute import ExecutionSettings
from icone.paper.spec import RunSpec
from icone.paper.store import Store

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'icone[cluster]'")
from ray.cluster_utils import Cluster  # noqa: E402

from icone.paper.engines.cluster import RayEngine  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"
MakeSpec = Callable[..., RunSpec]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
STANDINS = {
    # runs what --wrap holds as a job of SLURM would
    "sbatch": 'while [ "$1" != --wrap ]; do echo "$1" >> "$LOG"; shift; done\nexec bash -c "$2"',
    # every node is this machine: drop srun's own flags, run the rest
    "srun": 'while [ "${1#-}" != "$1" ]; do [ "$1" = -w ] && shift; shift; done\necho "srun $*" >> "$LOG"\nexec "$@"',
    "scontrol": "echo 127.0.0.1; echo node2; echo node3",
    # a machine with GPUs and the whole paper are not at hand: one experiment in miniature
    "icone": 'exec "$PYTHON" -m icone "${@/#all/synthetic}" --smoke --seeds 1 --device cpu',
    "ray": 'exec "$(dirname "$PYTHON")/ray" "$@" --num-cpus=1 --disable-usage-stats',
}


def block() -> str:
    """The commands of the docs, with a port that is free here."""
    (found,) = re.findall(r"```sh\n(sbatch .*?)```", DOCS.read_text(), re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    assert "6379" in found
    return str(found.replace("6379", port))


def test_the_lines_of_the_docs_run(tmp_path: Path) -> None:
    """The folder of a node has a short name: Ray's sockets in it may have 107 letters."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in STANDINS.items():
        (tools / name).write_text(f"#!/bin/bash\n{script}\n")
        (tools / name).chmod(0o755)
    place = {
        "PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": sys.executable, "LOG": str(tmp_path / "log"),
        "SLURM_JOB_NODELIST": "node[1-3]", "SLURM_NNODES": "3", "DATA": str(tmp_path), "SCRATCH": str(tmp_path),
        "TMPDIR": tempfile.mkdtemp(), "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }  # fmt: skip
    output = tmp_path / "output"
    with output.open("w") as file:  # not a pipe: the nodes go on, and hold it open, when the job has ended
        job = subprocess.Popen(["bash", "-c", block()], env={**os.environ, **place}, stdout=file,
                               stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        job.wait(timeout=900)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job did not end: {output.read_text()}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)  # what this job started, and nothing else
        job.wait(timeout=60)
    said = output.read_text()
    log = (tmp_path / "log").read_text()
    assert "--signal=TERM@120" in log
    assert "ray start --head" in log
    assert "ray start --address=127.0.0.1:" in log
    assert Store(tmp_path / "paper").statuses(), said
    assert set(Store(tmp_path / "paper").statuses().values()) == {"done"}, said


def test_two_nodes_with_shares_of_a_gpu_and_a_node_that_is_lost(
    store: Store, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One simulated GPU a node, half of it a run: never more than four at a time, and a lost node loses nothing."""
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=4, num_gpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        specs = [spec(seed, epochs=20) for seed in range(8)]
        lost: list[bool] = []
        shares: list[float] = []

        def observe(event: Event) -> None:
            free = ray.available_resources().get("GPU", 0.0)
            shares.append(ray.cluster_resources().get("GPU", 0.0) - free)
            if event.kind == "finished" and not lost:
                cluster.remove_node(nodes[0], allow_graceful=False)
                lost.append(True)

        setting = ExecutionSettings(device="auto", threads=1)
        engine = RayEngine(store, setting, address=cluster.address, gpus_per_run=0.5, shared_store=True)
        engine.run([Task(s) for s in specs], observe)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert lost
    assert max(shares) <= 2.0
    assert store.statuses() == {s.key: "done" for s in specs}
    assert sum(store.executions(s.key) for s in specs) >= len(specs)
