"""Ctrl-C and a cluster's SIGTERM as a wish that the loop honours at the next step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any


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
