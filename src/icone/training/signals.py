"""Ctrl-C and a cluster's SIGTERM as a wish that the loop honours at the next step, and SLURM jobs that go on later."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rich.console import Console

from icone.errors import InterruptedRun, one_line
from icone.process import is_silent
from icone.terminal import say


@dataclass
class Interruption:
    """Whether somebody asked the run to stop."""

    requested: bool = False
    wants_requeue: bool = False
    """Whether the signal was SIGUSR1, by which SLURM tells that the time of a job is nearly over."""


@contextlib.contextmanager
def watch_signals(*, patient: bool = False) -> Iterator[Interruption]:
    """Turn the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP (a closed terminal) into a request; a second one acts as usual.

    If `patient`, further ones are requests too, to the end of the process: torchrun passes on a signal that the process
    may have got already, and sends SIGTERM to all ranks once one has ended. It kills those that do not end in time.

    A signal that the program was told to ignore stays ignored, as `nohup` wants it. Outside the main thread signals
    cannot be caught, and the program around us handles them.
    """
    wish = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    former: dict[signal.Signals, Any] = {}

    def request(number: int, frame: FrameType | None) -> None:
        wish.requested = True
        wish.wants_requeue |= number == signal.SIGUSR1
        if not patient:
            restore_handlers()

    def restore_handlers() -> None:
        for which, handler in former.items():
            signal.signal(which, handler)

    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        if signal.getsignal(which) != signal.SIG_IGN:
            former[which] = signal.signal(which, request)
    try:
        yield wish
    finally:
        if not (patient and wish.requested):
            restore_handlers()


@contextlib.contextmanager
def requeued_jobs(console: Console) -> Iterator[None]:
    """Put the SLURM job around us back into the queue, if a run in the block was stopped by SIGUSR1.

    `#SBATCH --signal=USR1@120` asks SLURM for that signal two minutes before the end. Outside a job it stops a run as
    any other signal does. A job that is started again resumes the run by itself.
    """
    try:
        yield
    except InterruptedRun as error:
        job = os.environ.get("SLURM_JOB_ID")
        if error.wants_requeue and job and not is_silent():
            say(console, _requeue(job))
        raise


def _requeue(job: str) -> str:
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True, timeout=60)
    except subprocess.CalledProcessError as error:
        return f"warning: SLURM did not requeue job {job} ({' '.join(error.stderr.split())})"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"warning: job {job} could not be requeued ({one_line(error)})"
    return f"SLURM job {job} is back in the queue, and will resume the run"
