"""SLURM jobs whose time is nearly over: they go back to the queue, and go on from the saved state."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from icone.errors import InterruptedRun, one_line
from icone.process import is_silent


@contextmanager
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
            _say(console, _requeue(job))
        raise


def _requeue(job: str) -> str:
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, text=True, timeout=60)
    except subprocess.CalledProcessError as error:
        return f"warning: SLURM did not requeue job {job} ({' '.join(error.stderr.split())})"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"warning: job {job} could not be requeued ({one_line(error)})"
    return f"SLURM job {job} is back in the queue, and will resume the run"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
