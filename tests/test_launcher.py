"""`--devices`, torchrun and SLURM, as a user meets them: processes, signals, and what stands on the terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from icone.cli import main
from icone.run import Run

RUN = [
    "pretrain", "synthetic:gaussians", "--subset", "50", "--features", "8", "--batch-size", "4", "--epochs", "20",
    "--checkpoint-seconds", "1", "--probe-every", "0", "--out",
]  # fmt: skip
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(*words: str | Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_epochs(process: subprocess.Popen[str], run: Run, epochs: int = 2) -> None:
    for _ in range(6000):
        if len(run.history) >= epochs:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no epoch was finished in time")


def process_of_rank(launcher: subprocess.Popen[str], rank: int) -> int:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return next(int(pid) for pid in children if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text())


def test_devices_and_seeds_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "synthetic:gaussians", "--devices", "2", "--seeds", "2", "--batch-size", "2"]) == 2
    assert "give one of the two" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_in_a_sentence_and_one_process_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    process = start("-m", "icone", *RUN, run.folder, "--devices", "2")
    wait_for_epochs(process, run)
    os.kill(process_of_rank(process, 1), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert errors.strip().splitlines()[-1].startswith("training stopped: rank 1 was killed (SIGKILL)")
    assert "--resume" in errors
    assert len(errors.strip().splitlines()) == 1
    assert main([*RUN, str(run.folder), "--resume"]) == 0
    assert run.finished
    assert [row["epoch"] for row in run.history] == list(range(20))


@pytest.mark.slow
def test_torchrun_restarts_after_a_kill(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    process = start(*TORCHRUN, "--max-restarts", "1", "-m", "icone", *RUN, run.folder)
    wait_for_epochs(process, run)
    os.kill(process_of_rank(process, 0), signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert run.finished
    assert [row["epoch"] for row in run.history] == list(range(20))


@pytest.mark.slow
def test_slurm_requeues_after_sigusr1_and_the_job_goes_on(tmp_path: Path) -> None:
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/requeued\n')
    scontrol.chmod(0o755)
    job = {"PATH": f"{scontrol.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    run = Run(tmp_path / "run")
    process = start("-m", "icone", *RUN, run.folder, "--devices", "2", **job)
    wait_for_epochs(process, run)
    process.send_signal(signal.SIGUSR1)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert "SLURM job 7 is back in the queue" in output
    assert errors.count("the state is saved") == 1
    assert not run.finished
    again = start("-m", "icone", *RUN, run.folder, "--devices", "2", **job, SLURM_RESTART_COUNT="1")
    _, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert run.finished
    assert [row["epoch"] for row in run.history] == list(range(20))
