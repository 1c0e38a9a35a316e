"""`icone pretrain --devices 4`: the processes of one run, started and watched by PyTorch's own launcher (torchrun)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from icone.errors import InputError
from icone.terminal import counted

INTERRUPTED, STOPPED = 130, 3
"""Exit codes."""


def launch(words: Sequence[str], devices: int, device: str, say: Callable[[str], None]) -> int:
    """Run the command `icone WORDS` in so many processes; the result is the exit code.

    It is `torchrun --standalone --nproc-per-node DEVICES -m icone WORDS`. The processes tell their errors themselves,
    but for one that is killed, of which `say` is told.
    """
    _check(devices, device)
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # we say what there is to say
    os.environ["ICONE_LAUNCHER"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))
    options = ["--standalone", "--nproc-per-node", str(devices), "-m", "icone", *words]
    former = signal.signal(signal.SIGUSR1, _pass_on)
    try:
        torchrun.run(torchrun.parse_args(options))
    except SignalException:
        return INTERRUPTED
    except ChildFailedError as error:
        return _after_failure(error, say)
    finally:
        signal.signal(signal.SIGUSR1, former)
    return 0


def _check(devices: int, device: str) -> None:
    is_cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if is_cuda and ":" in device:
        raise InputError(f"--device={device} is one GPU, and --devices={devices} takes the first ones: leave one out")
    if is_cuda and torch.cuda.device_count() < devices:
        raise InputError(
            f"--devices={devices}: this machine has {counted(torch.cuda.device_count(), 'GPU')} that PyTorch can use"
        )


def _pass_on(number: int, frame: FrameType | None) -> None:
    """Let the launcher pass SIGUSR1 on to the processes, as it does by itself with SIGTERM and SIGINT."""
    raise SignalException("a signal to pass on", sigval=signal.Signals(number))


def _after_failure(error: ChildFailedError, say: Callable[[str], None]) -> int:
    """The exit code of a failed run, and a sentence about a process that could not say anything itself."""
    codes = {rank: failure.exitcode for rank, failure in sorted(error.failures.items())}
    killed = {rank: code for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM}
    spoken = [code for code in codes.values() if code > 0]
    if not killed and spoken:
        return spoken[0]
    for rank, code in (killed or codes).items():
        say(
            f"training stopped: rank {rank} was killed ({signal.Signals(-code).name}). What was saved last is kept: "
            "go on with the same command and --resume"
        )
        break
    return STOPPED
