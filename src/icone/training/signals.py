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


@contextlib.contextmanager
def watch_signals() -> Iterator[Interruption]:
    """Turn the first SIGINT, SIGTERM or SIGHUP (a closed terminal) into a request; a second one acts as usual.

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
        restore_handlers()

    def restore_handlers() -> None:
        for which, handler in former.items():
            signal.signal(which, handler)

    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(which) != signal.SIG_IGN:
            former[which] = signal.signal(which, request)
    try:
        yield wish
    finally:
        restore_handlers()
