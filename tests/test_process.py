"""What the command line sets in its own process, and that importing the package sets nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from icone.process import busy_cores

PROGRAM = """
import resource, sys
from icone.process import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def step():
    bytearray(2**26)  # 64 MB

for _ in range(20):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of the GNU C library")
def test_freed_memory_is_kept() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True).stdout)
        for how in ("usual", "kept")
    }
    assert faults["kept"] < 0.1 * faults["usual"]


NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
QUEUES = f"import os; from icone.process import configure_process; configure_process(); print(os.environ.get({NAME!r}))"


@pytest.mark.parametrize(
    ("given", "service", "expected"), [(None, False, "32"), ("8", False, "8"), (None, True, "None"), ("4", True, "4")]
)
def test_queues_to_the_gpu(given: str | None, service: bool, expected: str, tmp_path: Path) -> None:
    """32, unless someone has set it, or processes of a multi-process service share them."""
    environment = {name: value for name, value in os.environ.items() if name != NAME}
    environment["CUDA_MPS_PIPE_DIRECTORY"] = str(tmp_path if service else tmp_path / "missing")
    if given is not None:
        environment[NAME] = given
    found = subprocess.run([sys.executable, "-c", QUEUES], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == expected


IMPORTING = """
import os, signal, sys
import sklearn.linear_model, timm, torch  # these set variables of their own
before = dict(os.environ), torch.get_rng_state().tolist(), list(sys.meta_path), signal.getsignal(signal.SIGINT)
threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
import icone
icone.pretrain, icone.embed, icone.evaluate, icone.report, icone.METHODS, icone.nn, icone.recipe, icone.encoders
after = dict(os.environ), torch.get_rng_state().tolist(), list(sys.meta_path), signal.getsignal(signal.SIGINT)
assert before == after
assert (threads, precision) == (torch.get_num_threads(), torch.get_float32_matmul_precision())
"""


def test_importing_changes_nothing_in_the_process() -> None:
    subprocess.run([sys.executable, "-c", IMPORTING], check=True)


@pytest.mark.parametrize(
    ("threads", "load", "is_said"), [(2, 8.0, True), (2, 2.0, False), (2, 3.0, False), (1, 8.0, False)]
)
def test_busy_cores_are_told(threads: int, load: float, is_said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = busy_cores(threads)
    assert (found is not None) == is_said
    if found is not None:
        assert "OMP_NUM_THREADS=1" in found
