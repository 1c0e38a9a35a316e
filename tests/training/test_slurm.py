"""Jobs that go back into the queue, and what ranks agree on."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from icone.errors import InputError, InterruptedRun
from icone.nn.ranks import Ranks
from icone.process import is_restarted, is_silent, local_rank
from icone.training.distributed import Exchange, check_batch_size
from icone.training.signals import requeued_jobs, watch_signals


def stopped(by_sigusr1: bool) -> str:
    """What is said when a run in a job was stopped."""
    said = io.StringIO()
    error = InterruptedRun("stopped")
    error.wants_requeue = by_sigusr1
    with pytest.raises(InterruptedRun), requeued_jobs(Console(file=said, width=500)):
        raise error
    return said.getvalue()


def test_a_job_is_requeued_once_by_the_first_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, scontrol = tmp_path / "log", tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert stopped(by_sigusr1=True) == ""  # no job
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert stopped(by_sigusr1=False) == ""  # another signal
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert stopped(by_sigusr1=True) == ""  # another rank
    assert not log.exists()
    monkeypatch.setenv("RANK", "0")
    assert "job 12 is back in the queue" in stopped(by_sigusr1=True)
    assert log.read_text() == "requeue 12\n"
    scontrol.write_text("#!/bin/sh\necho Requested operation is disabled >&2\nexit 1\n")
    assert "did not requeue job 12 (Requested operation is disabled)" in stopped(by_sigusr1=True)
    scontrol.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "job 12 could not be requeued" in stopped(by_sigusr1=True)


def test_what_launchers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert (is_silent(), local_rank(), is_restarted()) == (False, 0, False)
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(name, value)
    assert (is_silent(), local_rank(), is_restarted()) == (True, 1, False)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert is_restarted()


def test_a_patient_process_is_not_ended_by_a_second_signal() -> None:
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        with watch_signals(patient=True) as wish:
            for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
                os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)  # torchrun passes it on when the run has stopped already
        assert wish.requested
        assert wish.wants_requeue
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class TwoRanks:
    """Rank 0, and another whose messages are given."""

    rank, size = 0, 2

    def __init__(self, other: list[int] | None = None) -> None:
        self.other = other

    def highest(self, *values: int) -> list[int]:
        return [max(pair) for pair in zip(values, self.other or values, strict=True)]


def test_ranks_agree_after_the_same_step() -> None:
    ranks: Any = TwoRanks()
    exchange = Exchange(cast(Ranks, ranks), torch.device("cpu"), done=10)
    assert exchange(10, True) == [False]  # not yet time to ask
    assert exchange(11, False) == [False]
    assert exchange.next > 11
    ranks.other = [0, 2**56, -(2**56), 1]  # another random state
    exchange.next = 12
    with pytest.raises(InputError, match="dropout"):
        exchange(12, False)


def test_a_batch_below_the_number_of_ranks_is_refused() -> None:
    check_batch_size(2, cast(Ranks, TwoRanks()))
    with pytest.raises(InputError, match="give batch_size=2 or more"):
        check_batch_size(1, cast(Ranks, TwoRanks()))
